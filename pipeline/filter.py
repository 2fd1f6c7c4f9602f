"""Stage filter: drop training pairs that are no translations, by rules, and count such pairs in valid and test sets.

Reads   data/raw
Writes  data/filtered: train.{src,tgt}, the kept pairs; train.lines.npy, the line of each in data/raw;
        train.files.json, the files of train with their numbers of lines, if there are several; filter.json, what each
        rule dropped, alone and jointly, with examples; what it would drop of valid and of the test sets, which are
        kept; lengths; and which test lines occur in train
Params  source, target, test_sets, and the rules: all knobs that begin with filter_
"""

from __future__ import annotations

import json
from argparse import Namespace
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, bar, require, run
from transformer.cores import in_order
from transformer.corpora.filtering import DUPLICATE, LENGTH_STEP, Report, Screen, with_duplicates
from transformer.corpora.overlap import TestText
from transformer.corpora.rules import FilterConfig, rules
from transformer.files import blocks, read_lines, whole_folder, write_json
from transformer.text.array_file import ArrayFile

SIDES = ("src", "tgt")


def main() -> None:
    paths = arguments(__doc__, raw="data/raw", filtered="data/filtered")
    params = Params.load(paths.params)
    require(
        *(paths.raw / f"{split}.{side}" for split in ("train", "valid", *params.test_sets.split()) for side in SIDES)
    )
    with whole_folder(paths.filtered) as folder:
        report, others = filtered(paths, params, folder)
        sizes = {name: others[name].combinations.total() for name in params.test_sets.split()}
        counts = report.counts()
        if not counts["kept"]:
            raise ValueError(f"{paths.raw}: no training pair is left by the rules {', '.join(report.names)}.")
        parts = paths.raw / "train.parts.json"
        files = json.loads(parts.read_text(encoding="utf-8")) if parts.is_file() else []
        write_json(folder / "train.files.json", [[one["source"], one["lines"]] for one in files])
        write_json(folder / "filter.json", {
            **counts, "examples": report.examples, "length_step": LENGTH_STEP, "lengths": report.lengths.tolist(),
            "others": {name: one.counts() | {"lengths": one.lengths.tolist()} for name, one in others.items()},
            "overlap": report.overlap.summary(sizes), "found": report.overlap.listed(1000),
        })  # fmt: skip
    dropped = ", ".join(f"{name} {count:,}" for name, count in counts["fired"].items() if count)
    print(
        f"{counts['kept']:,} of {counts['pairs']:,} training pairs kept"
        + (f"; dropped by {dropped}" if dropped else "")
    )
    for name, other in others.items():
        if empty := other.counts()["fired"].get("empty"):
            print(f"{name}: {empty:,} pairs have an empty side. They are kept and scored as they are.")


def filtered(paths: Namespace, params: Params, folder: Path) -> tuple[Report, dict[str, Report]]:
    """Write the kept training pairs. Returns the report of train, and those of valid and the test sets by name."""
    config = params.take(FilterConfig)
    names = [*rules(config, params.source, params.target)]
    texts: Any = {
        name: tuple([*read_lines(paths.raw / f"{name}.{side}")] for side in SIDES) for name in params.test_sets.split()
    }
    make: Any = partial(Screen, config, params.source, params.target, TestText(texts))
    bit = None if config.filter_duplicates == "none" else len(names)
    report = Report(names if bit is None else [*names, DUPLICATE])
    split = [
        blocks(*(paths.raw / f"{name}.{side}" for side in SIDES))
        for name in ("train", "valid", *params.test_sets.split())
    ]
    screened = in_order(make, split[0])
    with ExitStack() as stack:
        files = [stack.enter_context(open(folder / f"train.{side}", "wb")) for side in SIDES]
        lines = stack.enter_context(ArrayFile(folder / "train.lines.npy", np.int64))
        progress = stack.enter_context(bar(0, "pair", "filter"))
        for block, reasons in with_duplicates(screened, bit):
            report.add(block, reasons)
            kept = np.flatnonzero(reasons == 0)
            for file, text in zip(files, block.block.bytes(), strict=True):
                file.write(text if len(kept) == len(reasons) else rows_of(text, kept))
            lines.add(block.block.first + kept)
            progress.update(len(reasons))
    others = {}
    for name, parts in zip(("valid", *params.test_sets.split()), split[1:], strict=True):
        others[name] = Report(names)
        for block in map(Screen(config, params.source, params.target, TestText({})), parts):
            others[name].add(block, block.reasons)
    return report, others


def rows_of(text: bytes, rows: np.ndarray) -> bytes:
    """Some lines of a text of several lines."""
    lines = text.split(b"\n")
    return b"".join(lines[row] + b"\n" for row in rows.tolist())


if __name__ == "__main__":
    run(main)
