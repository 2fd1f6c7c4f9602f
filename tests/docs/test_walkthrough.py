"""The walkthrough is made of its text, the package's code and stored numbers; its program is the package's model.

`make test-all` opens the page in a browser.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
import subprocess
import sys
import textwrap
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from support.browsers import chromium
from support.tiny import ROOT

from docs.make import html_page, program, trainings, walkthrough
from docs.make.figures import figures
from transformer.decoding import cached_decoder
from transformer.model import transformer
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.bpe import Merges, learn_merges
from transformer.text.pairs import Pairs
from transformer.training import loss, optimiser
from transformer.training.config import TrainConfig
from transformer.training.optimiser import Muon
from transformer.training.train_step import Trainer, seed_everything

TEXT = (ROOT / walkthrough.MARKDOWN).read_text(encoding="utf-8")
UPDATES = 12  # of the program, in the place of those of the page

needs_packages = pytest.mark.skipif(
    any(find_spec(name) is None for name in walkthrough.PACKAGES), reason="the packages of the page: make docs-setup"
)


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def without_docstrings(code: str) -> ast.Module:
    """The syntax tree of code whose docstrings have single spaces."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body[0] = ast.Expr(ast.Constant(" ".join((ast.get_docstring(node) or "").split())))
    return tree


def test_the_page_in_git_is_its_text_with_todays_code_and_numbers():
    assert walkthrough.markdown() == TEXT, "run `make walkthrough`"
    pictures = figures(walkthrough.measured(), walkthrough.recorded())
    assert {path.stem for path in walkthrough.IMAGES.iterdir()} == set(pictures)
    for name, picture in pictures.items():
        assert (walkthrough.IMAGES / f"{name}.svg").read_text(encoding="utf-8") == picture, name


def test_a_block_under_a_path_is_the_code_of_that_file():
    """Without the page's own functions: each definition of such a block is read from its module by inspect."""
    shown = re.findall(r"^\[`(transformer/[\w/]+)\.py`\]\(\S+\)\n\n```python\n(.*?)^```$", TEXT, re.M | re.S)
    assert len(shown) > 30
    for path, code in shown:
        module = import_module(path.replace("/", "."))
        for node in without_docstrings(code).body:
            owner = module if hasattr(module, node.name) else module.Trainer  # two methods are shown alone
            thing = inspect.getsource(inspect.unwrap(inspect.getattr_static(owner, node.name)))
            (real,) = without_docstrings(textwrap.dedent(thing)).body
            if isinstance(node, ast.ClassDef):  # methods may be left out, and no other part
                names = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                real.body = [part for part in real.body if not isinstance(part, ast.FunctionDef) or part.name in names]
            assert ast.dump(node) == ast.dump(real), f"{path}: {node.name}"


def test_each_class_and_function_is_there_once_but_for_its_fast_form():
    names = Counter(node.name for node in ast.parse(walkthrough.program_text(TEXT)).body if hasattr(node, "name"))
    assert [name for name, count in names.items() if count > 1] == []
    model = {
        "Attention",
        "DecoderLayer",
        "EncoderLayer",
        "FeedForward",
        "Residual",
        "LayerNorm",
        "Transformer",
        "Linear",
    }
    assert model | {"sinusoids", "make_batch", "learn_pairs", "beam_search", "_SmoothedCrossEntropy"} <= set(names)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The namespace of the program, run with UPDATES updates."""
    return program.run_blocks(program.changed(TEXT, (("= 1, 300, 1024, 512", f"= 1, {UPDATES}, 1024, 512"),)))[0]


def test_the_program_defines_each_name_that_it_uses_and_imports_no_other():
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F401,F811,F821", "-"]
    done = subprocess.run(command, input=walkthrough.program_text(TEXT), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_blocks_in_order_train_as_the_package_does(names):
    chance, question = random.Random(2017), list(range(4, 14))
    lines = [[chance.randint(4, 13) for _ in range(10)] for _ in range(2000)]
    pairs = Pairs.pack([(line, line) for line in lines if line != question])
    seed_everything(1)
    model = Transformer(TransformerConfig(vocabulary=14, d_model=64, d_ff=128, heads=4, layers=2, dropout=0.0))
    knobs = {"batch_tokens": 1024, "device_tokens": 512, "warmup": 100, "precision": "float64"}
    trainer = Trainer(model.double(), pairs, pairs, config=TrainConfig(**knobs))
    updates = [trainer.update(step) for step in range(1, UPDATES + 1)]
    losses = [float(update.loss) / update.tokens for update in updates]
    assert names["losses"] == pytest.approx(losses, rel=1e-12)


def test_the_plain_step_of_muon_is_the_packages(names):
    torch.manual_seed(1)
    matrix = torch.randn(6, 4, dtype=torch.float64)
    weight, momentum = matrix.clone(), torch.zeros_like(matrix)
    muon = Muon([(matrix, (6,))], torch.float64)
    for _ in range(3):
        matrix.grad = torch.randn_like(matrix)
        muon.step(0.1)
        names["muon_step"](weight, matrix.grad, momentum, 0.1)
    assert torch.allclose(weight, matrix, rtol=1e-12)


@pytest.mark.parametrize("corpus", ["built-in", {"aaab": 5, "aab": 3}, {"ab": 1, "cd": 1}, {"low": 5}])
def test_the_loop_of_byte_pairs_learns_and_applies_the_merges_of_subword_nmt(names, corpus):
    words = trainings.corpus().counts if corpus == "built-in" else corpus
    codes = learn_merges(Counter(words), 60)
    learned = [tuple(line.split()) for line in codes.rstrip("\n").split("\n")[1:]]
    merges = names["learn_pairs"](words, 60)
    assert merges == learned
    for word in [*words, "zzaab", "lowest"] if merges else ():
        assert [piece.removesuffix("</w>") for piece in names["cut"](word, merges)] == [
            piece.removesuffix("@@") for piece in Merges(codes).subwords([word])
        ]


def test_the_constants_of_the_page_are_the_packages(names):
    modules = {"ROWS": transformer, "BLOCK": cached_decoder, "SCORES_AT_ONCE": cached_decoder, "TOKEN_MULTIPLE": loss}
    for name, module in {**modules, "MOMENTUM": optimiser, "A": optimiser, "B": optimiser, "C": optimiser}.items():
        assert names[name] == getattr(module, name), name
    assert (names["PAD"], names["UNK"], names["BOS"], names["EOS"]) == (0, 1, 2, 3)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The page of one file."""
    path = tmp_path_factory.mktemp("page") / "walkthrough.html"
    pictures = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / walkthrough.IMAGES).iterdir()}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        path.write_text(html_page.page(TEXT, pictures, path), encoding="utf-8")
    return path


@needs_packages
def test_each_link_of_the_page_leads_to_a_file_or_a_heading(page):
    html = page.read_text(encoding="utf-8")
    links = re.findall(r'href="([^"]+)"', html)
    local = [link for link in links if not re.match(r"https?:", link)]
    assert len(local) > 60
    for link in local:
        path, _, anchor = link.partition("#")
        assert (page.parent / path).exists() if path else f'id="{anchor}"' in html, link


@pytest.mark.full
@needs_packages
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_the_page_makes_no_request_and_cuts_nothing_off(page, width):
    with chromium() as browser:
        tab = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if width > 800 else "light"
        )
        requests, errors = [], []
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("console", lambda message: errors.append(message.text))
        tab.goto(page.as_uri())
        assert [url for url in requests if not url.startswith("data:")] == [page.as_uri()]
        assert errors == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.locator("math").count() > 20
        hidden = (
            "[...document.querySelectorAll('math[display=block]')].filter(m => m.scrollHeight > m.clientHeight + 1)"
        )
        assert tab.evaluate(f"{hidden}.length") == 0
        wide = "[...document.querySelectorAll('pre')].filter(pre => pre.scrollWidth > pre.clientWidth).length"
        assert width < 1280 or tab.evaluate(wide) == 0
