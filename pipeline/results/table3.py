"""Table 3 of the paper as a grid of experiments: what heads, key size, depth, width and regularisation change.

    python -m pipeline table3 queue            queue an experiment for each configuration and seed
    dvc queue start                            run them
    python -m pipeline table3 show             print the table in Markdown

The base is params.yaml as it is; each row changes one thing of it. Rows A to E are the paper's, in proportion to the
base; rows F have a deep encoder and a shallow decoder (Kasai et al. 2021, "Deep Encoder, Shallow Decoder").

Reads   params.yaml (queue); git and DVC's cache (show)
Writes  DVC's queue, after `dvc repro encode` (queue). A second `queue` adds only what is neither done nor waiting
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from safetensors import safe_open

from pipeline.search.clones import DVC, check_clones_have
from pipeline.workflow.dvc_lock import Result, project
from pipeline.workflow.git import command, experiments
from pipeline.workflow.params import Params
from transformer.evaluation.comparison import dunnett
from transformer.evaluation.knob_effects import remarks

FREE = ("key_size", "encoder_layers", "decoder_layers")  # knobs that are 0 in the base: the grid sets them
PARTS = set("ABCDEF")


@dataclass(frozen=True, eq=False)
class Row:
    """A configuration of the grid: its part of the paper's table, and what it changes in the base."""

    part: str
    changes: Mapping[str, Any]
    short: bool = False  # whether the short grid has it too

    def name(self, prefix: str, seed: int) -> str:
        """The name of its experiment with a seed."""
        changed = [f"{knob}-{value}" for knob, value in self.changes.items()]
        return "-".join([prefix, self.part, *changed, "seed", str(seed)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("queue", "show"))
    parser.add_argument("--name", default="table3", help="how the names of the experiments begin (default: table3)")
    parser.add_argument("--seeds", default="1,2", help="seeds of each configuration, for queue (default: 1,2)")
    parser.add_argument("--short", action="store_true", help="12 of the 21 configurations, for queue")
    parser.add_argument("--parts", default="A,B,C,D,E,F", help="parts to queue or show beside the base (default: all)")
    options = parser.parse_args()
    if options.action == "show":
        show(options.name, options.parts)
        return
    if not all(part.strip().isdecimal() for part in options.seeds.split(",")):
        raise ValueError(f"--seeds {options.seeds}: give whole numbers, separated by commas, such as 1,2,3.")
    base, seeds = Params.load("params.yaml"), dict.fromkeys(map(int, options.seeds.split(",")))
    rows = choose(grid(base), options.parts, options.short)
    queue(base, {row.name(options.name, seed): {**row.changes, "seed": seed} for seed in seeds for row in rows})


def grid(base: Params) -> list[Row]:
    """The configurations, the base first, without those that are the base again or that no params.yaml may have.

    Raises ValueError if the base sets a knob that the grid sets.
    """
    if fixed := [f"{knob}={getattr(base, knob)}" for knob in FREE if getattr(base, knob)]:
        raise ValueError(f"The base of the grid has {', '.join(fixed)}. Set {', '.join(FREE)} to 0 in params.yaml.")
    heads, layers, key_size = base.heads, base.layers, base.d_model // base.heads
    rows = [
        Row("base", {}, short=True),
        Row("A", {"heads": 1}, short=True),
        Row("A", {"heads": heads // 2}),
        Row("A", {"heads": 2 * heads}, short=True),
        Row("A", {"heads": 4 * heads}),
        Row("B", {"key_size": key_size // 4}, short=True),
        Row("B", {"key_size": key_size // 2}),
        Row("C", {"layers": round(layers / 3)}, short=True),
        Row("C", {"layers": round(2 * layers / 3)}),
        Row("C", {"layers": round(4 * layers / 3)}),
        Row("C", {"d_model": base.d_model // 2}, short=True),
        Row("C", {"d_model": 2 * base.d_model}),
        Row("C", {"d_ff": base.d_ff // 2}),
        Row("C", {"d_ff": 2 * base.d_ff}, short=True),
        Row("D", {"dropout": 0.0}, short=True),
        Row("D", {"dropout": 2 * base.dropout}),
        Row("D", {"label_smoothing": 0.0}, short=True),
        Row("D", {"label_smoothing": 2 * base.label_smoothing}),
        Row("E", {"positions": "learned"}, short=True),
        Row("F", {"encoder_layers": 2 * layers, "decoder_layers": 1}, short=True),
        *([Row("F", {"decoder_layers": 1}, short=True)] if layers > 1 else []),
    ]
    different: dict[Params, Row] = {}
    for row in rows:
        with suppress(ValueError):  # params.yaml may not have these values
            different.setdefault(base.changed(**row.changes), row)
    return list(different.values())


def choose(rows: Sequence[Row], parts: str, short: bool) -> list[Row]:
    """The base and the rows of some parts. Raises ValueError for a part that the grid does not have."""
    names = {part.strip().upper() for part in parts.split(",")}
    if unknown := names - PARTS:
        raise ValueError(f"--parts {parts}: {sorted(unknown)[0]!r} is not one of {', '.join(sorted(PARTS))}.")
    return [row for row in rows if row.part in (*names, "base") and (row.short or not short)]


def queue(base: Params, changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Queue the experiments that are neither done nor waiting. changes: name -> what it changes in params.yaml."""
    if base.corpus == "files":
        check_clones_have(Path(base.corpus_path))
    commits = waiting() | {experiment.name: experiment.commit for experiment in experiments()}
    there = {name: commit for name, commit in commits.items() if name in changes}
    for name, commit in there.items():
        if Result(name, commit).params != base.changed(**changes[name]):
            raise ValueError(
                f"{name} is done, or waits in the queue, with other params. Nothing was queued. Use another --name, or "
                f"remove it: dvc exp remove {name}, or dvc queue remove {name}"
            )
    missing = [name for name in changes if name not in there]
    # Otherwise each worker that starts before the first experiment has run the stages up to encode would run them too.
    if missing and subprocess.run([*DVC, "repro", "encode"]).returncode:
        raise ValueError("`dvc repro encode` failed. Nothing was queued. Correct what it says, and queue again.")
    for name in missing:
        overrides = [word for knob, value in changes[name].items() for word in ("-S", f"{knob}={value}")]
        command(*DVC, "exp", "run", "--queue", "--name", name, *overrides)
        print(f"queued {name}", flush=True)
    print(f"{len(missing)} experiments were queued, {len(there)} are done or waiting. Run them: dvc queue start")


def waiting() -> dict[str, str]:
    """The experiments that DVC's queue has not finished: name -> commit."""
    entries = project().experiments.celery_queue.status()
    return {entry["name"]: entry["rev"] for entry in entries if entry["status"] in ("Queued", "Running")}


def show(prefix: str, parts: str) -> None:
    """Print the table of the experiments whose names begin with a prefix; of some parts, with the base."""
    results = list(read_finished(f"{prefix}-"))
    base = next((result for result in results if result.name.startswith(f"{prefix}-base-")), None)
    if base is None:
        raise ValueError(
            f"No experiment {prefix}-base-seed-... has results. `python -m pipeline table3 queue` and "
            "`dvc queue start` make them."
        )
    every = grid(base.params)
    runs = {row: group for row in every if (group := results_by_seed(results, {**vars(base.params), **row.changes}))}
    shown = [row for row in choose(every, parts, False) if row in runs]
    print(table(runs, shown), end="")
    for line in remarks([result.system(translations=False) for group in runs.values() for result in group]):
        print(line, file=sys.stderr)


def read_finished(beginning: str) -> Iterator[Result]:
    """The experiments whose names begin with `beginning` and whose results are complete and not stale.

    The others, with the reason, are named on standard error.
    """
    for entry in experiments():
        if entry.name.startswith(beginning):
            experiment = Result(entry.name, entry.commit)
            try:
                experiment.entries()
                experiment.scores()
                yield experiment
            except (ValueError, KeyError, OSError) as error:
                print(f"left out: {error}", file=sys.stderr)


def results_by_seed(results: Sequence[Result], values: Mapping[str, Any]) -> list[Result]:
    """The experiments with these params and any seed, one of each seed, in the order of the seeds."""
    same = {
        result.params.seed: result for result in results if vars(result.params) | {"seed": 0} == {**values, "seed": 0}
    }
    return [same[seed] for seed in sorted(same)]


def table(runs: Mapping[Row, Sequence[Result]], shown: Sequence[Row]) -> str:
    """The table in Markdown, of the rows `shown`; its p-values are those of all rows, of which the first is the base.

    runs: of each row, one for each seed.
    """
    head = ["part", "changed", "runs", "perplexity", "BLEU on valid", "difference", "p", "BLEU on test"]
    head += ["weights x 10^6"]
    valid = {row: [result.scores()["valid_bleu"] for result in group] for row, group in runs.items()}
    base, *compared = valid
    p_values = dict(zip(valid, [None, *dunnett(valid[base], [valid[row] for row in compared])], strict=True))
    lines = [
        [
            row.part,
            ", ".join(f"{knob} {value}" for knob, value in row.changes.items()),
            str(len(runs[row])),
            spread([result.training()["valid_perplexity"] for result in runs[row]], 2),
            spread(valid[row], 1),
            "" if row is base else f"{mean(valid[row]) - mean(valid[base]):+.1f}",
            p_text(p_values[row]),
            spread([result.scores()["bleu"] for result in runs[row]], 1),
            f"{weights(runs[row][0]) / 1e6:.2f}",
        ]
        for row in shown
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *lines])


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
