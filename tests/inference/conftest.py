"""A translator of the model folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from transformer.inference.translator import Translator


@pytest.fixture(scope="session")
def folder(model: Path) -> Path:
    """A model folder, which no test changes."""
    return model


@pytest.fixture(scope="module")
def translator(model: Path) -> Translator:
    """A translator that no test changes."""
    return Translator.load(str(model))
