"""The rules of the filter, what they count, which of equal pairs is kept, and what of the test text is in train."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import ROOT

from transformer.corpora.filtering import ODD_PAIRS, SHOWN, Report, Screen, mark_duplicates, rule_names
from transformer.corpora.overlap import Overlap, TestText, trigrams
from transformer.corpora.rules import FilterConfig, alphabetic_share, figures, other_languages, rules
from transformer.text.blocks import blocks, map_in_order

OFF = {
    "normalise": "none",
    "filter_empty": False,
    "filter_max_characters": 0,
    "filter_max_ratio": 0.0,
    "filter_identical": False,
    "filter_duplicates": "none",
    "filter_min_alphabetic": 0.0,
    "filter_max_word": 0,
    "filter_numbers": False,
    "filter_script": False,
    "filter_language": False,
}
GERMAN = "Der alte Mann sitzt mit seinem Hund auf einer Bank im Park."
ENGLISH = "The old man is sitting on a bench in the park with his dog."


def drops(source: str, target: str, languages=("de", "en"), **knobs) -> list[str]:
    """The rules that would drop a pair."""
    config = FilterConfig(**{**OFF, **knobs})
    return [name for name, rule in rules(config, *languages).items() if rule(source, target)]


CASES = [
    ({"filter_empty": True}, ("", "a"), ("a", "b")),
    ({"filter_empty": True}, ("a", ""), ("a", "b")),
    ({"filter_max_characters": 3}, ("abcd", "a"), ("abc", "abc")),
    ({"filter_max_ratio": 2.0}, ("abc", "a"), ("ab", "a")),
    ({"filter_max_ratio": 2.0}, ("", "a"), ("", "")),
    ({"filter_identical": True}, ("Berlin", "Berlin"), ("Berlin", "berlin")),
    ({"filter_min_alphabetic": 0.5}, ("a 12 ...", "one"), ("ab 12", "one")),
    ({"filter_min_alphabetic": 0.5}, ("ok", "---"), ("", "一只狗")),
    ({"filter_max_word": 4}, ("aaaaa b", "c"), ("aaaa bbbb", "c")),
    ({"filter_numbers": True}, ("Im Jahr 1984", "In 1985"), ("1984 und 7", "7 and 1984")),
    ({"filter_numbers": True}, ("sehen Sie www.a.de", "see www.b.de"), ("1.000,50 an a@b.de", "1,000.50 to a@b.de")),
    ({"filter_numbers": True}, ("um 10:30", "at 10:31"), ("um 10.30", "at 10:30")),
    ({"filter_numbers": True}, ("1.5", "15"), ("1,5", "1.50")),
    ({"filter_numbers": True}, ("0,125", "125"), ("0,125 zu 2:1", "0.125 to 2 1")),
    ({"filter_script": True}, ("Привет, мир", "hello"), ("Grüße – 123", "Привет Hello World hello")),
    ({"filter_script": True}, ("ab где", "hello"), ("abc где", "hello")),
    ({"filter_script": True}, ("где https://a.de/abcd", "hello"), ("Hund {приветмир}", "hello")),
    ({"filter_language": True}, (GERMAN, GERMAN), (GERMAN, ENGLISH)),
    ({"filter_language": True}, (ENGLISH, "Ja."), (f"Ja. <a title='{ENGLISH}'>Nein</a>", "Ja.")),
    ({"filter_language": True}, (ENGLISH, ENGLISH), ("Ja.", "Nein.")),
]


@pytest.mark.parametrize(("knobs", "dropped", "kept"), CASES)
def test_a_rule_drops_what_it_says_and_nothing_else(knobs, dropped, kept):
    (name,) = knobs
    assert drops(*dropped, **knobs) == [name.removeprefix("filter_")]
    assert drops(*kept, **knobs) == []


def test_a_script_rule_knows_the_scripts_of_its_languages():
    for languages, pair in (
        (("zh", "en"), ("一只狗在跑。", "A dog runs.")),
        (("ja", "th"), ("犬が走る", "สุนัขวิ่ง")),
        (("sr", "ru"), ("Zdravo svete", "Привет")),
    ):
        assert drops(*pair, languages, filter_script=True) == []
        assert drops(*reversed(pair), languages, filter_script=True) == ["script"]


@given(st.text(max_size=30))
@settings(deadline=None)
def test_rules_accept_any_text(line):
    assert 0 <= alphabetic_share(line) <= 1
    assert figures(line) == figures(line)
    everything = {name: {bool: True, int: 5, float: 0.5, str: "pair"}[type(value)] for name, value in OFF.items()}
    drops(line, "a", **everything)


def corpus(folder: Path, pairs: list[tuple[str, str]]) -> list[Path]:
    """Two parallel files."""
    paths = [folder / "train.src", folder / "train.tgt"]
    for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8", newline="\n")
    return paths


def filtered(
    folder: Path, pairs: list[tuple[str, str]], size: int = 3, tests=None, files=(), **knobs
) -> tuple[list[int], Report]:
    """The numbers of the kept pairs, from 1, and the report."""
    config = FilterConfig(**{**OFF, **knobs})
    report = Report(rule_names(config, "de", "en"), files)
    make = partial(Screen, config, "de", "en", TestText(tests or {}))
    kept: list[int] = []
    for block, reasons in mark_duplicates(map_in_order(make, blocks(*corpus(folder, pairs), size=size)), report.names):
        report.add(block, reasons)
        kept += (block.block.first + np.flatnonzero(reasons == 0)).tolist()
    return kept, report


PAIRS = [("a", "b"), ("", "c"), ("a", "b"), ("x", "x"), ("a", "d"), ("", ""), ("e", "d"), ("a", "b")]


def test_a_pair_that_another_rule_drops_hides_no_later_one(tmp_path):
    pairs = [("aaaa", "b"), ("a", "b"), ("a", "c")]
    assert filtered(tmp_path, pairs, filter_duplicates="side", filter_max_characters=3)[0] == [2]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=30),
    st.integers(1, 7),
    st.sampled_from(["pair", "side"]),
)
@settings(deadline=None, max_examples=15)
def test_duplicates_do_not_depend_on_the_size_of_blocks(tmp_path_factory, pairs, size, kind):
    expected, seen = [], set()
    for number, (source, target) in enumerate(pairs, start=1):
        keys = {(source, target)} if kind == "pair" else {("s", source), ("t", target)}
        if not keys & seen:
            expected.append(number)
            seen |= keys
    numbers, _ = filtered(tmp_path_factory.mktemp("pairs"), pairs, size, filter_duplicates=kind)
    assert numbers == expected


def test_rules_are_counted_alone_and_jointly_with_examples(tmp_path):
    kept, report = filtered(tmp_path, PAIRS, filter_empty=True, filter_identical=True, filter_duplicates="pair")
    assert kept == [1, 5, 7]
    counts = report.counts()
    assert counts["pairs"] == 8
    assert counts["kept"] == 3
    assert counts["fired"] == {"empty": 2, "identical": 2, "duplicates": 2}
    assert counts["alone"] == {"empty": 1, "identical": 1, "duplicates": 2}
    assert counts["together"] == {"empty + identical": 1}
    assert report.repetitions == 2
    assert report.examples["empty"] == [
        {"line": "2", "source": "", "target": "c"},
        {"line": "6", "source": "", "target": ""},
    ]
    assert [example["line"] for example in report.examples["duplicates"]] == ["3", "8"]
    assert report.lengths.sum(axis=1).tolist() == [8, 8]


HIDDEN = [
    ("a", "b"),
    ("\u200b", "b"),
    ("\u00ad \u200b", "b"),
    ("a\u00ad", "b"),
    ("u\u0308", "c"),
    ("ü", "c"),
    ("ü", "ü\ufeff"),
]


@pytest.mark.parametrize(
    ("form", "dropped", "kept"),
    [
        ("nfc", {"empty": 2, "identical": 1, "duplicates": 2}, [1, 5]),
        ("none", {"empty": 0, "identical": 0, "duplicates": 0}, [*range(1, 8)]),
    ],
)
def test_rules_see_lines_in_their_normal_form(tmp_path, form, dropped, kept):
    knobs = {"filter_empty": True, "filter_identical": True, "filter_duplicates": "pair"}
    numbers, report = filtered(tmp_path, HIDDEN, normalise=form, **knobs)
    assert (numbers, report.counts()["fired"]) == (kept, dropped)


def test_odd_characters_are_counted_with_examples_as_they_are(tmp_path):
    pairs = [*HIDDEN, ("x &amp; y", "&amp; GrÃ¼ÃŸe"), ("\ufffd %s", "a\x07"), ("%s {a}", "{a} %s")]
    pairs += [("ab", "abababab"), ("ab", "ababababa")]
    screen = Screen(FilterConfig(**OFF), "de", "en", TestText({}))
    odd = Report(ODD_PAIRS, [("a", 3), ("b", 9)])
    for block in map(screen, blocks(*corpus(tmp_path, pairs), size=2)):
        odd.add(block, block.odd)
    counts = {"invisible": 4, "decomposed": 1, "entity": 1, "replacement": 1, "mojibake": 1, "control": 1}
    assert {name: odd.count_fired(name) for name in ODD_PAIRS} == counts | {"placeholders": 1, "uneven": 1}
    assert [example["line"] for example in odd.examples["placeholders"]] == ["b 6"]
    assert odd.examples["decomposed"] == [{"line": "b 2", "source": "u\u0308", "target": "c"}]
    assert [example["line"] for example in odd.examples["invisible"]] == ["a 2", "a 3", "b 1", "b 4"]


def test_test_lines_in_train_are_found_exactly_and_nearly():
    long = "the quick brown fox jumps over the lazy dog near the old river bank today"
    tests = TestText({"a": (["Guten Tag!", "Ein Hund.", "x", "* * *"], [long, "A dog.", "y", "(…)"])})
    train = [
        ("guten tag", long.replace("today", "now")),
        ("Ein Hund.", "A dog."),
        ("x y z", "the quick brown fox"),
        ("Ein Hund.", "b"),
        ("* * *", "y"),  # each side is in another test pair
        ("---", ""),
    ]
    overlap = Overlap()
    for pair in train:
        overlap.add(*(tests.look_up(line, side) for side, line in enumerate(pair)))
    assert {(line.row, line.side, line.exact) for line in overlap.lines} == {
        (0, 0, False),
        (0, 1, False),
        (1, 0, True),
        (1, 1, True),
        (2, 1, True),
        (3, 0, True),
    }
    assert overlap.summary({"a": 4})["a"] == {
        "lines": 4,
        "source_exact": 2,
        "source_near": 1,
        "target_exact": 2,
        "target_near": 1,
        "pairs": 2,
    }


def test_an_example_names_its_file_and_its_line_there_and_is_cut(tmp_path):
    pairs = [("a", "b"), ("", "c"), ("", "d" * 5_000_000)]
    _, report = filtered(tmp_path, pairs, files=[("train.1.de", 2), ("train.2.de", 1)], filter_empty=True)
    assert [example["line"] for example in report.examples["empty"]] == ["train.1.de 2", "train.2.de 1"]
    assert report.examples["empty"][1]["target"] == f"{'d' * SHOWN} …"


def test_a_test_line_is_near_by_the_share_of_all_its_trigrams():
    """All lines share five of their trigrams, and each has two of its own."""
    lines = [f"this is a sentence about the number{n} {n}" for n in range(200)]
    tests = TestText({"a": (lines, [])})
    assert tests.look_up("this is a sentence about the", 0) == []
    assert [line.row for line in tests.look_up(f"{lines[7]} and more", 0)] == [7]
    assert tests.look_up("number7 7", 0) == []


@given(
    st.lists(st.lists(st.sampled_from("abcd"), max_size=9), max_size=8), st.lists(st.sampled_from("abcd"), max_size=12)
)
@settings(deadline=None)
def test_all_near_lines_are_found_although_few_trigrams_are_looked_up(lines, train):
    matches = TestText({"a": ([" ".join(line) for line in lines], [])}).look_up(" ".join(train), 0)
    ours = trigrams(train)
    near = {
        row
        for row, line in enumerate(lines)
        if line and (line == train or (trigrams(line) and len(trigrams(line) & ours) >= 0.8 * len(trigrams(line))))
    }
    assert {line.row for line in matches} == near


def test_lines_without_spaces_are_near_by_their_characters():
    tests = TestText({"a": (["两个年轻的男人在公园里踢足球。", "สุนัขสองตัววิ่งเล่นบนหญ้า"], [])})
    assert [line.row for line in tests.look_up("两个年轻的男人在公园里踢足球，很高兴", 0)] == [0]
    assert [line.row for line in tests.look_up("สุนัขสองตัววิ่งเล่นบนหญ้าครับ", 0)] == [1]
    assert tests.look_up("一个女人在踢足球", 0) == []


def test_sides_in_other_languages_are_named():
    sides = [(ROOT / f"corpora/toy/train.{code}").read_text().split("\n")[:100] for code in ("de", "en")]
    assert other_languages(zip(*sides, strict=True), ("de-AT", "en")) == []
    swapped = other_languages(zip(*sides[::-1], strict=True), ("de", "en"))
    assert [text.split(" samples")[0] for text in swapped] == ["de: 20 of 20", "en: 20 of 20"]
    assert "look like en, by py3langid" in swapped[0]
    assert other_languages([], ("de", "en")) == []
