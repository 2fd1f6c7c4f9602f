"""Files as people have them become a corpus folder, with a split that does not change when the file grows."""

from __future__ import annotations

import csv
import json
from collections import Counter
from io import StringIO
from pathlib import Path

import openpyxl
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
    "K.CSV": 'Words 2024,\n,\nEnglish (US),Hausa (Nigeria)\n"Hello, you.",Sannu.\na dog,kare\n',
    "l.csv": 'source,english_sentence,hausa_sentence\nted,"Hello, you.",Sannu.\nted,a dog,kare\n',
    "m.csv": "en|ha|ha_context\nHello, you.|Sannu.|x\na dog|kare|y\n",
    "n.csv": '"Source string","Translation","fuzzy"\n"Hello, you.","Sannu.",False\n"x","y",True\n"a dog","kare",""\n',
    "o.json": json.dumps({"en": ["Hello, you.", "a dog"], "ha": ["Sannu.", "kare"]}),
    "p.json": json.dumps({"tags": ["x"], "rows": [{"en": source, "ha": target} for source, target in ROWS]}),
    "q.txt": "#separator:tab\n#html:true\nen_US\tha_NG\nHello, you.\tSannu.\na dog\tkare\n",
}
QUOTED = [('Say "no"', '"a" ko "b"'), ("NA", "00123"), ("a, b", "c; d"), ("1e5", "2024-01-02")]


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def pairs(path: Path, *columns: str, languages: tuple[str, str] = LANGUAGES) -> list[tuple[str, str]]:
    return list(usable_pairs(Table(path, languages, columns), Counter()))


@pytest.mark.parametrize("name", FILES)
def test_the_columns_are_those_that_name_the_languages(tmp_path, name):
    assert pairs(written(tmp_path, name, FILES[name])) == ROWS


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("id,source,target", "m.1,a dog,seekor anjing"),
        ("source,target,en_comment", "a dog,seekor anjing,m.1"),
        ("id,English,Indonesian", "m.1,a dog,seekor anjing"),
        ("en_comment,source_text,target_text", "m.1,a dog,seekor anjing"),
        ("x,en,id", "1,a dog,seekor anjing"),
        ("en_score,en_US,id", "0.5,a dog,seekor anjing"),
    ],
)
def test_a_key_or_a_comment_is_no_language(tmp_path, header, row):
    path = written(tmp_path, "a.csv", f"{header}\n{row}\n")
    assert pairs(path, languages=("en", "id")) == [("a dog", "seekor anjing")]


def test_a_column_may_be_empty_below_its_name(tmp_path):
    assert pairs(written(tmp_path, "a.csv", "en,ha,comment\n" + "a,b,\n" * 20 + "c,d,e\n"))[-2:] == [
        ("a", "b"),
        ("c", "d"),
    ]


def test_a_header_may_be_in_either_language(tmp_path):
    path = written(tmp_path, "a.csv", "Nr;Deutsch;Englisch\r\n1;Hallo, du;Hello\r\n")
    assert pairs(path, languages=("en", "de")) == [("Hello", "Hallo, du")]


def test_the_sheet_whose_header_fits_is_read_to_its_last_row(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["Read me", None, 5])
    sheet = book.create_sheet("Words")
    for row in (["Glossary"], [], ["Nr", "English (US)", "Hausa"], [1, *ROWS[0]], [2, "NA", "00123"], [3, 7, "#N/A"]):
        sheet.append(row)
    sheet.append([4, "a_x000D_\nb", "c"])
    sheet.cell(20_000, 2_000, "stray")
    book.save(tmp_path / "a.xlsx")
    assert pairs(tmp_path / "a.xlsx") == [ROWS[0], ("NA", "00123"), ("a b", "c")]
    assert Table(tmp_path / "a.xlsx", LANGUAGES).describe_columns().startswith("sheet Words, not Sheet; column 2 (Eng")
    for content, reason in ((b"en,ha", "not a zip"), ("EncryptedPackage".encode("utf-16-le"), "it has a password")):
        (tmp_path / "b.xlsx").write_bytes(content)
        with pytest.raises(ValueError, match=rf"b\.xlsx is not read by openpyxl \(.*{reason}.*\)\. Save it as \.xlsx"):
            pairs(tmp_path / "b.xlsx")


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t")])
def test_what_csv_writes_is_read_as_it_was(tmp_path, name, separator, quoting):
    text = StringIO()
    writer = csv.writer(text, delimiter=separator, quoting=quoting)
    writer.writerows([LANGUAGES, *QUOTED, ("two\nlines", "x")])
    assert pairs(written(tmp_path, name, text.getvalue())) == [*QUOTED, ("two lines", "x")]


def test_a_text_without_quotes_keeps_what_stands_in_it(tmp_path):
    rows = [*QUOTED, ('"all"', '"duka"'), ('"one end', 'other end"'), ("a", '5" x')]
    for name, mark in (("a.tsv", "\t"), ("b.txt", "\t")):
        assert pairs(written(tmp_path, name, "".join(f"{s}{mark}{t}\n" for s, t in [LANGUAGES, *rows]))) == rows
    assert pairs(written(tmp_path, "c.csv", 'en|ha\n"one end|b\nother end"|c\n')) == [
        ('"one end', "b"),
        ('other end"', "c"),
    ]
    excel = 'en\tha\n"a, b"\tc\n"say ""no"""\t"x, y"\n'
    assert pairs(written(tmp_path, "d.tsv", excel)) == [("a, b", "c"), ('say "no"', "x, y")]
    spoken = [
        ("No, he said", "Nein"),
        ('"Oh, no."', '"Ach, nein."'),
        ('"Go," he said. "Now."', '"Geh", sagte er. "Jetzt."'),
    ] * 2
    assert pairs(written(tmp_path, "f.tsv", "".join(f"{s}\t{t}\n" for s, t in [LANGUAGES, *spoken]))) == spoken
    pandas = '"en"\t"ha"\t"score"\n"a"\t"b"\t0.5\n"say ""no"""\t" x"\tNA\n'
    assert pairs(written(tmp_path, "e.tsv", pandas)) == [("a", "b"), ('say "no"', "x")]


def test_other_columns_are_named_on_the_command_line(tmp_path):
    path = written(tmp_path, "a.tsv", "7\ta dog\t9\tkare\n")
    with pytest.raises(ValueError, match=r"which columns are en and ha\? It has 1 '7', 2 'a dog'.*--columns"):
        pairs(path)
    assert pairs(path, "2", "4") == [("a dog", "kare")]
    assert pairs(written(tmp_path, "c.csv", "ha,en\nkare,a dog\n"), "2", "1") == [("a dog", "kare")]
    for header in ("x\tEnglish (US)\ty\tz\n", "Nr\tPhrase\tNr\tMagana\n"):  # a name of a language, or of numbers
        assert pairs(written(tmp_path, "d.tsv", header + "7\ta dog\t9\tkare\n"), "2", "4") == [("a dog", "kare")]
    codes = written(tmp_path, "e.tsv", "eng\thau\ta dog\tkare\n" * 3)
    with pytest.raises(ValueError, match=r"It has 1 'eng', 2 'hau', 3 'a dog', 4 'kare'\. Name them: --columns"):
        pairs(codes)
    assert pairs(codes, "3", "4") == [("a dog", "kare")] * 3
    shown = Table(path, LANGUAGES, ("2", "4")).describe_columns()
    columns = "column 2 (no name) as en and column 4 (no name) as ha"
    assert (
        shown == f"{columns}; no header: if this is one, give its names to --columns; the first pair: 'a dog' = 'kare'"
    )
    named = written(tmp_path, "b.csv", "x,y\na dog,kare\n")
    assert pairs(named, "x", "y") == [("a dog", "kare")]
    with pytest.raises(ValueError, match="--columns x z does not name two"):
        pairs(named, "x", "z")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", 'en,ha\n"a",b\n"c" d,e\n', "a.csv:3: ',' expected after '\"'. Put the whole cell in quotes"),
        ("a.csv", 'en,ha\n"a, b",c\n"d,e\nf",g\n', "a.csv:3: a quote that takes in the next lines"),
        (
            "a.csv",
            'en,ha\n"say \\"no\\"",b\n',
            r"a.csv:2: a quote after a backslash\. Export it with doubled quotes",
        ),
        ("a.tsv", '"en"\t"ha"\n"say \\"no\\""\t"b"\n', "a.tsv:2: a quote after a backslash"),
        ("a.tsv", "en\tha\nnew\\\nline\tb\n", r"row 2, 'new.*', has too few columns\. Export it with doubled"),
        ("a.tsv", "en\tha\na\tb\nc\n", "row 3, 'c', has too few columns. Join it with the line before"),
        ("a.tsv", '"en"\t"ha"\n"a"\t"b\n"c"\t"d"\n', "a.tsv:2: '\t' expected after"),
        ("a.csv", "en;ha,x\nb;c,d\n", "',' or ';' may separate its columns. Name one: --separator"),
        ("a.tsv", "en\tha\na\tb\tc\n" + "a\tb\n" * 9 + "a\tb\tc\td\n", "a.tsv:12: 4 columns, but 3 above"),
        ("a.tsv", "", "a.tsv: a table of one column, or empty"),
        ("a.json", '{"en": ["a", "b"], "ha": ["c"]}', r"has the lists en \(2\), ha \(1\)"),
        ("a.json", '{"hello": "Hello"}', "It has 1 'hello'.*json2po -t SOURCE.json TARGET.json"),
        ("a.json", '{"en": "a"}\n{"en": \n', ":2: not JSON"),
        ("a.json", "[1]", "'1' is no object"),
        ("a.json", "5", "'5' is no list"),
        ("a.json", '{"train": [{}], "test": [{}]}', "has the lists train .1., test .1.. Write a list of objects"),
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
    with pytest.raises(ValueError, match=r"a\.docx cannot be read\. Convert it.*: save its text"):
        texts_of([written(tmp_path, "a.docx", "x")], LANGUAGES)
    with pytest.raises(ValueError, match="no such file"):
        texts_of([tmp_path / "nowhere"], LANGUAGES)
    with pytest.raises(ValueError, match=r"has no text of train\. It has a\.docx, pairs\.tsv"):
        texts_of([tmp_path], LANGUAGES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.docx", "pairs.tsv"]


@pytest.mark.parametrize(
    ("name", "start", "remedy"),
    [
        ("film.en.SRT", "1\n", "sub2po -t SOURCE TARGET"),
        ("film.en.txt", "\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\n", "sub2po -t SOURCE TARGET"),
        ("a.en.vtt", "x", "ffmpeg"),
        ("a.en", "<?xml version", "android2po"),
        ("a.en.html", "x", "html2po"),
        ("a.en", "PK\3\4", "unzip"),
        ("a.en", "%PDF-1.7", "save its text"),
    ],
)
def test_what_is_no_plain_text_is_no_side_of_a_corpus(tmp_path, name, start, remedy):
    files = [written(tmp_path, side, f"{start}\nx\n") for side in (name, name.replace(".en", ".ha"))]
    with pytest.raises(ValueError, match=rf"{name} cannot be read\. Convert it, and move it away: .*{remedy}"):
        texts_of(files, LANGUAGES)


def test_endings_count_whatever_their_case(tmp_path):
    for name, text in (("train.EN", "a\n"), ("train.HA", "b\n"), ("train2.TSV", "en\tha\nc\td\n")):
        written(tmp_path, name, text)
    texts = texts_of([tmp_path], LANGUAGES)["train"]
    assert [pair for text in texts for pair in text.pairs()] == [("a", "b"), ("c", "d")]
    written(tmp_path, "train.SRT", "1\n")
    with pytest.raises(ValueError, match=r"train\.SRT cannot be read"):
        texts_of([tmp_path], LANGUAGES)


def test_small_text_is_given_to_git_and_large_text_to_dvc(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.corpus.own_text.IN_GIT", 9)
    for text, line in (("a", "git add {0} params.yaml"), ("a" * 10, "dvc add {0} && git add {0}.dvc {1}/.gitignore")):
        written(tmp_path, "train.en", text)
        assert commit_command(tmp_path, Path("params.yaml")).startswith(line.format(tmp_path, tmp_path.parent))
