"""Compare experiments on the test set: significance of differences, changed sentences, deviation over seeds.

    python -m pipeline compare EXP1 EXP2 ...     names from `dvc exp show`, commits, branches, tags, or `workspace`

The first experiment is the baseline.
Reads   git and DVC's cache
Writes  reports/comparison.json
"""

import argparse
from pathlib import Path

import pandas as pd

from pipeline.tracking.results import results
from transformer.evaluation.comparison import (
    against_the_first,
    changed_most,
    check_signatures,
    differing,
    over_seeds,
    what_else,
)
from transformer.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("experiments", nargs="+", metavar="EXP", help="experiment, commit, branch, tag or `workspace`")
    parser.add_argument("--sentences", type=int, default=5, metavar="N", help="how many changed sentences to print")
    parser.add_argument("--output", type=Path, default=Path("reports/comparison.json"), metavar="PATH")
    given = parser.parse_args()
    experiments = [results(name) for name in dict.fromkeys(given.experiments)]
    for one in experiments:
        one.check_fresh()
    sources, references = (experiments[0].lines(experiments[0].raw(side)) for side in ("src", "tgt"))
    for one in experiments[1:]:
        if one.lines(one.raw("tgt")) != references:
            raise ValueError(f"{one.name} and {experiments[0].name} have different test sets. Nothing was compared.")
    systems = [one.system() for one in experiments]
    check_signatures(systems)
    knobs = differing(systems)
    rows = against_the_first(systems, references)
    for row, system in zip(rows, systems, strict=True):
        row |= {name: system.params.get(name) for name in knobs}
        if also := what_else(systems[0], system):
            row["differs_also_in"] = also
    record = {
        "signature": systems[0].signatures["bleu"],
        "systems": rows,
        "configurations": over_seeds(systems),
        "changed_most": {
            system.name: changed_most(systems[0], system, sources, references, given.sentences)
            for system in systems[1:]
        },
    }
    write_json(given.output, record)
    show(record)
    print(f"\nwritten to {given.output}")


def show(record: dict) -> None:
    """Print a comparison, in the form of reports/comparison.json."""
    systems, configurations = record["systems"], record["configurations"]
    print(f"BLEU on test, {record['signature']}\n")
    hidden = {"differs_also_in"}
    table = [{name: value for name, value in row.items() if name not in hidden} for row in systems]
    print(pd.DataFrame(table).to_string(index=False, na_rep=""))
    for row in systems:
        if also := row.get("differs_also_in"):
            print(f"\n{row['name']} and {systems[0]['name']} differ also in {also}")
    if len(systems) > 1:
        print("\np: how often equally good systems differ as much on sentences like these (bootstrap, randomisation).")
        print("It holds for these translations. Other seeds make a difference too: to judge a knob, train several.")
    if len(systems) > 2:
        print("..._holm: the same after Holm's correction for the number of comparisons.")
    if any(row["runs"] > 1 for row in configurations):
        print(
            "\nmeans over seeds"
            + (
                ", p_seeds by Welch's t-test between the seeds of a row and of the first row"
                if any("p_seeds" in row for row in configurations)
                else ""
            )
            + "\n"
        )
        print(pd.DataFrame(configurations).to_string(index=False, na_rep=""))
    for name, sentences in record["changed_most"].items():
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
