"""The package and a model folder translate outside this repository: installed, copied, and with CTranslate2 alone."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.tiny import ROOT, TEXT, model_folder

import transformer
from transformer.inference.ctranslate2_export import add_export
from transformer.inference.translator import Translator
from transformer.text.marks import join

PACKAGE = ROOT / "transformer"
PIPELINE = ["mlflow", "dvc", "pandas", "torchtext", "ruamel", "altair", "sacrebleu", "pipeline"]
PROGRAM = """
from transformer import Translator
print(*Translator.load("model").translate(open("source.de", encoding="utf-8").read().split("\\n")), sep="\\n")
"""
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
    """A folder with the package and a model only."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(PACKAGE, folder / "transformer", ignore=shutil.ignore_patterns("__pycache__"))
    model = model_folder(folder / "data/model", spread=0.6)
    add_export(model, model, "float32")
    return folder


def test_the_package_needs_no_package_of_the_pipeline(folder):
    output = output_without([*PIPELINE, "ctranslate2"], folder, "transformer", "data/model", text="\n".join(TEXT))
    assert output.split("\n")[:-1] == Translator.load(folder / "data/model").translate(TEXT)


def test_the_ctranslate2_example_of_the_docs_needs_no_torch(folder):
    page = (ROOT / "docs/translating.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(import ctranslate2\n.*?)```", page, flags=re.DOTALL)
    line = re.search(r'translate\("(.*)"\)', example)
    assert line
    (folder / "example.py").write_text(example, encoding="utf-8")
    output = output_without([*PIPELINE, "torch", "safetensors", "transformer"], folder, "example.py")
    translator = Translator.load(folder / "data/model", engine="ctranslate2")
    bare = translator.engine.translator.translate_batch(translator.subwords([line[1]]), beam_size=4)
    assert output == join(bare[0].hypotheses[0]) + "\n"


@pytest.mark.parametrize(
    ("rooms", "extras"), [(("text", "model", "decoding", "inference"), ("torch",)), (("serving",), ("torch", "serve"))]
)
def test_the_packages_that_translating_imports_are_declared(rooms, extras):
    """pyproject.toml names each third-party package that the rooms of a translator import."""
    files = [*PACKAGE.glob("*.py"), *(path for room in rooms for path in (PACKAGE / room).glob("*.py"))]
    files = [path for path in files if path.name != "mlflow_model.py"]  # MLflow installs what it names itself
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names = {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *(name for extra in extras for name in project["optional-dependencies"][extra])]
    declared = {re.split("[><=]", name)[0].replace("-", "_") for name in named}
    assert {"py3langid"} <= declared or "serve" not in extras
    unused = {"torchtext", "py3langid"}  # by what translates: they build a vocabulary, and name the language of a text
    assert names - {"transformer", *unused} <= declared


def test_the_public_names_can_be_imported_from_the_package():
    for name in transformer.__all__:
        assert getattr(transformer, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'transformer' has no attribute 'Translater'"):
        _ = transformer.Translater


@pytest.mark.full
def test_the_installed_package_translates_as_the_checkout_does(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv/bin/python")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (tmp_path / "versions.txt").write_text("\n".join(re.findall(r"(?m)^\S+==\S+", lock)), encoding="utf-8")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", "versions.txt"]
    subprocess.run([*install, str(ROOT)], check=True, cwd=tmp_path)
    add_export(model_folder(tmp_path / "model", spread=0.6), tmp_path / "model", "float32")  # torch is not installed
    (tmp_path / "source.de").write_text("\n".join(TEXT), encoding="utf-8")
    expected = "\n".join(Translator.load(tmp_path / "model").translate(TEXT)) + "\n"
    for words in (["-m", "transformer", "model", "--input", "source.de"], ["-c", PROGRAM]):
        done = subprocess.run([python, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout == expected, done.stderr
