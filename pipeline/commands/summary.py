"""Show all experiments on one page: scores, and the effect of each knob.

    python -m pipeline summary

Reads   git: DVC experiments and commits that changed dvc.lock; the work tree
Writes  reports/experiments.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from pipeline.shared.results import WorkTree, kept
from pipeline.shared.stage import renamed
from transformer.evaluation.comparison import System
from transformer.evaluation.sweeps import effects, score_table
from transformer.files import write_text
from transformer.reporting.sweep_page import page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("reports/experiments.html"), metavar="PATH")
    output = parser.parse_args().output
    runs = scored()
    if not runs:
        raise ValueError("There are no results yet. Run `dvc repro` first.")
    write_text(output, page(runs))
    print(pd.DataFrame(score_table(runs)).to_string(index=False, na_rep=""))
    if found := effects(runs):
        print("\neffect of each knob, all others equal: mean change of BLEU\n")
        print(pd.DataFrame(found).to_string(index=False, na_rep=""))
    print(f"\nwritten to {output}")


def scored() -> list[System]:
    """Each configuration that has scores, once; if several results have it, under the name of the first."""
    found: dict[str, System] = {}
    for results in [*(one for one, _ in kept()), WorkTree()]:
        try:
            if not results.stale():
                params = vars(results.params)
                found.setdefault(repr(sorted(params.items())), System(results.name, params, results.scores()))
        except (ValueError, KeyError, OSError):  # of another version of this project, or never run
            continue
    return list(found.values())


if __name__ == "__main__":
    renamed("summary", main)
