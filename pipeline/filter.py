"""Stage filter: drop training pairs that are no translations, by rules, and count such pairs in valid and test sets.

Reads   data/raw
Writes  data/filtered: train.{src,tgt}, the kept pairs; train.lines.npy, the line of each in data/raw; filter.json: how
        many pairs each rule dropped, alone and jointly, with examples; how many it would drop of valid and of the test
        sets, which are never filtered; lengths; odd characters; and how many test lines occur in train
Params  source, target, test_sets, normalise, and the rules: all knobs that begin with filter_
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, bar, require, run
from transformer.corpora.filtering import ODD_PAIRS, Report, Screen, mark_duplicates, rule_names, summary
from transformer.corpora.overlap import TestText
from transformer.corpora.rules import FilterConfig, other_languages
from transformer.files import Untrainable, read_json, read_lines, whole_folder, write_json
from transformer.text.array_file import ArrayFile
from transformer.text.blocks import blocks, map_in_order
from transformer.text.characters import normalise

SIDES = ("src", "tgt")


def main() -> None:
    paths = arguments(__doc__, raw="data/raw", filtered="data/filtered")
    params = Params.load(paths.params)
    test_sets = params.test_sets.split()
    texts = {split: [paths.raw / f"{split}.{side}" for side in SIDES] for split in ("train", "valid", *test_sets)}
    require(*(path for both in texts.values() for path in both), paths.raw / "train.files.json")
    settings = params.take(FilterConfig), params.source, params.target
    tests: Any = {
        name: tuple([normalise(line, params.normalise).strip() for line in read_lines(path)] for path in texts[name])
        for name in test_sets
    }
    files = read_json(paths.raw / "train.files.json")
    with whole_folder(paths.filtered) as folder:
        report, odd = Report(rule_names(*settings), files), Report(ODD_PAIRS, files)
        write_kept(texts["train"], partial(Screen, *settings, TestText(tests)), report, odd, folder)
        if not report.kept:
            raise Untrainable(f"{paths.raw}: no training pair is left by the rules {', '.join(report.names)}.")
        unfiltered = {split: Report(report.names) for split in ("valid", *test_sets)}
        for split, counts in unfiltered.items():
            for block in map(Screen(*settings, TestText({})), blocks(*texts[split])):
                counts.add(block, block.reasons)
        lines = zip(*map(read_lines, texts["train"]), strict=True)
        languages = other_languages(lines, (params.source, params.target))
        contents = {**summary(report, odd, unfiltered, test_sets), "languages": languages}
        write_json(folder / "filter.json", contents)
    print(report.describe(), *languages, sep="\n")
    for split, counts in unfiltered.items():
        if empty := counts.count_fired("empty"):
            print(f"{split}: {empty:,} pairs have an empty side. They are kept and scored as they are.")
    for name, overlap in contents["overlap"].items():
        if 100 * overlap["pairs"] >= overlap["lines"]:
            share = f"{overlap['pairs']:,} of {overlap['lines']:,}"
            print(f"{name}: {share} test pairs are also in train, exactly or nearly. Scores on them flatter the model.")


def write_kept(texts: Sequence[Path], make: Callable[[], Screen], report: Report, odd: Report, folder: Path) -> None:
    """Write the training pairs that no rule drops. Count all in `report`, and their odd characters in `odd`."""
    with ExitStack() as stack:
        files = [stack.enter_context(open(folder / f"train.{side}", "wb")) for side in SIDES]
        lines = stack.enter_context(ArrayFile(folder / "train.lines.npy", np.int64))
        progress = stack.enter_context(bar(0, "pair", "filter"))
        for screened, reasons in mark_duplicates(map_in_order(make, blocks(*texts)), report.names):
            report.add(screened, reasons)
            odd.add(screened, screened.odd)
            kept = np.flatnonzero(reasons == 0)
            for file, text in zip(files, screened.block.bytes(), strict=True):
                file.write(text if len(kept) == len(reasons) else rows_of(text, kept))
            lines.add(screened.block.first + kept)
            progress.update(len(reasons))


def rows_of(text: bytes, rows: np.ndarray) -> bytes:
    """Some lines of a text of several lines."""
    lines = text.split(b"\n")
    return b"".join(lines[row] + b"\n" for row in rows.tolist())


if __name__ == "__main__":
    run(main)
