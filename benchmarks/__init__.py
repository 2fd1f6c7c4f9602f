"""Measurements of this project against others. Not part of what is installed."""

import transformer  # noqa: F401  what it sets before torch is loaded holds for every program here
