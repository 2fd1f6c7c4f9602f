"""A model folder is of use outside this repository: with the package alone, with CTranslate2 alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny import ROOT, TEXT, model_folder

from transformer.inference.ctranslate2_export import export
from transformer.inference.translator import Translator
from transformer.text.words import join

PIPELINE = ["mlflow", "dvc", "pandas", "torchtext", "ruamel", "altair", "sacrebleu", "pipeline"]
# Runs a module or a script as if some packages were not installed.
WITHOUT = """
import runpy, sys
absent = set(sys.argv[1].split(","))
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not here", name=name)
sys.meta_path.insert(0, Absent())
sys.argv = sys.argv[2:]
run = runpy.run_path if sys.argv[0].endswith(".py") else runpy.run_module
run(sys.argv[0], run_name="__main__")
"""


def without(absent: list[str], place: Path, *words: str, text: str = "") -> str:
    """What a program prints where some packages are missing."""
    command = [sys.executable, "-c", WITHOUT, ",".join(absent), *words]
    done = subprocess.run(command, cwd=place, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the package, a model and its export, and nothing else."""
    place = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(ROOT / "transformer", place / "transformer", ignore=shutil.ignore_patterns("__pycache__"))
    export(model_folder(place / "model", spread=0.6), place / "data/ct2/float32", "float32")
    return place


def test_the_package_translates_without_the_pipelines_packages(place):
    found = without([*PIPELINE, "ctranslate2"], place, "transformer", "model", text="\n".join(TEXT))
    assert found.split("\n")[:-1] == Translator.load(place / "model").translate(TEXT)


def test_the_package_translates_by_ctranslate2_without_torch(place):
    absent = [*PIPELINE, "torch", "safetensors"]
    found = without(absent, place, "transformer", "data/ct2/float32", text="\n".join(TEXT))
    assert found.split("\n")[:-1] == Translator.load(place / "data/ct2/float32").translate(TEXT)


def test_the_readmes_example_needs_ctranslate2_spacy_and_subword_nmt_alone(place):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(import ctranslate2\n.*?)```", readme, flags=re.DOTALL)
    line = re.search(r'translate\("(.*)"\)', example)
    assert line
    (place / "example.py").write_text(example, encoding="utf-8")
    found = without([*PIPELINE, "torch", "safetensors", "transformer"], place, "example.py")
    translator = Translator.load(place / "data/ct2/float32")
    bare = translator.engine.translator.translate_batch(translator.words([line[1]]), beam_size=4)
    assert found == join(bare[0].hypotheses[0]) + "\n"


def test_the_declared_dependencies_are_those_that_translating_imports():
    """Each third-party import of the modules that a translator reaches is named in pyproject.toml."""
    from test_house import PACKAGE, imports, reached

    files = reached(PACKAGE / "__main__.py") - {PACKAGE / "ct2_engine.py"}
    names = {name.split(".")[0] for path in files for name in imports(path)} - set(sys.stdlib_module_names)
    declared = re.search(r"dependencies = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), flags=re.DOTALL)
    assert declared
    wanted = {re.split(r"[><=]", name)[0].replace("-", "_") for name in re.findall(r'"(.*?)"', declared[1])}
    assert names - {"transformer", "torchtext"} <= wanted
