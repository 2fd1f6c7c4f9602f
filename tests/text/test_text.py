"""Lines become words, subwords and ids and come back without loss; merges and vocabulary come from the lines given."""

import gzip
import os
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transformer.text.bpe import Merges, learn_merges
from transformer.text.marks import join
from transformer.text.pairs import Pairs
from transformer.text.spacy_tokenizer import tokenizer
from transformer.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from transformer.text.words import Side, splitter_of

SIDES = {
    code: Side(code, lowercase=False, splitter=splitter_of(code)[0])
    for code in ("de", "en", "ru", "ar", "zh", "th", "xx")
}
SAMPLE = [
    "Die Protokolldatei kann nicht geöffnet werden .",
    "a@@ b@@ c </w> ▁ ▂ <s> </s> <pad> a</s>",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
]
MERGES = Merges(learn_merges(Counter(token for line in SAMPLE * 3 for token in SIDES["de"].tokens(line)), 60))
MIRROR = Path(os.environ.get("CORPUS_MIRROR", Path(__file__).parents[2] / "shared" / "multi30k"))
nasty = st.text() | st.text("a@ ▁▂</w>s0123\u2028\x85\x0b\x00\r\n.😀\u200d👩\u0301", max_size=40)


@given(nasty, st.sampled_from(sorted(SIDES)))
@example("▁▂1 <s></s>a</s> @@ word@@ U+2028\u2028NUL\x00 👩‍👩‍👧‍👦 </w>", "de")
@settings(deadline=None, max_examples=300)
def test_every_line_comes_back_from_its_subwords(line, code):
    tokens = SIDES[code].tokens(line)
    assert join(MERGES.subwords(tokens)) == join(tokens) == " ".join(line.split())


@given(nasty)
@settings(deadline=None, max_examples=300)
def test_no_subword_looks_like_a_special_or_holds_white_space(line):
    for subword in MERGES.subwords(SIDES["de"].tokens(line)):
        assert subword not in SPECIALS
        assert subword
        assert not any(letter.isspace() for letter in subword)


def test_a_special_inside_a_word_stays_text_with_any_number_of_merges():
    lines = [" ".join(SIDES["en"].tokens("http://a.de/</s>b")), "a</s>b </s>", "x</s>y </s>"]
    tokens = SIDES["en"].tokens("http://a.de/</s>b")
    for count in range(40):
        pieces = Merges(learn_merges(Counter(word for line in lines * 2 for word in line.split(" ")), count)).subwords(
            tokens
        )
        assert "</s>" not in pieces
        assert join(pieces) == "http://a.de/</s>b"


@given(nasty)
@settings(deadline=None, max_examples=100)
def test_ids_lose_only_what_unk_covers(line):
    pieces = MERGES.subwords(SIDES["de"].tokens(line))
    vocabulary = Vocabulary([*SPECIALS, *sorted(set(pieces))])
    ids = vocabulary.ids(pieces)
    assert UNK not in ids
    assert vocabulary.text(ids) == " ".join(line.split())


def test_a_token_after_a_space_starts_with_the_space_mark():
    assert SIDES["de"].tokens("Die  Datei (neu).") == ["▁Die", "▁Datei", "▁(", "neu", ")", "."]


def test_each_side_has_its_own_lowercase_setting():
    description = {"source": "de", "target": "en", "lowercase": False, "lowercase_source": False}
    for changed, cases in (
        ({}, (False, False)),
        ({"lowercase": True}, (False, True)),
        ({"lowercase_source": True}, (True, False)),
    ):
        sides = Side.of(description | changed)
        assert tuple(side.lowercase for side in sides) == cases
        assert [side.language for side in sides] == ["de", "en"]
        assert [join(side.tokens("Über  ALLEM")) for side in sides] == [
            "über allem" if lower else "Über ALLEM" for lower in cases
        ]


def test_lowercase_changes_only_capital_letters():
    assert join(Side("de", lowercase=True).tokens("Über ALLEM  steht")) == "über allem steht"


def test_specials_are_left_out_of_text_and_unk_is_a_separate_word():
    vocabulary = Vocabulary([*SPECIALS, "▁ja", "."])
    assert vocabulary.text([BOS, 4, UNK, 5, EOS, PAD]) == "ja <unk>."


def test_the_vocabulary_holds_subwords_of_min_count_and_is_read_back_from_its_file(tmp_path):
    vocabulary = Vocabulary.of_counts(Counter({"▁a": 3, "▁c": 1, "▁b": 2}), min_count=2)
    assert vocabulary.subwords == [*SPECIALS, "▁a", "▁b"]
    vocabulary.save(tmp_path / "vocab.txt")
    assert Vocabulary.load(tmp_path / "vocab.txt").subwords == vocabulary.subwords


def test_without_merges_words_stay_whole():
    assert learn_merges({"▁aa": 2}, 0) == "#version: 0.2\n"
    assert Merges("#version: 0.2\n").subwords(["▁aa"]) == ["▁aa"]


def test_text_of_single_letters_has_no_merges():
    assert Merges(learn_merges({"a": 2, "b": 1}, 10)).subwords(["a", "b"]) == ["a", "b"]


def test_an_unknown_language_is_named_in_the_error():
    with pytest.raises(ValueError, match="'qq' has no spaCy tokenizer"):
        tokenizer("qq")


@pytest.mark.skipif(not MIRROR.is_dir(), reason="no mirror of Multi30k: set CORPUS_MIRROR to one")
def test_multi30k_comes_back_from_its_subwords():
    for name in ("train", "val", "test_2016_flickr"):
        for code in ("de", "en"):
            lines = gzip.decompress((MIRROR / f"data/task1/raw/{name}.{code}.gz").read_bytes()).decode().split("\n")
            for line in lines[:2000]:
                assert join(MERGES.subwords(SIDES[code].tokens(line))) == " ".join(line.split())


def test_a_tokenizer_does_not_import_torch_and_torch_can_be_imported_after_it():
    code = "import sys; from transformer.text.spacy_tokenizer import tokenizer; tokenizer('de')"
    code += "; print('torch' in sys.modules)"
    code += "; import torch; print(torch.ones(1).sum().item())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stdout == "False\n1.0\n", done.stderr


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2**16 - 1)), st.lists(st.integers(0, 9)), st.integers(1, 2**40))),
    st.sampled_from([2**16, 2**16 + 1]),
)
@settings(deadline=None, max_examples=30)
def test_pairs_written_in_blocks_are_the_bytes_of_whole_arrays(tmp_path_factory, rows, vocabulary):
    folder = tmp_path_factory.mktemp("pairs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer.text.pairs.PAIRS_AT_ONCE", 3)
        assert Pairs.save_rows(folder, "some", iter(rows), vocabulary) == len(rows)
    kind = np.uint16 if vocabulary == 2**16 else np.int32
    for place, side in enumerate(("source", "target")):
        ended = [[*row[place], EOS] for row in rows]
        wanted = {
            "ids": np.array([number for ids in ended for number in ids], kind),
            "starts": np.cumsum([0, *map(len, ended)], dtype=np.int64),
        }
        for part, array in wanted.items():
            np.save(folder / "wanted.npy", array)
            assert (folder / f"some.{side}.{part}.npy").read_bytes() == (folder / "wanted.npy").read_bytes()
    if rows:
        assert list(Pairs.load(folder, "some").rows()) == rows


def test_millions_of_ids_are_written_in_little_memory(tmp_path):
    rows = ((range(4, 54), range(4, 54), line) for line in range(1, 60_001))  # 6 million ids, 24 MB
    tracemalloc.start()
    Pairs.save_rows(tmp_path, "train", rows, 100_000)
    assert tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()


@given(nasty, st.booleans())
@settings(deadline=None, max_examples=200)
def test_a_language_without_spaces_is_split_by_script_and_comes_back(line, lowercase):
    side = Side("zh", lowercase, "unicode")
    assert join(side.tokens(line)) == " ".join((line.lower() if lowercase else line).split())


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("我在PyTorch2里跑 模型。", ["▁我在", "PyTorch", "2", "里跑", "▁模型", "。"]),
        ("犬がコーヒーを飲む", ["▁犬", "が", "コーヒー", "を", "飲", "む"]),
        ("สุนัขวิ่ง 3 ตัว", ["▁สุนัขวิ่ง", "▁3", "▁ตัว"]),
        ("שלום, עולם!", ["▁שלום", ",", "▁עולם", "!"]),
        ("👩‍🚀ok", ["▁👩‍", "🚀", "ok"]),
    ],
)
def test_words_of_the_unicode_splitter_are_runs_of_one_script(line, wanted):
    assert Side("zh", lowercase=False, splitter="unicode").tokens(line) == wanted


@pytest.mark.parametrize("language", ["zh", "zh-TW", "ja", "ko", "vi", "th", "qq"])
def test_a_language_that_spacy_cannot_split_alone_is_split_by_script_and_named(language):
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


@pytest.mark.parametrize("language", ["id", "el", "ru"])
def test_a_word_of_spacy_with_a_space_in_it_is_two_tokens(language):
    """spaCy has words such as "Dr. med": a token may not hold a space, which separates tokens on disk."""
    line = {"id": "Dr. med Budi", "el": "Μ. Ασία", "ru": "и т.д. в т.ч."}[language]
    tokens = Side(language, lowercase=False).tokens(line)
    assert not any(" " in token for token in tokens)
    assert join(tokens) == line
