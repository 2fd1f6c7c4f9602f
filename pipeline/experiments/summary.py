"""Show all experiments on one page: scores, and the effect of each knob.

    python -m pipeline summary

Reads   git: DVC experiments and commits that changed dvc.lock; the work tree
Writes  reports/experiments.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from pipeline.experiments.kept import kept
from pipeline.tracking.results import WorkTree
from transformer.evaluation.comparison import System
from transformer.evaluation.sweeps import effects, remarks, score_table
from transformer.files import write_text
from transformer.reporting.sweep_page import page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("reports/experiments.html"), metavar="PATH")
    output = parser.parse_args().output
    runs, left_out = scored()
    if not runs:
        raise ValueError("\n".join(["There are no results yet. Run `dvc repro` first.", *left_out]))
    write_text(output, page(runs, left_out))
    print(pd.DataFrame(score_table(runs)).to_string(index=False, na_rep=""))
    print(*(f"\n{line}" for line in remarks(runs)), sep="")
    if found := effects(runs):
        print("\neffect of each knob, all else equal: mean change of BLEU\n")
        print(pd.DataFrame(found).to_string(index=False, na_rep=""))
    print(*(f"\nleft out: {line}" for line in left_out), sep="")
    print(f"\nwritten to {output}")


def scored() -> tuple[list[System], list[str]]:
    """Each configuration that has scores, and a line for each result that has none or stale ones, with the reason.

    Several results with the same knobs, data, code and versions are one, under the name of the first.
    """
    found: dict[str, System] = {}
    left_out: list[str] = []
    for results in [*(one for one, _ in kept()), WorkTree()]:
        try:
            if stale := results.stale():
                left_out.append(f"{results.name} is stale, `dvc repro` would run {stale}")
                continue
            system = results.scored()
            found.setdefault(repr((sorted(system.params.items()), system.origins)), system)
        except (ValueError, KeyError, OSError) as error:
            left_out.append(f"{results.name}: {error}")
    return list(found.values()), left_out
