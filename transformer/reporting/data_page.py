"""The report of a corpus as one HTML page, for a look before training: samples, what was dropped, odd characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from transformer.reporting.charts import specification
from transformer.reporting.page import render

RULES = {  # name in filter.json -> what the rule drops
    "empty": "an empty side",
    "max_characters": "a side that is too long",
    "max_ratio": "one side much longer than the other",
    "identical": "two equal sides",
    "duplicates": "a pair, or a side, that occurred before",
    "min_alphabetic": "few letters on a side",
    "max_word": "a very long word",
    "numbers": "other numbers or addresses on one side",
    "script": "a script that the language does not use",
    "language": "another language, by py3langid",
}
ODD = {  # name in filter.json -> what is odd
    "invisible": "invisible: soft hyphen, zero-width space, marks of direction",
    "decomposed": "not in the form NFC, such as u + U+0308 for ü",
    "entity": "HTML entities, such as &amp;",
    "replacement": "U+FFFD, which stands for a character that was lost",
    "mojibake": "UTF-8 read as another encoding, such as Ã¼ for ü",
    "control": "control characters",
    "placeholders": "placeholders, such as %s, {name} or an address, that only one side has",
    "uneven": "one side more than four times as long as the other, as where pairs were glued",
    "repeated": "pairs that occurred before",
}


def each_line(expression: str, module: str) -> str:
    """The command that puts an expression in the place of each line of FILE, a text file of the corpus."""
    code = f"import {module}, sys; [print({expression}) for line in sys.stdin.read().split(chr(10))[:-1]]"
    return f'python -X utf8 -c "{code}" <FILE >NEW'


REMEDY = {  # name in ODD -> what to type
    "invisible": "dvc exp run -S normalise=nfc",
    "decomposed": "dvc exp run -S normalise=nfc",
    "entity": each_line("' '.join(html.unescape(line).split())", "html"),
    "replacement": "the text is lost: get it again from where it came from",
    "mojibake": "pip install ftfy && "
    + each_line("ftfy.fix_text(line, fix_line_breaks=False, uncurl_quotes=False, fix_character_width=False)", "ftfy"),
    "control": "tr '\\001-\\010\\016-\\037\\177' ' ' <FILE >NEW",
    "placeholders": "dvc exp run -S placeholders=true, which numbers those of both sides",
    "uneven": "dvc exp run -S filter_max_ratio=4.0",
    "repeated": "dvc exp run -S filter_duplicates=pair",
}
OVERLAP = {
    "source_exact": "source, exactly",
    "source_near": "source, nearly",
    "target_exact": "target, exactly",
    "target_near": "target, nearly",
    "pairs": "both sides in one pair",
}


def data_page(
    name: str,
    corpus: Mapping[str, Any],
    filtered: Mapping[str, Any],
    subwords: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
) -> str:
    """The page of a corpus.

    name: of the corpus. corpus: corpus.json. filtered: filter.json. subwords: subwords.json. samples: training pairs,
    each with line, source and target.
    """
    languages = corpus["source"], corpus["target"]
    chart = length_chart(filtered["lengths"], filtered["length_step"], languages)
    return render(
        "data",
        corpus=f"{name}, {languages[0]} to {languages[1]}",
        lead=lead(filtered, corpus),
        samples=samples,
        rules=rule_rows(filtered),
        together=[{"rules": rules, "pairs": f"{count:,}"} for rules, count in filtered["together"].items()],
        examples={RULES[name]: rows for name, rows in filtered["examples"].items() if rows},
        normalise=corpus["normalise"],
        placeholders=corpus["placeholders"],
        odd=odd_rows(filtered),
        odd_examples={ODD[name]: spell_hidden(odd["examples"]) for name, odd in filtered["odd"].items()},
        splits=split_rows(filtered),
        subwords=subword_rows(subwords),
        overlap=[
            {"test set": name, "lines": f"{row['lines']:,}"}
            | {title: share(row[key], row["lines"]) for key, title in OVERLAP.items()}
            for name, row in filtered["overlap"].items()
        ],
        charts={"lengths": specification(chart)},
    )


def lead(filtered: Mapping[str, Any], corpus: Mapping[str, Any]) -> str:
    """How many pairs there are, how many each step dropped, how many are left, and whether in other languages."""
    dropped, encode = filtered["pairs"] - filtered["kept"], corpus["dropped_pairs"]
    left = " ".join([f"{corpus['train_pairs']:,} are left.", *filtered["languages"]])
    return (
        f"{filtered['pairs']:,} training pairs, {share(filtered['repeated'], filtered['pairs'])} of which occurred "
        f"before. The filter dropped {dropped:,}. The stage encode dropped {encode:,}, which have an empty side or "
        f"more than {corpus['max_length']} subwords. {left}"
    )


def spell_hidden(examples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Examples in which characters that cannot be seen, or that change the one before them, are spelled: ⟨U+00AD⟩."""

    def spell(text: object) -> str:
        return "".join(
            f"⟨U+{ord(c):04X}⟩" if unicodedata.category(c) in ("Cf", "Cc") or "\u0300" <= c <= "\u036f" else c
            for c in str(text)
        )

    return [{name: spell(text) for name, text in example.items()} for example in examples]


def share(count: int, of: int) -> str:
    """A count, and its share in percent."""
    return f"{count:,} ({100 * count / max(1, of):.1f}%)" if count else "0"


def rule_rows(filtered: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for each rule that is on: pairs that it would drop, and those that no other rule would drop."""
    return [
        {
            "a training pair is dropped for": RULES[name],
            "pairs": share(count, filtered["pairs"]),
            "by this rule alone": share(filtered["alone"][name], filtered["pairs"]),
        }
        for name, count in filtered["fired"].items()
    ]


def odd_rows(filtered: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for each kind of oddness: the training pairs that have it and, if there are some, what to type."""
    counts = {name: odd["pairs"] for name, odd in filtered["odd"].items()} | {"repeated": filtered["repeated"]}
    return [
        {
            "what is odd": title,
            "training pairs": share(counts[name], filtered["pairs"]),
            "what helps, unless params.yaml has it": REMEDY[name] if counts[name] else "",
        }
        for name, title in ODD.items()
    ]


def split_rows(filtered: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for valid and each test set: its pairs, and how many of them the rules would drop from train."""
    return [
        {
            "split": name,
            "pairs": f"{row['pairs']:,}",
            "a rule fires for": share(row["pairs"] - row["kept"], row["pairs"]),
        }
        for name, row in filtered["others"].items()
    ]


def subword_rows(subwords: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for each split and side."""
    return [
        {
            "split": split,
            "side": side,
            "words": f"{row['words']:,}",
            "subwords": f"{row['subwords']:,}",
            "subwords per word": f"{row['subwords_per_word']:.3f}",
            "<unk>": f"{row['unknown_rate']:.3%}",
            "of the vocabulary": f"{row['vocabulary_coverage']:.1%}",
        }
        for split, sides in subwords.items()
        for side, row in sides.items()
    ]


def length_chart(lengths: list[list[int]], step: int, languages: tuple[str, str]) -> alt.Chart:
    """The training lines of each side by their number of characters."""
    names = [f"source, {languages[0]}", f"target, {languages[1]}"]
    used = max((bar for counts in lengths for bar, count in enumerate(counts) if count), default=0) + 1
    rows = [
        {"side": name, "from": step * bar, "to": step * (bar + 1), "middle": step * (bar + 0.5), "lines": count}
        for name, counts in zip(names, lengths, strict=True)
        for bar, count in enumerate(counts[:used])
    ]
    colour = alt.Color("side:N", title=None, sort=names, legend=alt.Legend(orient="top", labelLimit=0))
    last = f" (the last point: all from {step * (len(lengths[0]) - 1)} on)" if used == len(lengths[0]) else ""
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(strokeWidth=2, point=True)
        .encode(
            alt.X("middle:Q", title=f"characters of a line{last}"),
            alt.Y("lines:Q", title="training lines"),
            colour,
            tooltip=["side:N", "from:Q", "to:Q", alt.Tooltip("lines:Q", format=",d")],
        )
        .properties(width="container", height=260)
    )
