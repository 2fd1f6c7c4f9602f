"""Search for better knobs: many trainings that are mostly stopped early, proposed by Optuna.

    python -m pipeline search --trials 30 warmup=500..8000 dropout=0.1..0.4 norm=pre,post

Each argument is a knob of training with a range or with choices. A range is searched on a logarithmic scale if its
larger end is at least 10 times the smaller one. :log or :linear after the range sets the scale, as in
warmup=500..8000:linear. At the end the best trials are trained with several seeds and compared with params.yaml on
valid. The same command goes on with a search that was stopped or killed. docs/search.md explains it.

Reads   HEAD: a commit is searched, and you may edit while it runs
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
import psutil

from pipeline.search.clones import check_committed, end
from pipeline.search.finals import conclusion, finals
from pipeline.search.space import Space, describe, space_of
from pipeline.search.study import best_knobs, open_study, rungs_of, search
from pipeline.search.trainings import CLONES, Trainings
from pipeline.workflow.git import resolve
from pipeline.workflow.params import Params
from pipeline.workflow.stage import hold_lock, project_root
from transformer.files import Mistake, content_key, write_json

NUMBERS = {
    "--trials": (30, "configurations to try"),
    "--first-rung": (None, "updates after which trials are first compared; default: about a ninth of max_steps"),
    "--seed": (1, "seed of the proposals"),
    "--finalists": (2, "how many of the best trials are in the finals"),
    "--seeds": (3, "seeds of each finalist"),
    "--jobs": (1, "how many trainings run at once"),
}


def main() -> None:
    options = parse_options()
    params = Params.load("params.yaml")
    space, rungs = space_of(options.space, params), rungs_of(params.max_steps, params.save_every, options.first_rung)
    check_committed()
    commit = resolve("HEAD")
    folder = project_root() / "work" / name_of(commit, space, options)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{folder.name}: {options.trials} trials, compared after {', '.join(map(str, rungs))} updates")
    print(*(f"  {describe(knob, values)}" for knob, values in space.items()), sep="\n")
    print(f"Its state is in {folder}. If it is stopped, the same command goes on.", flush=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    with hold_lock(folder / "lock", "search"):
        shutil.rmtree(folder / CLONES, ignore_errors=True)  # of a search that was killed
        trainings = Trainings(folder, params, commit)
        study = open_study(folder, options.seed, rungs)
        search(study, space, rungs, trainings.scores, options.trials, options.jobs)
        finalists = best_knobs(study, options.finalists)
        rows = finals(trainings, finalists, options.seeds, options.jobs) if finalists else []
    if not rows:
        raise Mistake(f"Every trial or finalist failed. {folder} has their output. Search other ranges.")
    write_json(options.output, {"search": folder.name, "finals": rows})
    table = pd.DataFrame(rows).drop(columns="test_bleu_mean").dropna(axis="columns", how="all").astype(object)
    print("\nFinals: BLEU on valid. The name of params.yaml as it is ends in -start. p_seeds: Welch's t-test.\n")
    print(table.where(table.notna(), "").to_string(index=False))
    print("", *conclusion(rows), f"\nwritten to {options.output}", sep="\n")


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space", nargs="+", metavar="KNOB=VALUES", help="500..8000, 500..8000:log, or pre,post")
    parser.add_argument("--output", type=Path, default=Path("reports/search.json"), metavar="PATH")
    for name, (default, meaning) in NUMBERS.items():
        meaning = f"{meaning}; default: {default}" if default else meaning
        parser.add_argument(name, type=parse_number, default=default, metavar="N", help=meaning)
    return parser.parse_args()


def parse_number(text: str) -> int:
    """An option as a number from 1."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")
    return int(text)


def name_of(commit: str, space: Space, options: argparse.Namespace) -> str:
    """The name of a search, from what the scores of its trials depend on."""
    words = [describe(knob, values) for knob, values in space.items()]
    return f"search-{content_key(commit=commit, space=words, options=[options.first_rung, options.seed])[:7]}"


def stop(number: int, frame: object) -> None:
    """Handle a signal: end the trainings, which save their state, and this process."""
    print("The search stops, and its trainings save their state. The same command goes on.", flush=True)
    end(psutil.Process().children(recursive=True))
    os._exit(128 + number)  # sys.exit would wait for the threads, which may start another training
