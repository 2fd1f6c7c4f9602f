"""Compare experiments on the test set: significance of differences, changed sentences, deviation over seeds.

    python -m pipeline compare EXP1 EXP2 ...     names from `dvc exp show`, commits, branches, tags, or `workspace`

The first experiment is the baseline.
Reads   git and DVC's cache
Writes  reports/comparison.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.workflow.dvc_lock import Result, result_of
from transformer.evaluation.comparison import (
    changed_most,
    check_signatures,
    compare_with_first,
    differing_knobs,
    means_over_seeds,
    what_else,
)
from transformer.files import Mistake, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("experiments", nargs="+", metavar="EXP", help="experiment, commit, branch, tag or `workspace`")
    parser.add_argument("--sentences", type=int, default=5, metavar="N", help="how many changed sentences to print")
    parser.add_argument("--output", type=Path, default=Path("reports/comparison.json"), metavar="PATH")
    options = parser.parse_args()
    names = list(dict.fromkeys(options.experiments))
    if len(names) < 2:
        raise Mistake(f"{names[0]} is one result. Nothing was compared. Name two, such as HEAD and workspace.")
    table = comparison([result_of(name) for name in names], options.sentences)
    write_json(options.output, table)
    print_comparison(table)
    print(f"\nwritten to {options.output}")


def comparison(experiments: list[Result], sentences: int) -> dict[str, Any]:
    """The comparison of experiments with the first. sentences: how many of those that changed most it contains.

    Raises Mistake if a result is not complete, or if test sets or signatures differ.
    """
    first = experiments[0]
    for experiment in experiments:
        experiment.remark_edits()
    sources, references = (first.lines(first.raw(side)) for side in ("src", "tgt"))
    for experiment in experiments[1:]:
        if experiment.lines(experiment.raw("tgt")) != references:
            raise Mistake(f"{experiment.name} and {first.name} have different test sets. Nothing was compared.")
    systems = [experiment.system() for experiment in experiments]
    check_signatures(systems)
    knobs = differing_knobs(systems)
    rows = compare_with_first(systems, references)
    for row, system in zip(rows, systems, strict=True):
        row |= {name: system.params.get(name) for name in knobs}
        if also := what_else(systems[0], system):
            row["differs_also_in"] = also
    changed = {system.name: changed_most(systems[0], system, sources, references, sentences) for system in systems[1:]}
    return {
        "signature": systems[0].signatures["bleu"],
        "systems": rows,
        "configurations": means_over_seeds(systems),
        "changed_most": changed,
    }


def print_comparison(table: dict) -> None:
    """Print a comparison, in the form of reports/comparison.json."""
    systems, configurations = table["systems"], table["configurations"]
    print(f"BLEU on test, {table['signature']}\n")
    print(pd.DataFrame(systems).drop(columns="differs_also_in", errors="ignore").to_string(index=False, na_rep=""))
    for row in systems:
        if also := row.get("differs_also_in"):
            print(f"\n{row['name']} and {systems[0]['name']} differ also in {also}")
    if len(systems) > 1:
        print("\np: the chance of this difference or a larger one if both were equally good (randomisation).")
        print("It holds for these translations. Other seeds make a difference too: to judge a knob, train several.")
    if len(systems) > 2:
        print("..._holm: the same after Holm's correction for the number of comparisons.")
    if any(row["runs"] > 1 for row in configurations):
        tested = any("p_seeds" in row for row in configurations)
        test = ", p_seeds by Welch's t-test between the seeds of a row and of the first row" if tested else ""
        print(f"\nmeans over seeds{test}\n")
        print(pd.DataFrame(configurations).to_string(index=False, na_rep=""))
    for name, sentences in table["changed_most"].items():
        print(f"\n{name}: sentences that changed most, by chrF")
        for row in sentences:
            print(
                f"\n  line {row['line']}, {row['change']:+}",
                f"  source     {row['source']}",
                f"  reference  {row['reference']}",
                f"  before     {row['before']}",
                f"  after      {row['after']}",
                sep="\n",
            )
