"""The translator in the walkthrough's page computes what the page's Python computes with the same rounded weights."""

from __future__ import annotations

import json
from base64 import b64decode
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.browsers import opened_window
from support.tiny import ROOT

from docs.make import html_page, walkthrough

STORED = json.loads((ROOT / html_page.WEIGHTS).read_text(encoding="utf-8"))
PAGE = ROOT / walkthrough.PAGE
SEARCH = """([lines, beams, early]) => lines.map((line) =>
    beam_search(model_logs(ids_of(line)), 60, beams, 0.6, early).hypotheses.map(
        ({ score, log, ids }) => [score, log, text_of(ids)]))"""


@pytest.fixture(scope="module")
def plain() -> Any:
    """What the page's Python defines, in float64, its translator with the rounded weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        torch.set_default_dtype(torch.float64)
        names = SimpleNamespace(**walkthrough.names_of(walkthrough.source()))
        weights = names.translator.state_dict()
        for name, part in STORED["weights"].items():
            steps = np.frombuffer(b64decode(part["int8"]), dtype=np.int8).reshape(len(part["scales"]), -1)
            weights[name] = torch.tensor(steps * np.array(part["scales"])[:, None]).view_as(weights[name])
        names.translator.load_state_dict(weights)
        yield names
        torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def tab(browser) -> Any:
    """The page in git."""
    with opened_window(browser) as window:
        window.page.goto(PAGE.as_uri())
        yield window.page
        assert window.console == []


def test_the_stored_weights_are_of_the_pages_model_and_subwords(plain):
    assert set(STORED["weights"]) == set(plain.translator.state_dict())
    assert STORED["subwords"] == plain.subwords
    assert [tuple(pair) for pair in STORED["merges"]] == plain.merges
    assert {name: STORED[name] for name in plain.SIZES} == plain.SIZES


def test_text_has_the_subwords_of_python(plain, tab):
    lines = [german for german, _ in plain.text[:300]] + [
        "",
        " Öl,\u00a0Birnenbrot  (3½ Äpfel)!? 'x_y' ▁",
        "Straße\t東京 e\u0301",
    ]
    assert tab.evaluate("lines => lines.map(ids_of)", lines) == [plain.ids_of(line) for line in lines]


def test_scores_are_those_of_torch(plain, tab):
    for source, target in plain.valid[:20]:
        read, given, _ = plain.make_batch([(source, target)])
        with torch.no_grad():
            expected = plain.translator.eval()(read, given)[0]
        scores = tab.evaluate(
            "([source, target]) => decode(target, encode(source))", [read[0].tolist(), given[0].tolist()]
        )
        torch.testing.assert_close(torch.tensor(scores), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("beams", "early"), [(1, False), (4, False), (4, True)])
def test_100_answers_are_those_of_torch(plain, tab, beams, early):
    lines = [german for german, _ in plain.valid_text]
    answers = tab.evaluate(SEARCH, [lines, beams, early])
    for line, hypotheses in zip(lines, answers, strict=True):
        expected = plain.beam_search(plain.model_logs(plain.translator, plain.ids_of(line)), 60, beams, early=early)
        assert [text for _, _, text in hypotheses] == [plain.text_of(ids) for _, _, ids in expected]
        numbers = [(score, log) for score, log, _ in hypotheses]
        np.testing.assert_allclose(numbers, [(score, log) for score, log, _ in expected], rtol=0, atol=1e-4)
    right = sum(found[0][2] == english for found, (_, english) in zip(answers, plain.valid_text, strict=True))
    assert right >= 97 - 10 * early


def test_another_sentence_is_one_that_the_early_rule_loses(tab):
    best, early = (tab.evaluate(SEARCH, [[STORED["examples"][1]], 4, early])[0][0] for early in (False, True))
    assert best[2] == "Today the woman does not bring along the old nut cake."
    assert early[1] < best[1]
    assert early[2] != best[2]


def test_typing_pointing_and_arrow_keys_change_what_is_shown(tab):
    tab.locator("#sentence").fill("Der Mann will das Nussbrot wegwerfen.")
    tab.get_by_text("The man wants to throw away the nut bread.").first.wait_for()
    tab.locator("#large rect[data-place='1,0,2,1']").hover()
    tab.get_by_text("Layer 2, head 1: “man”, which writes “wants”, looks at “Mann”").wait_for()
    tab.locator("#maps svg").nth(2).focus()
    tab.keyboard.press("ArrowDown")
    tab.get_by_text("Layer 1, head 3: “wants”, which writes “to”, looks at “Mann”").wait_for()
    tab.get_by_text("13 of 13. 4 have ended").wait_for()
    tab.locator("#step").press("Home")
    tab.get_by_text("1 of 13. 0 have ended").wait_for()


@pytest.mark.skipif(any(find_spec(name) is None for name in walkthrough.PACKAGES), reason="make docs-setup")
def test_the_page_in_git_is_what_markdown_and_weights_give(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = walkthrough.MARKDOWN.read_text(encoding="utf-8")
    given = html_page.page(text)
    assert given == PAGE.read_text(encoding="utf-8"), "run `python -m pipeline walkthrough --prose`"
