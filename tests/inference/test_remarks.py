"""What may be wrong with a translation is named, and nothing is said of a plain one."""

from __future__ import annotations

from pathlib import Path

import pytest

from transformer.inference.remarks import RemarkCounts, is_loop, remarks_on
from transformer.inference.translation import Remark, SentencePair, Translation, join_translations
from transformer.text.sentences import count_ends
from transformer.text.word_counts import SeenWords
from transformer.text.words import Side

SOURCE, TRANSLATION = "Ein alter Mann sitzt mit seinem Hund im Park .", "An old man sits in the park with his dog ."


def translation(text: str, subwords: tuple[str, ...] = (), *remarks: Remark) -> Translation:
    """A translation without scores."""
    return Translation(text, 0.0, 0.0, subwords, remarks)


@pytest.mark.parametrize(
    ("source", "text", "lengths", "kinds"),
    [
        (SOURCE, TRANSLATION, (11, 12), []),
        (SOURCE, "An old man", (11, 40), ["limit"]),
        (SOURCE, "", (11, 0), ["empty"]),
        ("...", "", (1, 0), []),
        ("", "", (0, 0), []),
        (SOURCE, "dog", (11, 2), ["short"]),
        ("Hund", "the dog of the house that he had", (1, 14), ["long"]),
        ("Hund", "a dog", (1, 13), []),
        (SOURCE, f" {SOURCE}", (11, 11), ["copied"]),
        ("Berlin", "Berlin", (1, 1), []),
        ("1 2 3", "1 2 3", (3, 3), []),
        ("Es ist 12:30.", "It is 12.30.", (5, 5), []),
        ("Es ist 12:30.", "It is 102:0.", (5, 5), ["digits"]),
        ("Zwei Hunde", "2 dogs", (2, 2), ["digits"]),
        ("1.000 m², 1,5 km", "1000 m2, 1,5 km", (5, 5), []),
        ("1 00 000 und ½", "1,00,000 and 1/2", (5, 5), ["digits"]),
        ("1,00,000 und 2½", "100 000 and 2 1/2", (5, 5), []),
        ("½ Hund", "half a dog", (2, 3), []),
        ("١٢ كلبا", "12 dogs", (2, 2), []),
        ("Komm! Punkt 1. Heute", "Come!", (5, 2), ["digits"]),
        ("Sein Hund. Da.", "His dog. There.", (5, 5), []),
        ("Er kam. Sie ging.", "He came.", (6, 3), ["ends"]),
        ("Τι κάνεις; Καλά.", "Fine.", (6, 3), ["ends"]),
        ("He came. She went.", "वह आया है. वह गई.", (6, 6), []),
        ("一只狗。它在跑。", "A dog.", (6, 3), ["ends"]),
        ("Datei %s und %d", "file %d and %s", (4, 4), ["lost"]),
        ("Datei %s", "file", (2, 1), ["lost"]),
    ],
)
def test_a_remark_names_what_may_be_wrong(source, text, lengths, kinds):
    assert [remark.kind for remark in remarks_on(source, translation(text), lengths, 40, count_ends(source))] == kinds


@pytest.mark.parametrize(
    ("subwords", "loop"),
    [
        ("▁the ▁the ▁the", True),
        ("▁a ▁b ▁c ▁d ▁a ▁b ▁c ▁d ▁a ▁b ▁c ▁d", True),
        ("▁a ▁b ▁c ▁d ▁a ▁b ▁c ▁d ▁a ▁b ▁c", False),
        ("▁我 们 我 们 我 们 我 们", True),
        ("▁a ▁b ▁c ▁d ▁e ▁f ▁g ▁h ▁i " * 3, True),
        (". . . . . .", True),
        ("▁Schi f f f ahrt", False),
        ("▁very ▁very ▁good", False),
    ],
)
def test_a_loop_is_a_period_of_subwords_in_any_script(subwords, loop):
    assert is_loop(["▁so", *subwords.split(), "▁end"]) == loop


def test_a_word_is_unseen_in_the_case_that_train_has(tmp_path: Path):
    path = tmp_path / "words.txt"
    path.write_text("Hund 1\nim 3\nGras 2\nsucht 1\n. 9\n", encoding="utf-8")
    seen, tokens = SeenWords(path), Side("de", lowercase=False).tokens
    assert seen.unread(tokens("Im Gras SUCHT Hund HUND Im hund. 12 Katzen-Gras - Hund")) == [
        "SUCHT",
        "HUND",
        "Im",
        "hund",
        "Katzen-Gras",
        "-",
    ]
    assert seen.unread(tokens("Sucht im Gras. Hund"), times=1) == ["Sucht", "Hund"]
    assert SeenWords(tmp_path / "none.txt").unread(tokens("Katzen")) == []
    for content, message in (
        (b"\xff\n", "is damaged \\(not UTF-8"),
        (b"a 1\nb\n", ":2: 'b' is no word with its count"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"words\\.txt{message}" if message[0] == ":" else message):
            SeenWords(path).unread(tokens("Katzen"))


def test_pieces_that_became_unk_are_named(translator):
    ((pair,),) = translator.translate_sentences([f"Hund ; {'„' * 50} Hund"], extra_length=1)
    (unread,) = (remark for remark in pair.translation.remarks if remark.kind == "unread")
    assert unread.pieces[0] == ";"
    ((long,),) = translator.translate_sentences(["Hund" + 90 * "q"], extra_length=1)
    assert [len(piece) for remark in long.translation.remarks for piece in remark.pieces] == [40]
    ((plain,),) = translator.translate_sentences(["Hund"], extra_length=1)
    assert "unread" not in {remark.kind for remark in plain.translation.remarks}


def test_a_loop_is_a_remark_of_the_translation_itself():
    looping = translation("the dog the dog the dog", ("▁the", "▁dog") * 3)
    assert Remark("repeated") in remarks_on(SOURCE, looping, (11, 6), 40, 1)
    assert remarks_on("der Hund " * 3, looping, (6, 6), 40, 1) == ()


def test_a_full_stop_of_an_abbreviation_ends_no_sentence(translator):
    for line, expected in (("Prof. Hund rennt.", False), ("Der Hund.Ein Mann.", True)):
        ((pair,),) = translator.translate_sentences([line], extra_length=0, beam_size=1)
        assert ("ends" in {remark.kind for remark in pair.translation.remarks}) == expected


def test_counts_have_the_first_lines_and_pieces_and_no_more():
    counts = RemarkCounts()
    assert counts.describe() == []
    fine = SentencePair("Hund", translation("dog", ("▁dog",)))
    for number in range(1, 21):
        cut = translation("x", ("▁x",), Remark("limit"), Remark("unread", (f"„{number}",)))
        counts.add(number, [fine, SentencePair("Katze", cut)] if number % 2 else [fine])
    counts.add(21, [SentencePair("Hund", translation("", (), Remark("empty")))])
    assert counts.describe() == [
        "cut at the length limit: 10 lines: 1, 3, 5, 7, 9, 11, 13, 15, ...",
        "empty: line 21",
        "not in the training text („1 „3 „5 „7 „9 „11 „13 „15): 10 lines: 1, 3, 5, 7, 9, 11, 13, 15, ...",
    ]
    assert counts.contents()["lines"]["unread"] == 10


def test_a_loop_over_sentences_and_one_translation_of_many_lines_are_named():
    counts = RemarkCounts(places=[10, 20, 30, 40])
    stock = translation("It is the champion", ("▁It", "▁is", "▁the", "▁champion"))
    for number, source in enumerate(("Ina kwana", "Ina kwana!", "Sannu da zuwa"), start=1):
        counts.add(number, [SentencePair(source, stock)])
    counts.add(4, [SentencePair(source, stock) for source in ("Sannu.", "Na gode.", "Sai anjima.")])
    assert counts.describe() == ["the same again and again: line 40", "the translation of another line too: line 30"]


def test_sentences_are_joined_as_their_script_is_written():
    pairs = [SentencePair("a", translation(text), before) for text, before in (("犬。", ""), ("猫。", ""), ("x", "\n"))]
    assert join_translations(pairs) == "犬。猫。\nx"
    assert join_translations([SentencePair("", translation(text)) for text in ("A.", "", "B.")]) == "A. B."
