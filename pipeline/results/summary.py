"""Show your experiments on one page: scores, means over seeds, and the effect of each knob.

    python -m pipeline summary              # DVC experiments, HEAD and the work tree
    python -m pipeline summary --history    # also the results of all other commits that changed dvc.lock

The effect of a knob is measured between results that are equal in all else: knobs, data, versions and machine.

Reads   git: DVC experiments and commits; the work tree
Writes  reports/experiments.html
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pandas as pd

from pipeline.workflow.dvc_lock import NoResult, Result, queue_entries, stored_results
from pipeline.workflow.stage import bar
from transformer.evaluation.comparison import System, means_over_seeds
from transformer.evaluation.knob_effects import effects, remarks, score_table
from transformer.files import Mistake, write_text
from transformer.reporting.knob_page import page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", action="store_true", help="also the results of all other commits")
    parser.add_argument("--output", type=Path, default=Path("reports/experiments.html"), metavar="PATH")
    options = parser.parse_args()
    systems, left_out = read_systems(options.history)
    if not systems:
        raise Mistake("\n".join(["There are no results yet. Run `dvc repro`, or add --history.", *left_out]))
    write_text(options.output, page(systems, left_out))
    print_table(score_table(systems))
    print("".join(f"\n{line}\n" for line in remarks(systems)), end="")
    if means := [row for row in means_over_seeds(systems) if row["runs"] > 1]:
        print_table(means, "means over seeds")
    if changes := effects(systems):
        print_table(changes, "effect of each knob, all else equal: mean change of BLEU")
    print("".join(f"\nleft out: {line}\n" for line in left_out), end="")
    if waiting := [entry for entry in queue_entries() if entry["status"] in ("Queued", "Running")]:
        print(f"\nremark: {len(waiting)} experiments of the queue have not ended: dvc queue status")
    print(f"\nwritten to {options.output}")


def print_table(rows: list[dict], title: str = "") -> None:
    """Print a table."""
    print(f"\n{title}\n\n" if title else "", pd.DataFrame(rows, dtype=object).to_string(index=False, na_rep=""), sep="")


def read_systems(history: bool) -> tuple[list[System], list[str]]:
    """Each configuration that has scores, and a line for each result that is not shown, with the reason.

    Several results with the same knobs, data, versions and machine are one, under the name of the first.
    """
    systems: dict[str, System] = {}
    left_out: list[str] = []
    candidates: list[Result] = [*(results for results, _ in stored_results(history)), Result()]
    with bar(len(candidates), " results", "reading") as progress:
        for results in candidates:
            try:
                system = results.system(translations=False)
                # The machine is added to what the scores are made from, so that only results of equal machines are
                # compared.
                system = replace(system, made_from={**system.made_from, "machine": system.machine})
                alike = {part: names for part, names in system.made_from.items() if part != "code"}
                first = systems.setdefault(repr((sorted(system.params.items()), alike)), system)
                if first is not system and results.commit is not None:
                    left_out.append(
                        f"{system.name}: BLEU {system.scores['bleu']:.2f}, in all else equal to {first.name}"
                    )
            except NoResult as error:
                left_out.append(f"{results.name}: {error}")
            progress.update()
    return list(systems.values()), left_out
