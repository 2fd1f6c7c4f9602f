"""A model folder translates outside this repository: with the package only, and with CTranslate2 only."""

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
from transformer.text.marks import join

PIPELINE = ["mlflow", "dvc", "pandas", "torchtext", "ruamel", "altair", "sacrebleu", "pipeline"]
# A program that runs a module or a script as if some packages were not installed.
WITHOUT = """
import runpy, sys
absent = set(sys.argv[1].split(","))
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)
sys.meta_path.insert(0, Absent())
sys.argv = sys.argv[2:]
run = runpy.run_path if sys.argv[0].endswith(".py") else runpy.run_module
run(sys.argv[0], run_name="__main__")
"""


def output_without(absent: list[str], folder: Path, *arguments: str, text: str = "") -> str:
    """The output of a program in a folder, in an environment without the packages `absent`. text: standard input."""
    command = [sys.executable, "-c", WITHOUT, ",".join(absent), *arguments]
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the package, a model and its export only."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(ROOT / "transformer", folder / "transformer", ignore=shutil.ignore_patterns("__pycache__"))
    export(model_folder(folder / "model", spread=0.6), folder / "data/ct2/float32", "float32")
    return folder


def test_the_package_translates_without_the_packages_of_the_pipeline(folder):
    found = output_without([*PIPELINE, "ctranslate2"], folder, "transformer", "model", text="\n".join(TEXT))
    assert found.split("\n")[:-1] == Translator.load(folder / "model").translate(TEXT)


def test_the_package_translates_with_ctranslate2_without_torch(folder):
    absent = [*PIPELINE, "torch", "safetensors"]
    found = output_without(absent, folder, "transformer", "data/ct2/float32", text="\n".join(TEXT))
    assert found.split("\n")[:-1] == Translator.load(folder / "data/ct2/float32").translate(TEXT)


def test_the_ctranslate2_example_of_the_docs_needs_ctranslate2_spacy_and_subword_nmt_only(folder):
    page = (ROOT / "docs/translating.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(import ctranslate2\n.*?)```", page, flags=re.DOTALL)
    line = re.search(r'translate\("(.*)"\)', example)
    assert line
    (folder / "example.py").write_text(example, encoding="utf-8")
    found = output_without([*PIPELINE, "torch", "safetensors", "transformer"], folder, "example.py")
    translator = Translator.load(folder / "data/ct2/float32")
    bare = translator.engine.translator.translate_batch(translator.subwords([line[1]]), beam_size=4)
    assert found == join(bare[0].hypotheses[0]) + "\n"


def test_the_packages_that_translating_imports_are_declared_dependencies():
    """pyproject.toml names each third-party package that the modules of a translator import, CTranslate2's excepted."""
    from test_house import PACKAGE, imports, reached

    files = reached(PACKAGE / "__main__.py") - {PACKAGE / "inference/ctranslate2_engine.py"}
    names = {name.split(".")[0] for path in files for name in imports(path)} - set(sys.stdlib_module_names)
    declared = re.search(r"dependencies = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), flags=re.DOTALL)
    assert declared
    wanted = {re.split(r"[><=]", name)[0].replace("-", "_") for name in re.findall(r'"(.*?)"', declared[1])}
    assert names - {"transformer", "torchtext"} <= wanted
