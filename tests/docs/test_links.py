"""Every relative link of the pages leads to a file that is there, every anchor to a heading."""

from __future__ import annotations

import pytest
from pages import NAMES, anchors, folder_of, links, read
from support.tiny import ROOT

LINKED = [*NAMES, "CHANGELOG.md", "benchmarks/README.md"]


def broken(name: str, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = (folder_of(name) / path).resolve() if path else ROOT / name
        if "://" in link:
            continue
        missing = not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8")))
        if missing or not target.is_relative_to(ROOT):
            found.append(link)
    return found


@pytest.mark.parametrize("name", LINKED)
def test_every_relative_link_leads_to_a_file_and_every_anchor_to_a_heading(name):
    assert broken(name, read(name)) == []


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            here = [link.partition("#")[0] for link in links(read(name)) if "://" not in link]
            paths = [(folder_of(name) / link).resolve() for link in here if link.endswith(".md")]
            waiting += [path.relative_to(ROOT).as_posix() for path in paths if path.exists()]
    assert set(LINKED) <= reached
