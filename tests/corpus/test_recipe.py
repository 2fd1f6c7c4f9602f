"""The recipe for a text of one's own: chosen by its size, complete, with a reason for each knob."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.projects import own_corpus, pipeline_command
from support.tiny import ROOT

from pipeline.corpus.recipe import ALWAYS, KNOBS, LENGTHS, SIZES, Look, choice, describe_start, recipe, subwords
from pipeline.workflow.params import Params


def look(pairs: int, length: int = 20, kept: int = 0) -> Look:
    """A text of lines of equal lengths."""
    return Look(pairs, [pairs * 5, pairs * 5], ({"a"}, {"b"}), [length] * min(pairs, 100), kept, kept)


@pytest.mark.parametrize("column", range(3))
def test_each_size_of_text_has_a_recipe_that_params_accepts(column):
    size = [*SIZES, 5_000_000][column]
    knobs = choice(look(size))
    params = Params.parse(recipe((ROOT / "recipes/toy.yaml").read_text(), knobs, "# head"), "params.yaml")
    assert {name: getattr(params, name) for name in KNOBS} == {name: row[0][column] for name, row in KNOBS.items()}
    assert {name: getattr(params, name) for name in ALWAYS} == {name: value for name, (value, _) in ALWAYS.items()}
    assert (params.max_length, params.placeholders) == (100, False)


def test_length_and_placeholders_are_those_of_the_text():
    assert [choice(look(5_000, length))["max_length"][0] for length in (99, 101, 999)] == [*LENGTHS]
    assert [choice(look(100, kept=kept))["placeholders"][0] for kept in (0, 1)] == [False, True]
    for target, expected in (("a {x}", True), ("a", False)):
        text = Look(pairs=1)
        text.add("{x} a", target)
        assert choice(text)["placeholders"][0] == expected
        assert choice(text)["lowercase_source"][0] != expected
    assert [subwords(line) for line in ("", "a b", "Donaudampfschiff", "漢字ab")] == [0, 2, 4, 2]


def test_a_recipe_is_written_with_reasons_and_replaces_no_edits(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_corpus(tmp_path / "own")
    words = ("recipe", "own", "--source", "de", "--target", "en")
    (tmp_path / "params.yaml").write_bytes((ROOT / "recipes/multi30k.yaml").read_bytes())
    printed = pipeline_command(tmp_path, capsys, *words)
    assert printed.startswith("12 valid pairs\n12 test pairs\n")
    assert re.search(r"\n150 training pairs, 1\d\d different, \d+ sources with several targets: de .*\n$", printed)
    assert "150 pairs are too few, fewer than 1,000" in printed
    text = (tmp_path / "params.yaml").read_text()
    params = Params.load(tmp_path / "params.yaml")
    assert (params.corpus, params.bpe_merges) == ("own", 2_000)
    for name, (values, why) in KNOBS.items():
        changed = re.search(rf"^# (.*)\n{name}: .* # \(toy: .*\) ", text, re.MULTILINE)
        assert (changed[1] == why) if changed else getattr(params, name) == values[0]
    assert pipeline_command(tmp_path, capsys, *words) == printed
    assert (tmp_path / "params.yaml").read_text() == text
    (tmp_path / "params.yaml").write_text(text.replace("seed: 1", "seed: 2"))
    assert "params.yaml has edits" in pipeline_command(tmp_path, capsys, *words, error=True)
    assert pipeline_command(tmp_path, capsys, *words, "--force") == printed
    assert (tmp_path / "params.yaml").read_text() == text
    for side in ("de", "en"):
        (tmp_path / f"own/train.{side}").write_bytes(b"")
    assert "own has no pairs in train. The train set needs" in pipeline_command(
        tmp_path, capsys, *words, "--force", error=True
    )


def test_a_model_to_start_from_that_does_not_fit_is_named(tmp_path: Path):
    params = Params.load(ROOT / "params.yaml")
    sizes = {name: getattr(params, name) for name in ("d_model", "d_ff", "heads", "layers")}
    model = {"format": 1, "source": "de", "target": "fr", "lowercase": False, "lowercase_source": False, "sizes": sizes}
    for change, reason in (
        ({"placeholders": params.placeholders}, ""),
        (
            {"placeholders": params.placeholders, "sizes": sizes | {"layers": 9}},
            f"it has layers=9, not {params.layers}.",
        ),
        ({"placeholders": not params.placeholders, "source": "it"}, "it and fr, neither of your languages"),
    ):
        (tmp_path / "model.json").write_text(json.dumps(model | change))
        text = describe_start(params.model_copy(update={"init_from": str(tmp_path)}))
        assert bool(text) == bool(reason)
        assert reason in text
    assert describe_start(params) == ""


def test_text_with_u200b_between_words_keeps_it():
    for words, expected in (("ឆ្កែ\u200bរត់", "none"), ("ឆ្កែ រត់", "nfc")):
        look = Look()
        for _ in range(9):
            look.add(words, "a dog")
        assert choice(look).get("normalise", ("nfc",))[0] == expected


@pytest.mark.parametrize("name", ["'q'", "x #y", "123", "null", "a: b", "- x", "*star", "a\nb", "müll"])
def test_a_recipe_names_any_folder(name):
    knobs = {"corpus": (name, "")}
    text = recipe((ROOT / "recipes/toy.yaml").read_text(), knobs, "# head")
    assert Params.parse(text, "params.yaml").corpus == name
