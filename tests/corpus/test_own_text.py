"""Files as people have them become a corpus folder, with a split that does not change when the file grows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.own_text import (
    SPLITS,
    commit_command,
    name_of,
    side_of,
    split_by_hash,
    texts_of,
    usable_pairs,
    write_corpus,
)
from pipeline.corpus.tables import Table

LANGUAGES = ("en", "ha")
ROWS = [("Hello, you.", "Sannu."), ("a dog", "kare")]
FILES = {
    "a.tsv": "English\tHausa\nHello, you.\tSannu.\na dog\tkare\n",
    "b.csv": 'id,hausa_text,english_text\n1,Sannu.,"Hello, you."\n2,kare,a dog\n',
    "c.csv": "ha;en\nSannu.;Hello, you.\nkare;a dog\n",
    "d.json": json.dumps([{"translation": {"en": source, "ha": target}} for source, target in ROWS]),
    "e.json": "".join(json.dumps({"translation": {"en": source, "ha": target}}) + "\n" for source, target in ROWS),
    "f.jsonl": "".join(json.dumps({"sentence_hau_Latn": target, "eng": source}) + "\n" for source, target in ROWS),
    "g.json": json.dumps({"data": [{"source": source, "target": target} for source, target in ROWS]}),
    "h.txt": "English\tHausa\tby\nHello, you.\tSannu.\tme\na dog\tkare\tme\n",
}


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def pairs(path: Path, *columns: str, languages: tuple[str, str] = LANGUAGES) -> list[tuple[str, str]]:
    return list(usable_pairs(Table(path, languages, columns), Counter()))


@pytest.mark.parametrize("name", FILES)
def test_the_columns_are_those_that_name_the_languages(tmp_path, name):
    assert pairs(written(tmp_path, name, FILES[name])) == ROWS


def test_a_header_may_be_in_either_language(tmp_path):
    path = written(tmp_path, "a.csv", "Nr;Deutsch;Englisch\r\n1;Hallo, du;Hello\r\n")
    assert pairs(path, languages=("en", "de")) == [("Hello", "Hallo, du")]


def test_a_sheet_of_a_spreadsheet_is_a_table(tmp_path):
    pd, _ = pytest.importorskip("pandas"), pytest.importorskip("openpyxl")
    pd.DataFrame(ROWS, columns=["English", "Hausa"]).to_excel(tmp_path / "a.xlsx", index=False)
    assert pairs(tmp_path / "a.xlsx") == ROWS


def test_other_columns_are_named_on_the_command_line(tmp_path):
    path = written(tmp_path, "a.tsv", "7\ta dog\t9\tkare\n")
    with pytest.raises(ValueError, match=r"which columns are en and ha\? It has 1 no name: '7'.*--columns"):
        pairs(path)
    assert pairs(path, "2", "4") == [("a dog", "kare")]
    assert pairs(written(tmp_path, "c.csv", "ha,en\nkare,a dog\n"), "2", "1") == [("a dog", "kare")]
    shown = Table(path, LANGUAGES, ("2", "4")).describe_columns()
    assert shown == "column 2 (no name) as en and column 4 (no name) as ha; the first pair: 'a dog' = 'kare'"
    named = written(tmp_path, "b.csv", "x,y\na dog,kare\n")
    assert pairs(named, "x", "y") == [("a dog", "kare")]
    with pytest.raises(ValueError, match="which columns"):
        pairs(named, "x", "z")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", 'en,ha\n"a,b\n', "is no table: EOF inside string"),
        ("a.tsv", "en\tha\na\tb\tc\n", "is no table: Expected 2 fields in line 2, saw 3"),
        ("a.tsv", "", "is no table: No columns"),
        ("a.json", '{"en": "a"}\n{"en": \n', ":2: not JSON"),
        ("a.json", "[1]", "'1' is no object"),
        ("a.json", "5", "'5' is no list"),
        ("a.json", '{"train": [], "test": []}', "has the lists train, test. Write each into a file of its own"),
    ],
)
def test_a_damaged_table_is_refused_with_its_place(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        pairs(written(tmp_path, name, text))


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_bytes("en\tha\nMüll\tb\n".encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8"):
        pairs(tmp_path / "a.tsv")


def test_what_training_cannot_use_is_left_out_and_counted(tmp_path):
    rows = [["a", "b"], ["", ""], ["a", " "], ["", "b"], ["a\0", "b"], ["\ud800", "b"], ["a\n b", "c"]]
    path = written(tmp_path, "a.json", json.dumps([{"en": source, "ha": target} for source, target in rows]))
    left_out: Counter[str] = Counter()
    assert list(usable_pairs(Table(path, LANGUAGES), left_out)) == [("a", "b"), ("a b", "c")]
    assert left_out == {"blank": 1, "with one side only": 2, "with a NUL, half a character, or too long": 2}


def corpus(folder: Path, lines: list[tuple[str, str]], name: str = "own", **options) -> dict[str, set[str]]:
    """The sources in each split of the corpus that is made of these pairs."""
    path = written(folder, "pairs.tsv", "".join(f"{source}\t{target}\n" for source, target in [LANGUAGES, *lines]))
    write_corpus(folder / name, texts_of([path], LANGUAGES), LANGUAGES, **options)
    sources = {split: (folder / name / f"{split}.en").read_text().split("\n")[:-1] for split in SPLITS}
    assert sum(map(len, sources.values())) == len(lines)
    return {split: set(lines) for split, lines in sources.items()}


LINES = [(f"line {number}", f"layi {number}") for number in range(2_000)]


def test_a_longer_file_keeps_the_split(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.corpus.own_text.PAIRS_DRAWN", 50)  # of 2,000 pairs that would be another share
    before = corpus(tmp_path, LINES[:300])
    after = corpus(tmp_path, LINES[::-1])
    assert all(before[split] <= after[split] for split in SPLITS)
    assert [100 < len(after[split]) < 500 for split in ("valid", "test")] == [True, True]
    assert corpus(tmp_path, LINES[::-1]) == after


@given(st.text("abc xyz").filter(str.strip), st.floats(1e-6, 0.1))
def test_equal_sources_are_in_one_split(source, share):
    assert split_by_hash(source, share, ("valid", "test")) == split_by_hash(
        f"({source.upper()}!)", share, ("valid", "test")
    )


def test_a_smaller_share_only_moves_pairs_to_train():
    for source, _ in LINES:
        large, small = (split_by_hash(source, share, ("valid", "test")) for share in (0.1, 0.05))
        assert small in (large, "train")


def test_splits_that_are_there_are_taken(tmp_path):
    for split, number in (("train", 0), ("dev", 1), ("test", 2)):
        written(tmp_path, f"{split}.json", json.dumps({"en": f"a {number}", "ha": "b"}))
    write_corpus(tmp_path / "own", texts_of([tmp_path], LANGUAGES), LANGUAGES)
    assert [(tmp_path / f"own/{split}.en").read_text() for split in SPLITS] == ["a 0\n", "a 1\n", "a 2\n"]


def test_two_text_files_are_the_two_sides(tmp_path):
    files = [written(tmp_path, f"talks.{code}", "".join(f"{code} {n}\n" for n in range(99))) for code in ("ha", "en")]
    pair = next(texts_of(files, LANGUAGES)["train"][0].pairs())
    assert pair == ("en 0", "ha 0")
    assert [name_of(path) for path in (files[0], tmp_path, tmp_path / "train.json")] == ["talks", *[tmp_path.name] * 2]


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (("JW300.en-ha.en", "JW300.en-ha.ha"), [0, 1]),
        (("JW300.en-ha.ha", "JW300.en-ha.en"), [1, 0]),
        (("hausa.txt", "english.txt"), [1, 0]),
        (("a.txt", "b.txt"), [None, None]),
        (("a.en-ha.en", "b.en"), [0, 0]),
    ],
)
def test_the_last_language_in_a_name_says_the_side(tmp_path, names, taken):
    files = [written(tmp_path, name, f"{name}\n") for name in names]
    assert [side_of(path, LANGUAGES) for path in files] == taken
    if taken == [0, 0]:
        with pytest.raises(ValueError, match=r"are of one side\. Nothing was written"):
            texts_of(files, LANGUAGES)
    else:
        expected = names if taken != [1, 0] else names[::-1]
        assert next(texts_of(files, LANGUAGES)["train"][0].pairs()) == expected


@pytest.mark.parametrize(
    "row",
    [
        ("la casa de Juan", "es ist das Haus"),
        ("I speak English.", "Ich spreche Deutsch."),
        ("de er her", "da sind sie"),
    ],
)
def test_a_sentence_is_no_header(tmp_path, row):
    path = written(tmp_path, "a.tsv", "\t".join(row) + "\nb\tc\n")
    for languages in (("es", "de"), ("en", "de"), ("da", "de")):
        assert pairs(path, "1", "2", languages=languages) == [row, ("b", "c")]


def test_a_carriage_return_ends_no_row(tmp_path):
    assert pairs(written(tmp_path, "a.tsv", "en\tha\r\nfirst\rsecond\tx\r\n")) == [("first second", "x")]
    assert pairs(written(tmp_path, "a.csv", 'en,ha\r\n"a, b","c"\r\n')) == [("a, b", "c")]
    assert pairs(written(tmp_path, "b.csv", "Hello, you;Sannu\nhi, me;q\n"), "1", "2") == [
        ("Hello, you", "Sannu"),
        ("hi, me", "q"),
    ]


def test_a_folder_of_somebody_or_with_edits_is_kept(tmp_path):
    (tmp_path / "own").mkdir()
    with pytest.raises(ValueError, match=r"own is another folder of yours\. Nothing was written\. Use --name"):
        corpus(tmp_path, LINES)
    (tmp_path / "own").rmdir()
    corpus(tmp_path, LINES)
    (tmp_path / "own/train.en").write_text("better\n")
    with pytest.raises(ValueError, match="own has edits"):
        corpus(tmp_path, LINES)
    corpus(tmp_path, LINES, force=True)


def test_what_is_too_small_or_unknown_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match="2 pairs are too few"):
        corpus(tmp_path, LINES[:2])
    with pytest.raises(ValueError, match=r"a\.docx: no format that is read. Give one file of pairs \(.tsv"):
        texts_of([written(tmp_path, "a.docx", "x")], LANGUAGES)
    with pytest.raises(ValueError, match="no such file"):
        texts_of([tmp_path / "nowhere"], LANGUAGES)
    with pytest.raises(ValueError, match=r"has no text of train\. It has a\.docx, pairs\.tsv"):
        texts_of([tmp_path], LANGUAGES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.docx", "pairs.tsv"]


def test_small_text_is_given_to_git_and_large_text_to_dvc(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.corpus.own_text.IN_GIT", 9)
    for text, line in (("a", "git add {0} params.yaml"), ("a" * 10, "dvc add {0} && git add {0}.dvc {1}/.gitignore")):
        written(tmp_path, "train.en", text)
        assert commit_command(tmp_path, Path("params.yaml")).startswith(line.format(tmp_path, tmp_path.parent))
