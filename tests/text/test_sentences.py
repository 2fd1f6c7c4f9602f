"""A line of several sentences is split where it is certain, and nowhere else."""

from __future__ import annotations

import time
from collections import Counter
from functools import cache
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.text.characters import normalise
from transformer.text.sentences import count_source_ends, split_sentences
from transformer.text.word_counts import SeenWords, ends_of_words, known_words
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
    ("hi", "वह आया है. |मैं गया. |अ. शर्मा ने देखा."),
    ("mr", "तो शाळेत गेला. |ती घरी आहे."),
    ("ml", "അവൻ വന്നു. |അവൾ പോയി."),
    ("el", "Τι κάνεις; |Καλά είμαι."),
    ("de", "Er kam; Sie ging."),
    ("bo", "ང་ཁྱི་ཞིག་ཡོད། |ཁོ་རྒྱུག་གི་འདུག།"),
    ("pl", "Kościół św. Anny stoi."),
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


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> SeenWords:
    """The words of a Polish training text."""
    lines = [
        "Dom na ul. Długiej.",
        "Idę na ul. Polną.",
        "To jest pies.",
        "Pies śpi. On je.",
        "Kot śpi.",
        "Tu kot i on.",
    ] * 3
    tokens = [side("pl").tokens(line) for line in lines]
    words = known_words(Counter(chain(*tokens)), Counter(chain(*map(ends_of_words, tokens))))
    path = tmp_path_factory.mktemp("seen") / "words.txt"
    path.write_text("".join(f"{word} {count}\n" for word, count in sorted(words.items())), encoding="utf-8")
    return SeenWords(path)


@pytest.mark.parametrize(
    "line",
    [
        "Mieszka na ul. Nowej. |On je.",
        "Ul. Nowa.",
        "To pies. |Kot śpi.",  # a word that ends lines
        "To prof. Nowak.",  # train lacks both words
        "Lubi sok. On je.",  # in doubt whole
        "To lwica. |On je.",
        "Na Nowostr. 5 jest.",
    ],
)
def test_abbreviations_are_learnt_and_short_new_words_doubted(seen, line):
    expected = [sentence.strip() for sentence in line.split("|")]
    assert split_sentences(line.replace("|", ""), side("pl"), seen) == expected
    assert count_source_ends(side("pl").tokens("Na ul. Nowej."), seen) == 1
    assert [word for word in seen.counts if " " in word] == ["ul ."]


def test_lines_of_many_sentences_teach_no_abbreviations():
    line = "▁Er ▁geht . ▁Sie ▁kommt . ▁Er ▁sieht . ▁Sie ▁singt . ▁Er ▁ruft . ▁Dann ▁schweigt ▁sie ."
    words = known_words(Counter(line.split(" ") * 9), Counter([*ends_of_words(line.split(" "))] * 9))
    assert [word for word in words if " " in word] == []


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
