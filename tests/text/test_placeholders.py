"""Placeholders become numbers, in training pairs those of both sides; a translation gets them back."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from text.test_text import nasty, side

from transformer.text.bpe import Merges, learn_merges
from transformer.text.characters import normalise
from transformer.text.marks import SPACE, join
from transformer.text.placeholders import (
    KINDS,
    NUMBERS,
    count_kept,
    disagree,
    placeholders,
    protect,
    protect_pair,
    restore,
)
from transformer.text.words import Side

parts = st.sampled_from(["%s", "%1$d", "{a}", "<b>", "&amp;", "_F", "&F", " ", "①", "⑯", "12345", "a@b.de", "😀", "▁"])
mixed = st.lists(parts | nasty, max_size=25).map("".join)

LINES = {  # line -> its placeholders
    "Siehe http://a.de/x?y=1&z=2. Oder (www.b.org/%20), ftp://c": ["http://a.de/x?y=1&z=2", "www.b.org/%20", "ftp://c"],
    "Mail an a.b+c@d-e.co.uk.": ["a.b+c@d-e.co.uk"],
    '<b>fett</b>, <a href="x y">Seite</a><br/>; a < b und c > d': ["<b>", "</b>", '<a href="x y">', "</a>", "<br/>"],
    "<Datei> <q id='1' n=\"\"/> <x  y='1'> <x y='a  b'> <x y=1>": ["<q id='1' n=\"\"/>"],
    "R&amp;D &#228; &nbsp": ["&amp;", "&#228;", "&"],
    "{name} ${name} {0} {} { a }": ["{name}", "${name}", "{0}", "{}"],
    "%s %1$d %(name)s %-5.2f %lu %ds 50% der 50 %, 50 % in 100%ige %%": [
        *["%s", "%1$d", "%(name)s", "%-5.2f", "%lu", "%d", "%%"]
    ],
    "%1 von %2, %L3, 5%1": ["%1", "%2", "%L3"],
    "👩\u200d👩\u200d👧 😀😀! 🇩🇪 1\ufe0f\u20e3 👍🏽": ["👩\u200d👩\u200d👧", "😀😀", "🇩🇪", "1\ufe0f\u20e3", "👍🏽"],
    "{{ name }} {0, number} %name% $name --option-x -- $5": [
        "{{ name }}",
        "{0, number}",
        "%name%",
        "$name",
        "--option-x",
    ],
    "%Y-%m-%d um %H:%M und %d/%d, also %a, %d. %b": ["%Y-%m-%d", "%H:%M", "%d", "%d", "%a, %d. %b"],
    "Open <filename>%1</filename> <Datei>": ["<filename>", "%1", "</filename>"],
    "%dx%d %s_%s.log %sabc%s %T $(dir) %(my-name)s": [*["%d"] * 2, *["%s"] * 4, "%T", "$(dir)", "%(my-name)s"],
    "@name@ %I64d %<PRIu64> a @ b": ["@name@", "%I64d", "%<PRIu64>"],
    "%1%2 5 %s 10%s 100%ige": ["%1", "%2", "%s", "%s"],
    "2024, 12345 und a1234567b": ["12345", "1234567"],
    "_Datei, &Datei, E_xit, a & b, _ 1": ["_", "&", "_"],
    "<0>hier</0><1/> <BR> <br > <a href=x>y</a> <Pfad > <x a=1>": [
        *["<0>", "</0>", "<1/>", "<BR>", "<br >", "<a href=x>", "</a>"],
    ],
    "%<n>s %<p>.2f {% url 'x' %} <%= x %> %{n} 50%<b>x": [
        "%<n>s",
        "%<p>.2f",
        "{% url 'x' %}",
        "<%= x %>",
        "%{n}",
        "<b>",
    ],
    "`git log` `foo' und `bar', <code>x y</code>, eins[^1]": ["`git log`", "<code>x y</code>", "[^1]"],
    "**ein Hund** im *Gras*, [Seite]{1}, 2*3 * 4, ***": ["**", "**", "*", "*", "[", "]{1}"],
    "{n, plural, one {# Hund} other {{a}s # Hunde}} {a}": ["{n, plural, one {# Hund} other {{a}s # Hunde}}", "{a}"],
    "-I sah -a und (-b), -C, E-a; -Ich, :name, [[Seite]]": ["-a", "-b", "-C"],
    "\U0001f3f4\U000e0067\U000e0062\U000e007f!": ["\U0001f3f4\U000e0067\U000e0062\U000e007f"],
    "Ein Hund rennt im Gras. 1.234,5 %": [],
}


@pytest.mark.parametrize("line", LINES)
def test_a_placeholder_is_found(line):
    assert placeholders(line) == LINES[line]
    assert [restore(text, values) for text, values in [protect(line)]] == [line]


@given(mixed)
@settings(deadline=None, max_examples=80)
@example("①② %s" + "%d" * 20)
@example("%s" * 20)
def test_a_protected_line_comes_back(line):
    assert restore(*protect(line)) == line


@given(mixed, st.sampled_from(["de", "zh"]), st.sampled_from(["none", "nfc"]))
@settings(deadline=None, max_examples=80)
def test_a_protected_line_comes_back_from_its_subwords(line, code, form):
    protecting = side(code, False, form, True)
    subwords = merges().subwords(protecting.tokens(line))
    restored = protecting.restore(join(subwords), line)
    assert normalise(restored, form) == " ".join(normalise(line, form).split())
    assert all(subword in NUMBERS or not set(subword) & set(NUMBERS) for subword in subwords)


@cache
def merges() -> Merges:
    """Merges of a text with a placeholder in each word."""
    return Merges(learn_merges(Counter(side("zh", placeholders=True).tokens("a%sb %sc ab%s <b>ab</b> " * 9)), 40))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("%s of %d", "%d von %s", ("① of ②", "② von ①")),
        ("%s %s %s", "%s, %s", ("① ② %s", "①, ②")),  # the third is text
        ("{a} %s", "%s", ("{a} ①", "①")),
        ("%s", "%d", ("%s", "%d")),
        ("① %s", "%s", ("① %s", "%s")),
        ("_File %s", "%s-_Datei", ("①File ②", "②-①Datei")),
        ("%d" * 17, "%d" * 17, (f"{NUMBERS}%d", f"{NUMBERS}%d")),
        ("", "%s", ("", "%s")),
    ],
)
def test_a_pair_has_numbers_for_what_both_sides_have(source, target, expected):
    assert protect_pair(source, target) == expected


def test_an_odd_number_in_a_translation_gives_its_text():
    values = protect("%s of {a}")[1]
    assert restore("② ② ③ von ①", values) == "{a} {a}  von %s"
    assert restore("① ⑤", protect("①")[1]) == "① ⑤"  # numbers of the line itself


def test_a_number_is_a_token_without_a_space_mark():
    both = Side("de", lowercase=True, placeholders=True)
    assert both.tokens("Die Datei (%s) {A}") == ["▁die", "▁datei", "▁(", "①", ")", SPACE, "②"]
    assert both.split("①A %s") == [SPACE, "①", "a", "▁%", "s"]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("%s of %d", "%2$d von %1$s", False),
        ("%s of %d", "%1$d von %2$s", True),
        ("%s of %d", "%d von %s", True),
        ("%-5d%%, {a}, %(b)s, %1", "{a} %1$-5d%%, %1, %(b)s", False),
        ("%1$s of %2$s", "%s von %s", False),
        ("%s of %s", "%1$s", True),
        ("%1", "%1$s", True),
    ],
)
def test_the_number_of_an_argument_is_another_notation(source, target, expected):
    assert disagree(source, target) == disagree(target, source) == expected


def test_lines_that_keep_their_placeholders_are_counted():
    lines = [("%s a", "b %s", "c %s"), ("%s", "%s", "x"), ("%s", "%d", "%s"), ("a", "b", "c"), ("%s", "%s", "%s %s")]
    assert count_kept(lines) == (1, 3)
    order = [("{a} {b}", "{b} {a}", "{b} {a}"), ("%s %d", "%s %d", "%d %s"), ("%1$s %2$d", "%s %d", "%2$d %1$s")]
    assert [count_kept([line]) for line in order] == [(1, 1), (0, 1), (1, 1)]


def test_each_kind_of_placeholder_has_an_example():
    import regex

    missing = [kind for kind, pattern in KINDS.items() if not any(regex.search(pattern, line) for line in LINES)]
    assert missing == []
