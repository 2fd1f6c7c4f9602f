"""The names that users import: from transformer, and from the module of version 0.1."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.tiny import ROOT

import transformer


def test_the_public_names_can_be_imported_from_the_package():
    from transformer import Transformer, Translation, Translator, load_model

    names = {"Transformer": Transformer, "Translation": Translation, "Translator": Translator, "load_model": load_model}
    assert sorted(names) == sorted(transformer.__all__)
    assert all(value.__name__ == name for name, value in names.items())


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'transformer' has no attribute 'Translater'"):
        _ = transformer.Translater


def test_the_module_of_version_0_1_still_works_and_prints_the_new_import_in_one_line():
    code = """from transformer.translator import Translation, Translator
import transformer
print(Translator is transformer.Translator, Translation is transformer.Translation)"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "True True\n"
    assert done.stderr.count("\n") == 1
    assert "FutureWarning" in done.stderr
    assert "`from transformer import Translator`" in done.stderr
