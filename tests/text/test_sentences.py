"""A line of several sentences is split where it is certain, and nowhere else."""

from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.text.characters import normalise
from transformer.text.sentences import split_sentences
from transformer.text.words import Side, splitter_of

# language, and a line in which a | stands where it is split
LINES = [
    ("en", "See Sect. 3 of it."),
    ("de", "Ein Hund bellt. |Eine Katze schläft."),
    ("de", "Er wohnt z. B. in Köln. |Sie nicht."),
    ("de", "Dr. Müller kommt am 3. Mai. |Er bleibt bis zum 5. Juni."),
    ("de", "Es war im Jahr 1990. |Dann kam der Regen."),
    ("de", "Es war im Jahr 1990. 12 Hunde kamen."),
    ("de", "Ludwig XIV. König von Frankreich"),
    ("de", "Äpfel, Birnen usw. Alles war da."),
    ("de", "Er sagte: „Komm.“ |Dann ging er."),
    ("de", "„Halt!“ rief er. |Niemand kam."),
    ("de", "Was? |Wer? |Ich! |12 Hunde!"),
    ("de", "Hallo! |😀 Wie geht's?"),
    ("de", "Prof. Dr. Hans Meier e. V. Er"),
    ("de", "Das kostet 5 Mio. Euro. |Gut."),
    ("de", "Er kam… |Dann ging er... |Gut, ja...nein... gut."),
    ("de", "Das Haus Nr. 5 ist alt, siehe Abb. 3 und S. 12."),
    ("de", "Der Hund bellt. |2 Katzen schlafen."),
    ("de", "Die BMW AG und die USA. |Beide."),
    ("de", "Er kaufte Brot. dann ging er."),
    ("de", "Ein Hund.\u200b |Eine Katze."),
    ("de", ". ! ?"),
    ("de", "Der Hund bellt.[1] |Die Katze schläft.[2][3]"),
    ("en", "Mr. Smith lives in the U.S. Army base. |He likes it."),
    ("en", "See Fig. 3 in No. 5. |It is old."),
    ("en", "J. R. R. Tolkien wrote it. |Yes."),
    ("en", 'He said "Go." |Then he left.'),
    ("en", "Yahoo! is a firm."),
    ("en", "Mail me@a.org or see www.a.org/x. |Version 1.2 is out."),
    pytest.param("fr", "Il est né en 300 av. J.-C. Il est mort.", marks=pytest.mark.full),  # spaCy needs seconds
    ("es", "¡Hola! |¿Qué tal? |Bien."),
    ("zh", "我有一只狗。|它在跑。"),
    ("zh", "他说：“走。”|然后他走了。"),
    ("ja", "犬が走る。|猫が寝る！"),
    ("ko", "나는 갔다. |그는 왔다."),
    ("hi", "कुत्ता दौड़ता है। |बिल्ली सोती है।"),
    ("vi", "Tôi ở TP. Hồ Chí Minh. |Tôi vui."),
    ("ru", "Он пришёл в 1990 г. в Москву. |Она ушла."),
    ("ar", "كيف حالك؟ |أنا بخير."),
    ("ka", "ძაღლი დარბის. |კატა ზის."),
    ("de", "Hier ist ein Ei. |Anna isst es."),
    ("de", "Hier ist ein Ei.Anna isst es. |Die foo.Bar ist eine Klasse."),  # in doubt whole
    ("de", "Das ist Punkt 1. |Das ist Punkt 2."),
    ("de", "Siehe https://a.de/x. |Das ist gut."),
    ("de", "Öffne bild.png. |Dann geht es."),
    ("de", "Node.js und z.B. Berlin."),
    ("de", "Am 3. Tag kam der Arzt. |Das 2. Jahr war gut, der 1. Teil auch."),
    ("de", "1. Der Arzt kommt. |2. Die Katze auch."),
    ("ka", "ი. ჭავჭავაძე დაიბადა ყვარელში."),
    ("ja", "「はい。」と言った。|次。"),
    ("my", "ကျွန်တော်သွားသည်။ |သူလာသည်။"),
]


@cache
def side(language: str) -> Side:
    """The side of a language."""
    return Side(language, lowercase=False, splitter=splitter_of(language)[0])


@pytest.mark.parametrize(("language", "line"), LINES)
def test_a_line_is_split_where_a_sentence_certainly_ends(language, line):
    expected = [normalise(sentence.strip(), "nfc") for sentence in line.split("|")]
    assert split_sentences(line.replace("|", ""), side(language)) == expected


def test_a_placeholder_is_not_cut_and_may_begin_a_sentence():
    protecting = Side("de", lowercase=False, placeholders=True)
    line = 'Wo ist <a href="x" title="Halt! Hier">er</a>? |{name} kommt. |%s geht. |Ein Bild: http://a.de/?B. |Gut.'
    expected = [sentence.strip() for sentence in line.split("|")]
    assert split_sentences(line.replace("|", ""), protecting) == expected


@given(st.text("aB1.!?。… \u200b\u2028'„“(){}%①", max_size=60), st.booleans())
@settings(deadline=None, max_examples=100)
def test_sentences_have_all_characters_of_the_line(line, placeholders):
    sentences = split_sentences(line, Side("de", lowercase=False, placeholders=placeholders))
    assert "".join("".join(sentences).split()) == "".join(normalise(line, "nfc").split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


@pytest.mark.parametrize("line", [".", ". ", "a. ", "A. ", "!", "! ", "。", "(", "a"])
def test_splitting_takes_time_in_proportion_to_the_line(line):
    start = time.process_time()
    split_sentences(line * (100_000 // len(line)), side("zh"))
    assert time.process_time() - start < 5
