"""Tables and pictures of the pages are what metrics, params.yaml, dvc.yaml and the rooms say."""

from __future__ import annotations

import re

from pages import read
from support.tiny import ROOT

from docs.make.pictures import diagram
from docs.make.tables import pages, params


def test_the_tables_of_the_pages_are_up_to_date():
    for path, text in pages(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m pipeline docs`"


def test_every_knob_is_explained_with_its_value_in_the_toy_recipe():
    table = params(ROOT)
    for line in read("params.yaml").split("\n"):
        if found := re.match(r"(\w+): (\S+) +# ", line):
            assert "| `{}` | `{}` | ".format(*found.groups()) in table


def test_the_picture_of_the_stages_is_drawn_from_dvc_yaml():
    assert read("docs/images/pipeline.svg") == diagram(read("dvc.yaml")), "run `python -m pipeline pictures pipeline`"
