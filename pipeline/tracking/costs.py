"""What a run cost: updates, tokens and seconds that were spent in it, and those that others had spent before.

The rows of a curve have `seconds` and `tokens_per_second` where their updates were computed. Rows that came from DVC's
cache, or from a training that was resumed, have none: these updates were saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.tracking.record import FOLDER, Record, short_hash
from pipeline.tracking.run import Curve, Params, Row

BACK = "back_"  # the prefix of the metrics of the model that translates back
MEASURED = ("seconds", "tokens_per_second", "gradient_norm")  # where updates are computed
MetricsByStep = Mapping[int, Mapping[str, float]]


class Cost(NamedTuple):
    """What a part of a curve cost."""

    updates: int
    tokens: int
    seconds: float


def of_record(
    record: Record, run: Mapping[str, Any], others: Iterable[Record], tokens: int
) -> tuple[dict[str, float], str]:
    """Returns (metrics, names): updates, tokens and seconds of a run and of its model that translates back; the names
    of the runs that computed updates which this run took over.

    run: the contents of run.json. others: all other records. tokens: target tokens of the training.
    """
    own = by_step(record.rows())
    read = [(other, other.read()) for other in others]
    keys = {
        run.get("updates_key"),
        *(one.get("updates_key") for _, one in read if one["train_key"] == run["train_key"]),
    }
    sharing = [
        (one["name"], by_step(other.rows()))
        for other, one in read
        if one["train_key"] == run["train_key"] or (one.get("updates_key") and one["updates_key"] in keys)
    ]
    found, names = of_model(own, sharing, "", tokens)
    if run.get("back_key"):
        backs = [("", by_step(prefixed(one.rows()))) for one in back_records(record.folder.parent, run["back_key"])]
        total = sum(cost(rows, BACK, rows.keys()).tokens for _, rows in backs)
        found |= of_model(own, backs, BACK, total)[0]
    return found, ", ".join(names)


def of_model(
    own: MetricsByStep, others: Iterable[tuple[str, MetricsByStep]], prefix: str, tokens: int
) -> tuple[dict[str, float], list[str]]:
    """The costs of one model, and the names of the others that computed updates which this run did not.

    prefix: of the model's metrics. tokens: of its whole training.
    """
    steps = {step for step, row in own.items() if f"{prefix}train_loss" in row}
    spent = cost(own, prefix, own.keys())
    missing, saved, names = {step for step in steps if f"{prefix}seconds" not in own[step]}, 0.0, []
    for name, rows in others:
        if known := {step for step in missing if f"{prefix}seconds" in rows.get(step, {})}:
            saved += cost(rows, prefix, known).seconds
            missing -= known
            names.append(name)
    found = {
        "updates": spent.updates,
        "updates_saved": max(steps, default=0) - spent.updates,
        "tokens": spent.tokens,
        "tokens_saved": max(tokens - spent.tokens, 0),
    }
    if spent.seconds or saved:  # otherwise they are not known here: another clone trained
        found |= {"seconds": spent.seconds, "seconds_saved": saved}
    return {f"{prefix}train_{key}": value for key, value in found.items()}, names


def cost(rows: MetricsByStep, prefix: str, steps: Iterable[int]) -> Cost:
    """What the rows at these steps cost. A row stands for the updates since the row before.

    A training that was stopped has a row without a loss at its last update.
    """
    names = {f"{prefix}train_loss", f"{prefix}seconds"}
    ordered, spent = sorted(step for step, row in rows.items() if names & row.keys()), Cost(0, 0, 0.0)
    before = dict(zip(ordered, [0, *ordered], strict=False))
    for step in sorted(steps):
        row = rows[step]
        if seconds := row.get(f"{prefix}seconds"):
            tokens = round(seconds * row[f"{prefix}tokens_per_second"])
            spent = Cost(spent.updates + step - before[step], spent.tokens + tokens, spent.seconds + seconds)
    return spent


def by_step(rows: Curve) -> dict[int, dict[str, float]]:
    """The metrics at each step."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        metrics = {name: value for name, value in row.items() if name not in ("step", "time") and value is not None}
        found[int(row["step"] or 0)] = {**metrics, **found.get(int(row["step"] or 0), {})}
    return found


def prefixed(rows: Curve) -> list[Row]:
    """The rows of a model that translates back, with the names that its metrics have in a run."""
    return [
        {name if name in ("step", "time") else f"{BACK}{name}": value for name, value in row.items()} for row in rows
    ]


def back_record(root: Path, back_key: str, params: Params) -> Record:
    """Where the curve of a model that translates back is kept, for the configuration that trained it."""
    return Record(root / FOLDER / f"back-{short_hash(back_key)}-{short_hash(params)}")


def back_records(folder: Path, back_key: str) -> list[Record]:
    """All that is known of the training of a model that translates back. folder: that of all records."""
    return [Record(path) for path in sorted(folder.glob(f"back-{short_hash(back_key)}-*"))]


def back_rows(root: Path, back_key: str, params: Params) -> list[Row]:
    """The curve of the model that translates back, for the run of a configuration; empty if back_key is.

    Rows that another configuration's run computed are without what they cost.
    """
    own = back_record(root, back_key, params)
    found = list(own.rows())
    for other in back_records(root / FOLDER, back_key):
        if other.folder != own.folder:
            found += [{name: row[name] for name in row if name not in MEASURED} for row in other.rows()]
    return prefixed(found)
