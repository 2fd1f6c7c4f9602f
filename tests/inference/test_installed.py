"""The package in an empty environment, away from the checkout, translates from the command line and from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny import ROOT, TEXT, model_folder

from transformer import Translator

PROGRAM = """
from transformer import Translator
print(*Translator.load("model").translate(open("source.de", encoding="utf-8").read().split("\\n")), sep="\\n")
"""


@pytest.mark.full
def test_the_installed_package_translates_as_the_checkout_does(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv/bin/python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--constraint", str(ROOT / "requirements.lock"), str(ROOT)], check=True, cwd=tmp_path)
    model_folder(tmp_path / "model", spread=0.6)
    (tmp_path / "source.de").write_text("\n".join(TEXT), encoding="utf-8")
    wanted = "\n".join(Translator.load(tmp_path / "model").translate(TEXT)) + "\n"
    for words in (["-m", "transformer", "model", "--input", "source.de"], ["-c", PROGRAM]):
        done = subprocess.run([python, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout == wanted, done.stderr
