"""The names that users import from transformer."""

from __future__ import annotations

import pytest

import transformer


def test_the_public_names_can_be_imported_from_the_package():
    from transformer import Transformer, Translation, Translator, load_model

    names = {"Transformer": Transformer, "Translation": Translation, "Translator": Translator, "load_model": load_model}
    assert sorted(names) == sorted(transformer.__all__)
    assert all(value.__name__ == name for name, value in names.items())


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'transformer' has no attribute 'Translater'"):
        _ = transformer.Translater
