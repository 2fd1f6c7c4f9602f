"""Tables and pictures of the pages are what measurements and dvc.yaml say."""

from __future__ import annotations

from pages import read
from support.tiny import ROOT

from docs.make.pictures import diagram
from docs.make.tables import pages


def test_the_tables_of_the_pages_are_up_to_date():
    for path, text in pages(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m pipeline docs`"


def test_the_picture_of_the_stages_is_drawn_from_dvc_yaml():
    assert read("docs/images/pipeline.svg") == diagram(read("dvc.yaml")), "run `python -m pipeline pictures pipeline`"
