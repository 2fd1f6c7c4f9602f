"""Lines become words, subwords and ids and come back without loss; merges and vocabulary come from counted words."""

import re
from collections import Counter
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transformer.text.blocks import blocks
from transformer.text.bpe import Merges, learn_merges
from transformer.text.characters import INVISIBLE, ODD, normalise
from transformer.text.encoding import Encoder, SubwordCounts
from transformer.text.languages import LONGEST_RUN, spacy_words, tokenizer
from transformer.text.marks import join, mark_words
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from transformer.text.words import Side, splitter_of

SIDES = [
    (code, lowercase, form)
    for code in ("ar", "de", "ru", "zh")
    for lowercase in (False, True)
    for form in ("none", "nfc")
]
SAMPLE = [
    "Die Protokolldatei kann nicht geöffnet werden .",
    "a@@ b@@ c </w> ▁ ▂ <s> </s> <pad> a</s>",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
]


@cache
def side(code: str, lowercase: bool = False, form: str = "none", placeholders: bool = False) -> Side:
    """The side of a language; made when a test needs it, since a tokenizer takes a second."""
    return Side(code, lowercase, splitter_of(code)[0], form, placeholders)


@cache
def merges() -> Merges:
    """The merges of SAMPLE."""
    return Merges(learn_merges(Counter(token for line in SAMPLE * 3 for token in side("de").tokens(line)), 60))


nasty = st.text() | st.text("a@ ▁▂</w>s0123\u2028\x85\x0b\x00\r\n.😀\u200d👩\u0301", max_size=40)


@given(nasty, st.sampled_from(SIDES))
@example("▁▂1 <s></s>a</s> @@ word@@ U+2028\u2028NUL\x00 👩‍👩‍👧‍👦 </w>", ("de", False, "none"))
@example("Über ALLEM  steht", ("de", True, "none"))
@example("a\u200b b \u200b c\u0301\ufeff u\u0308", ("de", True, "nfc"))
@settings(deadline=None, max_examples=150)
def test_every_line_comes_back_from_its_subwords(line, kind):
    """After the normal form and the case that the side names. No subword is a special or holds white space."""
    code, lowercase, form = kind
    tokens = side(code, lowercase, form).tokens(line)
    text = normalise(line, form)
    subwords = merges().subwords(tokens)
    assert join(subwords) == join(tokens) == " ".join((text.lower() if lowercase else text).split())
    assert not [subword for subword in subwords if subword in SPECIALS or subword.split() != [subword]]


def test_a_special_inside_a_word_stays_text():
    tokens = side("en").tokens("http://a.de/</s>b")
    words = Counter([*tokens, "a</s>b", "</s>", "x</s>y", "</s>"] * 2)
    assert not set(mark_words(["a", *SPECIALS])) & set(SPECIALS)
    for count in range(40):
        pieces = Merges(learn_merges(words, count)).subwords(tokens)
        assert "</s>" not in pieces
        assert join(pieces) == "http://a.de/</s>b"


@given(nasty)
@settings(deadline=None, max_examples=100)
def test_ids_lose_only_what_unk_covers(line):
    pieces = merges().subwords(side("de").tokens(line))
    vocabulary = Vocabulary([*SPECIALS, *sorted(set(pieces))])
    ids = vocabulary.ids(pieces)
    assert UNK not in ids
    assert vocabulary.text(ids) == " ".join(line.split())


@pytest.mark.parametrize(
    ("language", "line", "tokens"),
    [
        ("de", "Die  Datei (neu).", ["▁Die", "▁Datei", "▁(", "neu", ")", "."]),
        ("zh", "我在PyTorch2里跑 模型。", ["▁我在", "PyTorch", "2", "里跑", "▁模型", "。"]),
        ("zh", "犬がコーヒーを飲む", ["▁犬", "が", "コーヒー", "を", "飲", "む"]),
        ("zh", "สุนัขวิ่ง 3 ตัว", ["▁สุนัขวิ่ง", "▁3", "▁ตัว"]),
        ("zh", "שלום, עולם!", ["▁שלום", ",", "▁עולם", "!"]),
        ("zh", "👩‍🚀ok", ["▁👩‍", "🚀", "ok"]),
    ],
)
def test_tokens_are_words_of_spacy_or_runs_of_one_script(language, line, tokens):
    """A token after a space starts with the space mark."""
    assert side(language).tokens(line) == tokens


@given(st.lists(st.tuples(st.sampled_from("=_-😀\u0301a1ß "), st.integers(1, 2 * LONGEST_RUN + 9)), max_size=6))
@settings(deadline=None)
def test_spacy_gets_no_long_run_of_symbols_and_all_else_uncut(runs):
    """On a run of 8,000 spaCy computes for 22 seconds."""
    text, parts = "".join(letter * count for letter, count in runs), []
    spacy_words(SimpleNamespace(memory_zone=nullcontext, tokenizer=lambda part: parts.append(part) or []), text)
    assert "".join(parts) == text
    longest = max(len(run[0]) for part in [*parts, ""] for run in re.finditer(r"([^\w\s]|_)*", part))
    assert longest <= LONGEST_RUN
    if not re.search(rf"([^\w\s]|_){{{LONGEST_RUN}}}", text):
        assert parts in ([text], [])


def test_a_line_with_a_long_run_of_symbols_comes_back():
    line = f"ein Strich {'=' * 1234}: {'-' * 250}ende"
    tokens = side("de").tokens(line)
    assert join(tokens) == line
    assert [token for token in tokens if token.startswith("▁")] == ["▁ein", "▁Strich", "▁=", f"▁{'-' * LONGEST_RUN}"]


@pytest.mark.parametrize("language", [*(pytest.param(code, marks=pytest.mark.full) for code in ("id", "el")), "ru"])
def test_a_word_of_spacy_with_a_space_in_it_is_two_tokens(language):
    """spaCy has words such as "Dr. med": a token may not hold a space, which separates tokens on disk."""
    line = {"id": "Dr. med Budi", "el": "Μ. Ασία", "ru": "и т.д. в т.ч."}[language]
    tokens = Side(language, lowercase=False).tokens(line)
    assert not any(" " in token for token in tokens)
    assert join(tokens) == line


@given(st.text() | st.text(f"{INVISIBLE}u\u0308 \u0301\u200c\u200d가ᄀ", max_size=20))
@settings(deadline=None)
def test_a_normal_form_has_no_hidden_characters_and_is_stable(line):
    text = normalise(line, "nfc")
    assert normalise(text, "nfc") == text
    assert not ODD["invisible"](text)
    assert not ODD["decomposed"](text)
    assert [c for c in text if c in "\u200c\u200d"] == [c for c in line if c in "\u200c\u200d"]


def test_odd_characters_are_told_apart():
    lines = {
        "invisible": ["Donau\u00addampf", "a\u200b", "\ufeffa", "\u200ea", "\u202ea", "\u2066a"],
        "decomposed": ["u\u0308ber", "\u1100\u1161"],
        "entity": ["Tom &amp; Jerry", "&#39;", "&#x27;", "&frac12;"],
        "replacement": ["caf\ufffd"],
        "mojibake": ["Ã¼ber", "â€œHi", "GrÃ¶ÃŸe", "Â£5"],
        "control": ["a\x07b", "\x1b[0m"],
    }
    plain = [
        "über",
        "AT&T; R&D",
        "a & b;",
        "Ã",
        "Â",
        "👩\u200d👧",
        "می\u200cخواهم",
        "naïve façade",
        "SÃO PAULO",
        "Ñandú",
        "ÐÐ",
    ]
    for name, odd in lines.items():
        assert [kind for kind in ODD if ODD[kind](odd[0])] == [name]
        assert all(map(ODD[name], odd)), name
    assert not [(line, kind) for line in plain for kind in ODD if ODD[kind](line)]


def test_each_side_has_its_own_lowercase_setting():
    description = {"source": "de", "target": "en", "lowercase": False, "lowercase_source": True}
    sides = Side.read_both(description)
    assert [each.language for each in sides] == ["de", "en"]
    assert [join(each.tokens("Über  ALLEM")) for each in sides] == ["über allem", "Über ALLEM"]


@pytest.mark.parametrize(
    ("language", "text", "expected"), [("tr", "İKİ IRMAK", "iki ırmak"), ("de", "İKI I", "iki i"), ("az", "I", "ı")]
)
def test_letters_become_small_as_the_language_writes_them(language, text, expected):
    assert Side(language, lowercase=True).text(text) == expected


@pytest.mark.parametrize("language", ["zh", "zh-TW", "ja", "ko", "vi", "th", "qq"])
def test_a_language_that_spacy_cannot_split_is_split_by_script(language):
    splitter, remark = splitter_of(language)
    assert splitter == "unicode"
    assert remark.startswith(f"Language {language} ")


@pytest.mark.parametrize("language", ["de", "de-AT", "ru", "ar", "hi", "xx"])
def test_a_language_that_spacy_splits_has_no_remark(language):
    assert splitter_of(language) == ("spacy", "")


@pytest.mark.parametrize("language", ["german", "d", "de_DE", "../x", ""])
def test_what_is_no_language_code_is_refused(language):
    with pytest.raises(ValueError, match="is no language code"):
        splitter_of(language)


def test_an_unknown_language_is_named_in_the_error():
    with pytest.raises(ValueError, match="'qq' has no spaCy tokenizer"):
        tokenizer("qq")


def test_specials_are_left_out_of_text_and_unk_is_a_separate_word():
    vocabulary = Vocabulary([*SPECIALS, "▁ja", "."])
    assert vocabulary.text([BOS, 4, UNK, 5, EOS, PAD]) == "ja <unk>."


def test_the_vocabulary_holds_subwords_of_min_count(tmp_path):
    vocabulary = Vocabulary.build(Counter({"▁a": 3, "▁c": 1, "▁b": 2}), min_count=2)
    assert vocabulary.subwords == [*SPECIALS, "▁a", "▁b"]
    vocabulary.save(tmp_path / "vocab.txt")
    assert Vocabulary.load(tmp_path / "vocab.txt").subwords == vocabulary.subwords


def test_training_pairs_of_1_to_max_length_subwords_are_kept(tmp_path):
    (tmp_path / "codes").write_text(learn_merges({}, 0))
    Vocabulary([*SPECIALS, "a"]).save(tmp_path / "vocab.txt")
    sources, targets = ["a a", "a", "a a a", "a", "", "a a"], ["a a", "a a a", "a", "", "a", "a"]
    paths = tmp_path / "source", tmp_path / "target"
    for path, lines in zip(paths, (sources, targets), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    (block,) = blocks(*paths)
    for max_length, rows in ((2, [0, 5]), (3, [0, 1, 2, 5]), (None, [*range(6)])):
        encoded = Encoder(tmp_path / "codes", tmp_path / "vocab.txt", max_length)(block)
        assert encoded.rows.tolist() == rows
        assert encoded._replace(first=11).pair_block(None).lines.tolist() == [11 + row for row in rows]
        counts = SubwordCounts(5)
        counts.add(encoded)
        assert counts.summary()["source"]["subwords"] == sum(len(sources[row].split()) for row in rows)


def test_without_merges_words_stay_whole():
    assert learn_merges({"▁aa": 2}, 0) == "#version: 0.2\n"
    for counts, merges in (({"▁aa": 2}, 0), ({"a": 2, "b": 1}, 10)):
        assert Merges(learn_merges(counts, merges)).subwords(counts) == list(counts)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2**16 - 1)), st.lists(st.integers(0, 9)), st.integers(1, 2**40))),
    st.sampled_from([2**16, 2**16 + 1]),
)
@settings(deadline=None, max_examples=30)
def test_pairs_written_in_blocks_are_the_bytes_of_numpy(tmp_path_factory, rows, vocabulary):
    folder = tmp_path_factory.mktemp("pairs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer.text.pairs.PAIRS_AT_ONCE", 3)
        assert Pairs.save_rows(folder, "some", iter(rows), vocabulary) == len(rows)
    kind = np.uint16 if vocabulary == 2**16 else np.int32
    for place, side in enumerate(("source", "target")):
        ended = [[*row[place], EOS] for row in rows]
        arrays = {
            "ids": np.array([number for ids in ended for number in ids], kind),
            "starts": np.cumsum([0, *map(len, ended)], dtype=np.int64),
        }
        for part, array in arrays.items():
            np.save(folder / "numpy.npy", array)
            assert (folder / f"some.{side}.{part}.npy").read_bytes() == (folder / "numpy.npy").read_bytes()
    if rows:
        assert list(Pairs.load(folder, "some").rows()) == rows
        numbered = [(source, target, line) for line, (source, target, _) in enumerate(rows, start=1)]
        assert list(Pairs.pack((np.array(source), target) for source, target, _ in rows).rows()) == numbered
