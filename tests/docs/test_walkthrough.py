"""The walkthrough's plain classes, losses and searches are the package's, to twelve digits; its files have one source.

`make test-all` opens the page in a browser.
"""

from __future__ import annotations

import json
import re
import subprocess
import symtable
import sys
from collections import Counter
from contextlib import chdir
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.browsers import opened_window
from support.tiny import ROOT
from torch.testing import assert_close

from docs.make import walkthrough
from transformer.decoding.beam_search import beam_search
from transformer.model import transformer
from transformer.model.attention import Attention
from transformer.model.config import TransformerConfig
from transformer.text.bpe import Merges, learn_merges
from transformer.text.pairs import Pairs
from transformer.training.batches import global_batches
from transformer.training.config import TrainConfig
from transformer.training.train_step import Trainer

with chdir(ROOT):
    SOURCE = walkthrough.source()
TEXT = (ROOT / walkthrough.MARKDOWN).read_text(encoding="utf-8")
CELLS = walkthrough.cells_of(SOURCE)
CODE = [text.strip("\n") for kind, text in CELLS if "markdown" not in kind]
PAGE = ROOT / walkthrough.PAGE
NOTEBOOK = json.loads((ROOT / walkthrough.NOTEBOOK).read_text(encoding="utf-8"))
SIZES = {"D": 16, "F": 24, "H": 4, "N": 2, "dropout": 0.0}
EXACT = {"rtol": 1e-12, "atol": 1e-12}

needs_packages = pytest.mark.skipif(
    any(find_spec(name) is None for name in walkthrough.PACKAGES), reason="the packages of the page: make docs-setup"
)


@pytest.fixture(autouse=True)
def in_the_project_in_float64(monkeypatch):
    monkeypatch.chdir(ROOT)
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def plain() -> SimpleNamespace:
    """What the page defines, run in float64 without the cells that train the translator and later models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        torch.set_default_dtype(torch.float64)
        return SimpleNamespace(**walkthrough.names_of(SOURCE))


@torch.no_grad()
def fill(package, plain) -> None:
    """Copy the weights of a plain part to the package's part."""
    if isinstance(package, Attention):
        projections = plain.query, plain.key, plain.value
        package.project.weight.copy_(torch.cat([part.weight for part in projections]))
        package.project.bias.copy_(torch.cat([part.bias for part in projections]))
        package.output.load_state_dict(plain.output.state_dict())
    elif isinstance(package, transformer.FeedForward):
        package.load_state_dict(plain.state_dict())
    elif isinstance(package, transformer.LayerNorm):
        package.load_state_dict({"weight": plain.scale, "bias": plain.shift})
    elif isinstance(package, transformer.Residual):
        fill(package.norm, plain.norm)
    elif isinstance(package, transformer.EncoderLayer | transformer.DecoderLayer):
        for name, part in package.named_children():
            fill(part, getattr(plain, name))
    elif isinstance(package, torch.nn.ModuleList):
        for ours, theirs in zip(package, plain, strict=True):
            fill(ours, theirs)
    elif isinstance(package, transformer.Transformer):
        package.source_embedding.weight.copy_(plain.embedding.table)
        fill(package.encoder, plain.encoder)
        fill(package.decoder, plain.decoder)
        for ours, theirs in zip((package.encoder_norm, package.decoder_norm), plain.norms, strict=True):
            fill(ours, theirs)
    else:
        assert isinstance(package, torch.nn.Identity)


def both_models(plain, pre: bool = False, seed: int = 1):
    """A plain model and the package's with the same weights."""
    torch.manual_seed(seed)
    ours = plain.Transformer(14, pre=pre, **SIZES)
    for weight in ours.parameters():  # biases and norms are no constants
        weight.data += 0.1 * torch.randn_like(weight)
    config = TransformerConfig(14, 128, 16, 24, 4, layers=2, dropout=0.0, norm="pre" if pre else "post")
    package = transformer.Transformer(config).double()
    fill(package, ours)
    return ours.eval(), package.eval()


@pytest.mark.parametrize("pre", [False, True])
def test_the_whole_model_is_the_packages(plain, pre):
    ours, package = both_models(plain, pre)
    source, target, _ = plain.make_batch([([4, 5, 6], [7, 8]), ([9], [4, 5, 6, 7])])
    assert_close(ours(source, target), package.predict(source, target), **EXACT)


@pytest.mark.parametrize("tokens", [1, 20, 300])
def test_batches_are_the_packages(plain, tokens):
    chance = np.random.default_rng(1)
    pairs = [([4] * int(a), [5] * int(b)) for a, b in chance.integers(1, 30, (200, 2))]
    expected = global_batches(Pairs.pack(pairs), 3, 2, tokens)
    assert plain.token_batches(pairs, tokens, 3, 2) == [rows.tolist() for rows in expected]


def test_training_makes_the_losses_of_the_packages_trainer(plain):
    pairs, (ours, package) = plain.copy_pairs(300), both_models(plain)

    def rate(step: int) -> float:
        return plain.learning_rate(step, D=16, warmup=10) / 2

    losses = [loss for _, loss in plain.training(ours, pairs, 12, tokens=512, rate=rate)]
    knobs = {"batch_tokens": 512, "device_tokens": 512, "warmup": 10, "lr_factor": 0.5, "precision": "float64"}
    packed = Pairs.pack([(tuple(source), tuple(target)) for source, target in pairs])
    trainer = Trainer(package, packed, packed, config=TrainConfig(**knobs))
    updates = [trainer.update(step) for step in range(1, 13)]
    assert losses == pytest.approx([float(one.loss) / one.tokens for one in updates], rel=1e-10)
    assert losses[:2] == pytest.approx([float(one.loss) / one.tokens for one in updates[:2]], rel=1e-12)


def test_gradients_of_parts_add_up_to_those_of_the_batch(plain):
    pairs, (ours, _) = plain.copy_pairs(9), both_models(plain)
    pairs = [(source[: 2 + i], target[: 3 + i]) for i, (source, target) in enumerate(pairs)]
    whole = plain.gradients(ours, [plain.make_batch(pairs)])
    parts = plain.gradients(ours, [plain.make_batch(pairs[:2]), plain.make_batch(pairs[2:])])
    assert_close(parts, whole, **EXACT)


@pytest.mark.parametrize("limit", [3, 12])
@pytest.mark.parametrize("beams", [1, 2, 5])
def test_searches_find_the_packages_hypotheses(plain, beams, limit):
    for seed in range(4):
        ours, package = both_models(plain, seed=seed)
        source = [4, 9, 6, 11][: seed + 1]
        found = plain.beam_search(plain.model_logs(ours, source), limit, beams, alpha=0.6)
        ids, limits = torch.tensor([[*source, 3]]), torch.tensor([limit])
        (expected,) = beam_search([package], ids, limits, beam_size=beams, length_penalty=0.6)
        assert [ids for _, _, ids in found] == [list(one.ids) for one in expected]
        scores = [(score, log) for score, log, _ in found]
        assert_close(torch.tensor(scores), torch.tensor([(h.score, h.log_probability) for h in expected]), **EXACT)
        if beams == 1:
            assert plain.greedy(ours, [source], limit) == [found[0][2]]


def test_the_mean_of_checkpoints_is_their_mean(plain):
    first, second = ({"a": torch.arange(3.0) * factor} for factor in (1, 4))
    assert_close(plain.mean_weights([first, second])["a"], torch.arange(3.0) * 2.5, **EXACT)


@pytest.mark.parametrize("corpus", ["the page's", {"aaab": 5, "aab": 3}, {"ab": 1, "cd": 1}, {"low": 5}])
def test_byte_pairs_are_those_of_subword_nmt(plain, corpus):
    words = plain.counts if corpus == "the page's" else corpus
    codes = learn_merges(Counter(words), 60)
    learned = [tuple(line.split()) for line in codes.rstrip("\n").split("\n")[1:]]
    merges = plain.learn_merges(words, 60)
    assert merges == learned
    for word in [*words, "zzaab", "lowest"] if merges else ():
        pieces = [piece.removesuffix("@@") for piece in Merges(codes).subwords([word])]
        assert [piece.removesuffix("</w>") for piece in plain.cut(word, merges)] == pieces


def test_the_copy_task_learns_as_the_notebook_shows(plain):
    """In the precision of the page, within the spread that it names for other processors."""
    cell = outputs("copy_losses.append(loss)")
    printed = re.findall(r"^ *(\d+) (\d\.\d+)((?: \d+)*)$", cell, re.MULTILINE)
    assert len(printed) == 6
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(1)
    copier = plain.Transformer(C=14, D=32, F=64, H=4, N=1, dropout=0.0)
    training = plain.training(copier, plain.copy_pairs(4000), 300, tokens=704, rate=plain.copy_rate)
    losses = [loss for _, loss in training]
    for step, loss, _ in printed:
        assert losses[int(step) - 1] == pytest.approx(float(loss), rel=0.001 if step == "50" else 0.1)
    assert printed[-1][2].split() == [str(number) for number in range(4, 14)]


def outputs(code: str) -> str:
    """What the cell of the notebook with this code printed."""
    (cell,) = [cell for cell in NOTEBOOK["cells"] if code in "".join(cell["source"]) and cell["cell_type"] == "code"]
    return "".join(text for output in cell["outputs"] for text in output.get("text", []))


def test_the_notebook_is_what_the_source_gives_and_was_run():
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]) for cell in cells] == CODE, "run `make walkthrough`"
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]


def test_answers_are_folded_once_in_notebook_and_markdown():
    answers = [
        "".join(cell["source"])
        for cell in NOTEBOOK["cells"]
        if walkthrough.ANSWER in cell["metadata"].get("tags", []) and cell["cell_type"] == "markdown"
    ]
    assert [text.count("<details>") for text in answers] == [1] * TEXT.count("Answer, measured") == [1]


@needs_packages
def test_the_markdown_is_what_the_notebook_gives():
    notebook = walkthrough.read_source()
    walkthrough.keep_outputs(notebook)
    assert walkthrough.markdown(notebook) == TEXT, "run `python -m pipeline walkthrough --prose`"
    drawn = sorted(path.name for path in (ROOT / walkthrough.IMAGES).glob("chart-*.svg"))
    assert drawn == sorted(re.findall(r"chart-\d+\.svg", TEXT))


def test_code_is_narrow_and_formatted_and_needs_three_packages():
    command = "-m ruff format --isolated --line-length 72 --check docs/walkthrough.py"
    assert subprocess.run([sys.executable, *command.split()], capture_output=True).returncode == 0
    imported = {name.split(".")[0] for name in re.findall(r"^(?:import|from) ([\w.]+)", SOURCE, re.MULTILINE)}
    assert imported - sys.stdlib_module_names == {"altair", "numpy", "torch"}


def test_the_stored_measurements_are_those_that_the_page_names(plain):
    stored = json.loads((ROOT / walkthrough.MEASURED).read_text(encoding="utf-8"))
    assert set(stored["measured"]) == set(plain.EXPERIMENTS)
    assert all(len(seeds) == 3 for seeds in stored["measured"].values())


def test_a_drawing_with_too_few_names_is_refused(plain):
    with pytest.raises(ValueError, match="longer"):
        plain.heatmap({"weights": torch.eye(3)}, ["a", "b"])


def test_what_a_drawing_reads_is_bound_in_one_cell():
    bound, drawings = Counter[str](), set[str]()
    for code in CODE:
        top = symtable.symtable(code, "cell", "exec")
        names = {name.get_name() for name in top.get_symbols() if name.is_assigned()}
        bound.update(names)
        if re.search(r"(?<!def )\b(heatmap|curves|ranges)\(", code):
            drawings |= {name.get_name() for name in top.get_symbols() if name.is_referenced()}
    assert {name for name in drawings if bound[name] > 1} <= {"D", "step"}


def test_each_link_of_the_page_leads_to_a_file_or_a_heading():
    html = PAGE.read_text(encoding="utf-8")
    links = re.findall(r'href="([^"]+)"', html)
    local = [link for link in links if not re.match(r"https?:", link)]
    assert len(local) > 60
    for link in local:
        path, _, anchor = link.partition("#")
        assert (PAGE.parent / path).exists() if path else f'id="{anchor}"' in html, link


@pytest.mark.full
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_the_page_makes_no_request_and_cuts_nothing_off(browser, width):
    scheme = "dark" if width > 800 else "light"
    with opened_window(browser, viewport={"width": width, "height": 900}, color_scheme=scheme) as window:
        tab = window.page
        tab.goto(PAGE.as_uri())
        assert [url for url in window.asked if not url.startswith("data:")] == [PAGE.as_uri()]
        assert window.console == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.locator("math").count() > 20
        hidden = (
            "[...document.querySelectorAll('math[display=block]')].filter(m => m.scrollHeight > m.clientHeight + 1)"
        )
        assert tab.evaluate(f"{hidden}.length") == 0
        whole = "svg, pre:not(details pre)" if width > 400 else "svg"  # on a phone code scrolls
        wide = f"[...document.querySelectorAll('{whole}')].filter(one => one.scrollWidth > one.clientWidth).length"
        assert tab.evaluate(wide) == 0
