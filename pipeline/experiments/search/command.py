"""Search for better knobs: many trainings that are mostly stopped early, proposed by Optuna.

    python -m pipeline search --trials 30 warmup=500..8000 dropout=0.1..0.4 norm=pre,post

Each argument is a knob of training with a range or with choices. A range is searched on a logarithmic scale if its
larger end is at least 10 times the smaller one. :log or :linear after the range sets the scale, as in
warmup=500..8000:linear. At the end the best trials are trained with several seeds and compared with params.yaml on
valid. The same command goes on with a search that was stopped or killed. docs/search.md explains it.

Reads   params.yaml, git
Writes  experiments of DVC and their MLflow runs; work/search-<key> (trials.db, Optuna's database, and the output of the
        trainings); reports/search.json
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from pathlib import Path

import pandas as pd

from pipeline.experiments.clones import check_clones_have, edits_of_work_tree
from pipeline.experiments.search.plan import START, Plan, given_rungs
from pipeline.experiments.search.space import space
from pipeline.git import resolved
from pipeline.params import Params
from pipeline.stage import run
from transformer.files import write_json

SIGNIFICANT = 0.05
SAMPLERS = ("tpe", "random", "gp")
DIVERGED = "params.yaml as it is diverged with one of the seeds, so nothing is compared with it."


def main() -> None:
    given = options().parse_args()
    params = Params.load("params.yaml")
    plan = Plan(params, space(given.space), given_rungs(given.rungs, params), given.sampler, given.seed)
    if params.corpus == "files":
        check_clones_have(Path(params.corpus_path))
    with plan.alone():
        rows = run_search(plan, given)
    if not rows:
        raise ValueError("Every trial diverged, or has knobs that exclude each other. Search other ranges.")
    write_json(given.output, {"search": plan.name, "finals": rows})
    show(rows)
    print(f"\nwritten to {given.output}")


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space", nargs="+", metavar="KNOB=VALUES", help="500..8000, 500..8000:log, or pre,post")
    parser.add_argument("--rungs", metavar="N,N,...", help="updates after which trials are compared; last: max_steps")
    parser.add_argument("--sampler", choices=SAMPLERS, default="tpe", help="what proposes the trials; default: tpe")
    parser.add_argument("--storage", metavar="URL", help="another database for Optuna, such as postgresql://...")
    parser.add_argument("--output", type=Path, default=Path("reports/search.json"), metavar="PATH")
    for name, default, meaning in (
        ("--trials", 30, "configurations to try"),
        ("--seed", 1, "seed of the proposals"),
        ("--finalists", 2, "how many of the best trials are in the finals"),
        ("--seeds", 3, "seeds of each finalist"),
        ("--jobs", 1, "how many trainings run at once; changes no result"),
    ):
        parser.add_argument(name, type=positive, default=default, metavar="N", help=f"{meaning}; default: {default}")
    return parser


def positive(text: str) -> int:
    """An option as a number from 1."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")
    return int(text)


def show_plan(plan: Plan, trials: int) -> None:
    """Print what the search will do."""
    print(f"{plan.name}: {trials} trials, compared after {', '.join(map(str, plan.rungs))} updates")
    print(*(f"  {one}" for one in plan.space), sep="\n")
    print(f"Its state is in {plan.folder}. If it is stopped, the same command goes on.", flush=True)


def run_search(plan: Plan, given: argparse.Namespace) -> list[dict]:
    """Run the search and its finals; returns the rows of the finals."""
    from pipeline.experiments.search.finals import entrants, finals  # imports Optuna, which takes a while
    from pipeline.experiments.search.halving import best, search
    from pipeline.experiments.search.study import Trials, open_database, sqlite
    from pipeline.experiments.search.trainings import CLONES, Trainings, end_processes

    def stop(number: int, frame: object) -> None:
        print("The search stops, and its trainings save their state. The same command goes on.", flush=True)
        end_processes(plan.folder)
        os._exit(128 + number)  # sys.exit would wait for the threads, which may have started another training

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    study = open_database(given.storage or sqlite(plan.folder), plan.name)
    show_plan(plan, given.trials)
    end_processes(plan.folder)
    shutil.rmtree(plan.folder / CLONES, ignore_errors=True)  # of a search that was killed
    trainings = Trainings(plan.folder, plan.name, plan.params, resolved("HEAD"), edits_of_work_tree())
    trials = Trials(study, plan.space, plan.seed, plan.sampler, plan.generation_size)
    search(trials, given.trials, plan.rungs, trainings.score, given.jobs)
    found = best(trials, given.finalists)
    everyone = entrants(trainings, found, [one.knob for one in plan.space]) if found else []
    return finals(trainings, everyone, given.seeds, given.jobs)


def certainty(winner: dict) -> str:
    """What the seeds show about the winner of the finals, in a sentence."""
    p = winner.get("p_seeds_holm", winner.get("p_seeds"))
    if p is None:
        return "Nothing shows yet that it is better than params.yaml: give more seeds (--seeds)."
    if p < SIGNIFICANT:
        return f"The seeds show that it is better than params.yaml (p = {p})."
    return f"The seeds do not show that it is better than params.yaml (p = {p}): give more (--seeds)."


def show(rows: list[dict]) -> None:
    """Print the finals, the winner and how to take it over."""
    started = any(row["name"].endswith(f"-{START}") for row in rows)
    note = f"The name of params.yaml as it is ends in -{START}."
    print(f"\nFinals: BLEU on valid. {note if started else DIVERGED}\n")
    table = pd.DataFrame(rows).drop(columns="test_bleu_mean").dropna(axis="columns", how="all").astype(object)
    print(table.where(table.notna(), "").to_string(index=False))
    if started:
        print(
            "\np_seeds: Welch's t-test between the seeds. The other p-values compare the translations by the first "
            "seed."
        )
    winner = max(rows, key=lambda row: row["valid_bleu_mean"])
    print(f"\nbest on valid: {winner['name']}; its BLEU on test is {winner['test_bleu_mean']}")
    if winner["name"].endswith(f"-{START}"):
        print("No trial is better than params.yaml. Keep params.yaml as it is, or search other ranges.")
    else:
        print(certainty(winner))
        print(f"Take it over:  dvc exp apply {winner['name']}")


if __name__ == "__main__":
    run(main)
