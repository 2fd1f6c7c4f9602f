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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from safetensors import safe_open

from docs.make.tables import markdown
from pipeline.experiments.revisions import Experiment
from pipeline.git import command, experiments
from pipeline.params import Params
from pipeline.stage import run
from transformer.evaluation.comparison import dunnett
from transformer.evaluation.sweeps import remarks

FREE = ("key_size", "encoder_layers", "decoder_layers")  # knobs that are 0 in the base: the grid sets them
PARTS = set("ABCDEF")
WAITING = ("Queued", "Running")  # states of DVC's queue


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
    parser.add_argument("--speed", action="store_true", help="translate with each model and show its speed, for show")
    given = parser.parse_args()
    if given.action == "queue":
        base = Params.load("params.yaml")
        queue(given.name, base, seeds_of(given.seeds), chosen(grid(base), given.parts, given.short))
    else:
        show(given.name, given.parts, given.speed)


def seeds_of(option: str) -> list[int]:
    """The option --seeds to numbers. Raises ValueError for anything else."""
    if not all(part.strip().isdecimal() for part in option.split(",")):
        raise ValueError(f"--seeds {option}: give whole numbers, separated by commas, such as 1,2,3.")
    return list(dict.fromkeys(int(part) for part in option.split(",")))


def grid(base: Params) -> list[Row]:
    """The configurations, the base first, without those that are the base again or that no params.yaml may hold.

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
    found: dict[Params, Row] = {}
    for row in rows:
        with suppress(ValueError):  # params.yaml may not hold these values
            found.setdefault(base.changed(**row.changes), row)
    return list(found.values())


def chosen(rows: Sequence[Row], parts: str, short: bool) -> list[Row]:
    """The base and the rows of some parts. Raises ValueError for a part that the grid does not have."""
    names = {part.strip().upper() for part in parts.split(",")}
    if unknown := names - PARTS:
        raise ValueError(f"--parts {parts}: {sorted(unknown)[0]!r} is not one of {', '.join(sorted(PARTS))}.")
    return [row for row in rows if row.part in (*names, "base") and (row.short or not short)]


def queue(prefix: str, base: Params, seeds: Sequence[int], rows: Sequence[Row]) -> None:
    """Queue an experiment for each row and seed that is neither done nor waiting. base: params.yaml."""
    wanted = {row.name(prefix, seed): (row, base.changed(**row.changes, seed=seed)) for seed in seeds for row in rows}
    done = {found.name: Experiment(found.name, found.commit).params for found in experiments() if found.name in wanted}
    for name, params in done.items():
        if params != wanted[name][1]:
            raise ValueError(
                f"{name} is there with other params. Nothing was queued. Use another --name, or remove "
                f"it: dvc exp remove {name}"
            )
    held = waiting()
    for name, commit in held.items():
        if name in wanted and Experiment(name, commit).params != wanted[name][1]:
            raise ValueError(
                f"{name} waits in the queue with other params. Nothing was queued. Use another --name, or "
                f"remove it: dvc queue remove {name}"
            )
    skipped = done.keys() | held.keys()
    if wanted.keys() - skipped:
        prepare()
    for name, (row, params) in wanted.items():
        if name not in skipped:
            changes = {**row.changes, "seed": params.seed}
            overrides = [word for knob, value in changes.items() for word in ("-S", f"{knob}={value}")]
            command(sys.executable, "-m", "dvc", "exp", "run", "--queue", "--name", name, *overrides)
            print(f"queued {name}", flush=True)
    left = len(wanted.keys() & skipped)
    print(f"{len(wanted) - left} experiments were queued, {left} are done or waiting. Run them: dvc queue start")


def prepare() -> None:
    """Run the stages up to `encode` here, which no row changes. Raises ValueError if they fail.

    Otherwise each worker of a queue that starts before the first experiment has run them would run them too.
    """
    if subprocess.run([sys.executable, "-m", "dvc", "repro", "encode"]).returncode:
        raise ValueError("`dvc repro encode` failed. Nothing was queued. Correct what it says, and queue again.")


def waiting() -> dict[str, str]:
    """The experiments that DVC's queue holds and has not finished: name -> commit."""
    lines = command(sys.executable, "-m", "dvc", "queue", "status").split("\n")
    return {words[1]: words[0] for words in map(str.split, lines) if len(words) > 2 and words[-1] in WAITING}


def show(prefix: str, parts: str, with_speed: bool) -> None:
    """Print the table of the experiments whose names begin with a prefix; of some parts, with the base."""
    found = list(finished(f"{prefix}-"))
    bases = [one for one in found if one.name.startswith(f"{prefix}-base-")]
    if not bases:
        raise ValueError(
            f"No experiment {prefix}-base-seed-... has results. `python -m pipeline table3 queue` and "
            "`dvc queue start` make them."
        )
    every = grid(bases[0].params)
    rows = {row: by_seed(found, bases[0].params.model_copy(update=row.changes)) for row in every}
    rows = {row: runs for row, runs in rows.items() if runs}
    shown = [row for row in chosen(every, parts, False) if row in rows]
    print(table(rows, shown, speeds_of([rows[row][0] for row in shown]) if with_speed else None), end="")
    for line in remarks([one.scored() for runs in rows.values() for one in runs]):
        print(line, file=sys.stderr)


def speeds_of(experiments: Sequence[Experiment]) -> list[list[float]]:
    """As decoding_speed.speeds, which is imported here because torch takes seconds to import."""
    from pipeline.experiments.decoding_speed import speeds

    return speeds(experiments)


def finished(beginning: str) -> Iterator[Experiment]:
    """The experiments whose names begin with `beginning` and whose results are complete and not stale.

    The others, with the reason, are named on standard error.
    """
    for reference in experiments():
        if reference.name.startswith(beginning):
            one = Experiment(reference.name, reference.commit)
            try:
                one.check_fresh()
                one.scores()
                yield one
            except (ValueError, KeyError, OSError) as error:
                print(f"left out: {error}", file=sys.stderr)


def by_seed(found: Iterable[Experiment], params: Params) -> list[Experiment]:
    """The experiments with these params and any seed, one of each seed, in the order of the seeds."""
    same = {one.params.seed: one for one in found if one.params.model_copy(update={"seed": params.seed}) == params}
    return [same[seed] for seed in sorted(same)]


def table(
    rows: Mapping[Row, Sequence[Experiment]], shown: Sequence[Row], speeds: Sequence[Sequence[float]] | None
) -> str:
    """The table in Markdown, of the rows `shown`; its p-values are those of all rows, of which the first is the base.

    speeds: of each shown row, sentences per second by torch and by CTranslate2.
    """
    head = [
        "part",
        "changed",
        "runs",
        "perplexity",
        "BLEU on valid",
        "difference",
        "p",
        "BLEU on test",
        "weights x 10^6",
        *(["torch, sentences/s", "CTranslate2, sentences/s"] if speeds else []),
    ]
    valid = {row: [one.scores()["valid_bleu"] for one in runs] for row, runs in rows.items()}
    base, *others = valid
    p_values = dict(zip(valid, [None, *dunnett(valid[base], [valid[row] for row in others])], strict=True))
    lines = []
    for place, row in enumerate(shown):
        runs = rows[row]
        lines.append(
            [
                row.part,
                ", ".join(f"{knob} {value}" for knob, value in row.changes.items()),
                str(len(runs)),
                spread([one.training()["valid_perplexity"] for one in runs], 2),
                spread(valid[row], 1),
                "" if row is base else f"{mean(valid[row]) - mean(valid[base]):+.1f}",
                shown_p(p_values[row]),
                spread([one.scores()["bleu"] for one in runs], 1),
                f"{weights(runs[0]) / 1e6:.2f}",
                *(f"{each:.0f}" for each in (speeds[place] if speeds else ())),
            ]
        )
    return markdown(head, lines)


def shown_p(p: float | None) -> str:
    """A p-value as the table shows it; empty where there is none."""
    return "" if p is None else f"{p:.3f}" if p >= 0.0005 else "<0.001"


def spread(values: Sequence[float], decimals: int) -> str:
    """The mean of values over seeds and, of several, their deviation."""
    return f"{mean(values):.{decimals}f}" + (f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else "")


def weights(experiment: Experiment) -> int:
    """The number of weights of the model of an experiment."""
    with safe_open(experiment.folder("data/model")["weights.safetensors"], "numpy") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in sorted(file.keys()))


if __name__ == "__main__":
    run(main)
