"""What frames a text stays around its translation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.text.frames import frame

FRAMED = [
    ("- ", "Ein Hund", ""),
    ("  – ", "Ein Hund.", ""),
    ("3) ", "Ein Hund", ""),
    ("(a) ", "Ein Hund", ""),
    ("„", "Ein Hund.", "“"),
    ("( ", "Ein Hund", " )"),
    ("* <b>»", "Ein Hund", "«</b>"),
    ("「", "はい。", "」"),
    ("★ 👩‍🚒 ", "Ein Hund", ""),
    ("—", "Ein Hund", ""),
    ("[12:30] (24.12.2026) 1.) ", "Ein Hund", ""),
    ("((„", "Ein Hund", "“));"),
]
PLAIN = [
    "3. Mai",
    "-5 Grad",
    "-los",
    "((a) b)",
    "§ 5 gilt",
    '"Ja" und "nein"',
    "'It's'",
    "(x und (b)",
    "<b>a</b> <b>b</b>",
    "{name}",
    "„",
    "",
]


@pytest.mark.parametrize("parts", FRAMED)
def test_bullets_tags_quotes_and_brackets_are_frames(parts):
    assert frame("".join(parts)) == parts


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_part_of_a_sentence_is_no_frame(text):
    assert frame(text) == ("", text, "")


@given(st.text(alphabet="ab 3)(„“\"'-–<>/.\n", max_size=20))
def test_a_frame_and_its_text_are_the_whole(text):
    assert frame(text).text == text
