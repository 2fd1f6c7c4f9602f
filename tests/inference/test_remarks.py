"""What may be wrong with a translation is named, and nothing is said of a plain one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from transformer.inference.remarks import RemarkCounts, SeenWords, is_repeated, remarks
from transformer.inference.translation import SentencePair, Translation
from transformer.text.words import Side

SOURCE, TRANSLATION = "Ein alter Mann sitzt mit seinem Hund im Park .", "An old man sits in the park with his dog ."


@pytest.mark.parametrize(
    ("source", "translation", "lengths", "unseen", "kinds"),
    [
        (SOURCE, TRANSLATION, (11, 12), [], []),
        (SOURCE, "An old man", (11, 40), [], ["limit"]),
        (SOURCE, "the the the dog", (11, 8), [], ["repeated"]),
        (SOURCE, "in the park, in the park, in the park", (11, 12), [], ["repeated"]),
        ("sehr sehr sehr gut", "very very very good", (4, 4), [], []),
        (SOURCE, "", (11, 0), [], ["empty"]),
        ("...", "", (1, 0), [], []),
        ("", "", (0, 0), [], []),
        (SOURCE, "dog", (11, 2), [], ["short"]),
        ("Hund", "the dog of the house that he had", (1, 14), [], ["long"]),
        ("Hund", "a dog", (1, 13), [], []),
        (SOURCE, f" {SOURCE}", (11, 11), [], ["copied"]),
        ("Berlin", "Berlin", (1, 1), [], []),
        ("1 2 3", "1 2 3", (3, 3), [], []),
        (SOURCE, TRANSLATION, (11, 12), ["Park"], ["unseen"]),
    ],
)
def test_a_remark_names_what_may_be_wrong(source, translation, lengths, unseen, kinds):
    assert remarks(source, translation, lengths, 40, unseen) == kinds


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_words_that_occur_three_times_in_a_row_are_repeated(size):
    words = ["a", "b", "c", "d"][:size]
    assert is_repeated(" ".join(["x", *words, *words, *words, "y"]))
    assert not is_repeated(" ".join(["x", *words, *words, *words[:-1], "y"]))


def test_a_word_is_unseen_in_no_case_and_form_of_train(tmp_path: Path):
    path = tmp_path / "words.txt"
    path.write_text("hund\nim\ngras\n", encoding="utf-8")
    seen = SeenWords(path, Side("de", lowercase=False))
    assert seen.unseen("Hund HUND Im Gras. 12 Katzen-Gras, Katzen!") == ["Katzen-Gras", "Katzen"]
    assert SeenWords(tmp_path / "none.txt", seen.side).unseen("Katzen") == []
    path.write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match=r"words\.txt is damaged \(not UTF-8\)"):
        SeenWords(path, seen.side).unseen("Katzen")


def test_a_lost_placeholder_is_named():
    translation = Translation("The file.", 0.0, 0.0, ("The", "file", "."))
    counts = RemarkCounts(lambda lines: [line.split() for line in lines], SeenWords(None, Side("de", False)), 50)
    counts.add(1, [SentencePair("Datei {name} .", replace(translation, text="File {name}."))])
    assert counts.counts["lost"] == 0
    counts.add(2, [SentencePair("Datei {name} .", translation)])
    assert counts.counts["lost"] == 1


def test_counts_have_the_first_lines_and_words_and_no_more(tmp_path: Path):
    (tmp_path / "words.txt").write_text("hund\n", encoding="utf-8")
    seen = SeenWords(tmp_path / "words.txt", Side("de", lowercase=False))
    counts = RemarkCounts(lambda lines: [line.split() for line in lines], seen, extra_length=5)
    assert counts.describe() == []
    for number in range(1, 21):
        fine = SentencePair("Hund", Translation("dog", 0.0, 0.0, ("dog",)))
        cut = SentencePair(f"Katze{chr(96 + number)}", Translation("x", 0.0, 0.0, ("x",) * 6))
        counts.add(number, [fine, cut, cut] if number % 2 else [fine])
    counts.add(21, [SentencePair("Hund", Translation("", 0.0, 0.0, ()))])
    assert counts.describe() == [
        "cut at the length limit: 10 lines: 1, 3, 5, 7, 9, 11, 13, 15, ...",
        "empty: line 21",
        "made from words that the training text lacks (Katzea, Katzec, Katzee, Katzeg, Katzei, Katzek, Katzem, "
        "Katzeo): 10 lines: 1, 3, 5, 7, 9, 11, 13, 15, ...",
    ]
    assert counts.contents()["lines"]["unseen"] == 10
