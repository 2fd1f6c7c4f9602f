"""The parent of runs that differ only in the seed: the mean and deviation of their scores.

MLflow shows the parent above its runs. A configuration with one seed has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import mean, stdev

from pipeline.tracking.run import TrackedRun, now, who
from pipeline.tracking.store import Store

PARENT = "mlflow.parentRunId"  # MLflow's tag
KEY = "seeds_parent"  # the tag of a parent; its value is the `seeds_key` of its runs


def group_seeds(store: Store, key: str, scores: Iterable[str]) -> None:
    """Make, update or delete the parent of the runs whose `seeds_key` is `key`. Needs store.lock. Raises store errors.

    scores: the names of the metrics of which the parent has the mean. A seed counts once: with its first run. If clones
    made a parent each, the first one stays.
    """
    runs = sorted(store.search(f"tags.seeds_key = '{key}' and tags.config_key IS NOT NULL"), key=TrackedRun.age)
    by_seed: dict[str, TrackedRun] = {}
    for run in runs:
        by_seed.setdefault(run.data.params.get("seed", ""), run)
    found = parents(store, key)
    if len(by_seed) > 1 and not found:
        store.create_run(f"seeds of {runs[0].info.run_name}", {**who(), KEY: key})
        found = parents(store, key)  # another clone may have made one too
    kept = found[:1] if len(by_seed) > 1 else []
    for run in runs:
        if kept and run.tags.get(PARENT) != kept[0].id:
            store.client.set_tag(run.id, PARENT, kept[0].id)
        elif not kept and PARENT in run.tags:
            store.client.delete_tag(run.id, PARENT)
    for other in found[len(kept) :]:
        other.delete_as_duplicate(kept[0] if kept else other)
    for parent in kept:
        write(parent, by_seed, scores)


def renew_means(store: Store) -> None:
    """Update all parents, as after a run was deleted in MLflow's page. Raises store errors."""
    with store.lock:
        for parent in store.search(f"tags.{KEY} IS NOT NULL"):
            names = [name for name in parent.data.metrics if f"{name}_deviation" in parent.data.metrics]
            group_seeds(store, parent.tags[KEY], names)


def parents(store: Store, key: str) -> list[TrackedRun]:
    """The parents for a key, the first one first; more than one only if clones made them at the same time."""
    return sorted(store.search(f"tags.{KEY} = '{key}'"), key=TrackedRun.age)


def write(parent: TrackedRun, by_seed: Mapping[str, TrackedRun], scores: Iterable[str]) -> None:
    """Write to a parent what its runs have in common, and the mean and deviation of their scores."""
    runs = list(by_seed.values())
    params = {
        name: value
        for name, value in runs[0].data.params.items()
        if name != "seed" and all(run.data.params.get(name) == value for run in runs)
    }
    names = [name for name in scores if all(name in run.data.metrics for run in runs)]
    values = {name: [run.data.metrics[name] for run in runs] for name in names}
    found = {"seeds": float(len(runs))} | {name: round(mean(value), 4) for name, value in values.items()}
    found |= {f"{name}_deviation": round(stdev(value), 4) for name, value in values.items()}
    seeds = ", ".join(sorted(by_seed, key=lambda seed: (len(seed), seed)))
    note = f"Mean and deviation over the seeds {seeds}. Each has a run, of which this is the parent."
    parent.log(params, (), found, {"mlflow.note.content": note})
    parent.log_status("FINISHED", parent.info.end_time or now())
