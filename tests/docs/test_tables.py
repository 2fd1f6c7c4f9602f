"""Tables and pictures of the pages are what metrics, params.yaml, dvc.yaml and the rooms say."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from pages import read
from support.tiny import ROOT

from docs.make.pictures import diagram
from docs.make.tables import filled, meaning, pages, params


def test_the_tables_of_the_pages_are_up_to_date():
    for path, text in pages(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m pipeline docs`"


def test_every_knob_is_explained_with_its_value_in_the_toy_recipe():
    table = params(ROOT)
    for line in read("params.yaml").split("\n"):
        if found := re.match(r"(\w+): (\S+) +# ", line):
            assert "| `{}` | `{}` | ".format(*found.groups()) in table


def test_the_meaning_of_a_knob_shows_tags_as_code():
    assert meaning("with </s>, at most keep_all of {train,valid}.{a}") == (
        "with `</s>`, at most `keep_all` of `{train,valid}.{a}`"
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """What `python -m pipeline docs` reads, in another folder."""
    for name in (
        "README.md",
        "Makefile",
        "params.yaml",
        "docs/params.md",
        "docs/results.md",
        "recipes/results.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def changed(folder: Path) -> set[str]:
    """The pages that `python -m pipeline docs` would change."""
    made = pages(folder)
    return {path.relative_to(folder).as_posix() for path in made if path.read_text(encoding="utf-8") != made[path]}


def test_a_changed_score_or_knob_makes_the_pages_stale(copied):
    assert changed(copied) == set()
    results = json.loads((copied / "recipes/results.json").read_text())
    results[0]["scores"]["bleu"] = 12.3456
    (copied / "recipes/results.json").write_text(json.dumps(results))
    assert changed(copied) == {"README.md"}
    knobs = read("params.yaml").replace("# updates\n", "# updates of the model\n")
    (copied / "params.yaml").write_text(knobs)
    assert changed(copied) == {"README.md", "docs/params.md"}


def test_a_page_without_a_place_for_its_table_is_named():
    with pytest.raises(ValueError, match=r"README.md: the lines .* are missing; git checkout README.md"):
        filled("no place for it", "results", "", "README.md")


def test_the_picture_of_the_stages_is_drawn_from_dvc_yaml():
    assert read("docs/images/pipeline.svg") == diagram(read("dvc.yaml")), "run `python -m pipeline pictures pipeline`"


def test_the_picture_of_the_stages_has_each_stage_with_what_it_writes():
    drawn = diagram("stages: {one: {desc: a < b, cmd: x, outs: [data/a], metrics: [m.json: {cache: false}]}}")
    assert ">one</text>" in drawn
    assert ">a &lt; b</text>" in drawn
    assert ">writes data/a, m.json</text>" in drawn


def test_the_readme_is_read_in_two_minutes():
    assert read("README.md").count("\n") <= 140
