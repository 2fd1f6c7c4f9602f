"""Speed of this project and of other programs. Not part of the installed package."""

import transformer  # noqa: F401  it sets GOMP_SPINCOUNT before torch is loaded, for every program here
