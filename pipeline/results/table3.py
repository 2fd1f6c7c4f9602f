"""Table 3 of the paper as experiments: what heads, key size, depth, width and regularisation change.

    python -m pipeline table3 queue            queue an experiment for each line of recipes/table3.txt and each seed
    dvc queue start                            run them
    python -m pipeline table3 show             print the table in Markdown

The base is params.yaml as it is: each line changes it. Another list: --rows FILE.

Reads   the list; git and DVC's cache (show)
Writes  DVC's queue, after `dvc repro encode` (queue). A second `queue` adds what is neither done nor waiting
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from safetensors import safe_open

from pipeline.workflow.dvc_lock import NoResult, Result, queue_entries
from pipeline.workflow.git import command, experiments
from pipeline.workflow.params import Params, parse_yaml
from transformer.evaluation.comparison import dunnett
from transformer.files import Mistake, read_lines

DVC = (sys.executable, "-m", "dvc")
HEAD = ("part", "changed", "runs", "perplexity", "BLEU on valid", "difference", "p", "BLEU on test", "weights x 10^6")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("queue", "show"))
    parser.add_argument("--rows", type=Path, default=Path("recipes/table3.txt"), metavar="FILE", help="the list")
    parser.add_argument("--name", default="table3", help="how the names of the experiments begin (default: table3)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="for queue (default: 1 2)")
    options = parser.parse_args()
    lines = [line.split() for line in read_lines(options.rows) if line.strip() and not line.startswith("#")]
    if options.action == "queue":
        queue(options.name, lines, options.seeds)
    else:
        print(table(lines, runs_of(options.name, lines)), end="")


def queue(prefix: str, lines: Sequence[list[str]], seeds: Sequence[int]) -> None:
    """Queue an experiment for each line and seed, unless one with its name is done or waits."""
    base = Params.load("params.yaml")
    for _, *changes in lines:
        change(base, changes)  # raises for a knob or value that there is not
    there = {entry["name"] for entry in queue_entries() if entry["status"] in ("Queued", "Running")}
    done = {experiment.name: experiment.commit for experiment in experiments()}
    wanted: dict[str, list[str]] = {}
    for seed in seeds:
        for part, *changes in lines:
            words = [*changes, f"seed={seed}"]
            wanted["-".join([prefix, part, *words]).replace("=", "-")] = words
    for name in wanted.keys() & done.keys():
        if Result(name, done[name]).params != change(base, wanted[name]):
            raise Mistake(f"{name} was run with other params. Nothing was queued. Use another --name, or remove it.")
    missing = {name: changes for name, changes in wanted.items() if name not in there | done.keys()}
    # Otherwise each worker that starts before the first experiment has run the stages up to encode would run them too.
    if missing and subprocess.run([*DVC, "repro", "encode"]).returncode:
        raise Mistake("`dvc repro encode` failed. Nothing was queued. Correct what it says, and queue again.")
    for name, changes in missing.items():
        settings = [f"--set-param={setting}" for setting in changes]
        command(*DVC, "exp", "run", "--queue", "--name", name, *settings)
        print(f"queued {name}", flush=True)
    print(f"{len(missing)} experiments were queued, {len(wanted) - len(missing)} are there. Type dvc queue start.")


def change(base: Params, changes: Sequence[str]) -> Params:
    """Params with `knob=value` changed. Raises Mistake for a knob or value that there is not."""
    return base.changed(**parse_yaml("\n".join(word.replace("=", ": ", 1) for word in changes) or "{}", "the list"))


def runs_of(prefix: str, lines: Sequence[list[str]]) -> list[list[Result]]:
    """The results of each line, one for each seed: those with the params of the base, changed by the line."""
    results: list[Result] = []
    for entry in experiments():
        if entry.name.startswith(f"{prefix}-"):
            try:
                result = Result(entry.name, entry.commit)
                result.scores()
                results.append(result)
            except NoResult as error:
                print(f"left out: {error}", file=sys.stderr)
    base = next((result.params for result in results if result.name.startswith(f"{prefix}-{lines[0][0]}-seed")), None)
    if base is None:
        raise Mistake(f"No experiment {prefix}-{lines[0][0]}-seed-... has results. `table3 queue` makes them.")
    rows = []
    for _, *changes in lines:
        params = change(base, changes).changed(seed=0)
        seeds = {result.params.seed: result for result in results if result.params.changed(seed=0) == params}
        rows.append([seeds[seed] for seed in sorted(seeds)])
    return rows


def table(lines: Sequence[list[str]], runs: Sequence[Sequence[Result]]) -> str:
    """The table in Markdown: means over seeds, with p-values against the first line (Dunnett's test)."""
    valid = [[result.scores()["valid_bleu"] for result in group] for group in runs]
    done = [number for number, values in enumerate(valid) if values]
    p_values = dict(zip(done[1:], dunnett(valid[0], [valid[number] for number in done[1:]]), strict=True))
    rows = [
        [
            lines[number][0],
            ", ".join(lines[number][1:]),
            str(len(runs[number])),
            spread([result.training()["valid_perplexity"] for result in runs[number]], 2),
            spread(valid[number], 1),
            f"{mean(valid[number]) - mean(valid[0]):+.1f}" if number else "",
            p_text(p_values.get(number)),
            spread([result.scores()["bleu"] for result in runs[number]], 1),
            f"{weights(runs[number][0]) / 1e6:.2f}",
        ]
        for number in done
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in [HEAD, ["---"] * len(HEAD), *rows])


def p_text(p: float | None) -> str:
    """A p-value as the table shows it; empty where there is none."""
    return "" if p is None else f"{p:.3f}" if p >= 0.0005 else "<0.001"


def spread(values: Sequence[float], decimals: int) -> str:
    """The mean of values over seeds and, of several, their deviation."""
    return f"{mean(values):.{decimals}f}" + (f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else "")


def weights(experiment: Result) -> int:
    """The number of weights of the model of an experiment."""
    with safe_open(experiment.folder("data/model")["weights.safetensors"], "numpy") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in sorted(file.keys()))
