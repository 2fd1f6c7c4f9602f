"""The MLflow run of a scored configuration: which run it gets, and what is written to that run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from transformer.tracking.run import Curve, Params, TrackedRun
from transformer.tracking.store import Store


@dataclass(frozen=True)
class Configuration:
    """A scored configuration: the fields of the event "configuration".

    curve: the rows of reports/training.csv. target_tokens: target tokens that the training saw. datasets: as in
    TrackedRun.log_datasets. texts: name of a file in the run -> its content. rebuild: True: tags and scores that the
    run has already are kept, only missing ones are added.
    """

    params: Params
    train_key: str
    config_key: str
    curve: Curve
    scores: Mapping[str, float]
    target_tokens: int
    tags: Mapping[str, str]
    datasets: Iterable[Mapping[str, str | int]] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    rebuild: bool = False


def write_configuration(store: Store, configuration: Configuration) -> None:
    """Write everything about a configuration to its run; a rebuild skips a configuration whose run is in the trash."""
    if configuration.rebuild and in_trash(store, configuration.config_key):
        return
    with store.lock:
        run = write_results(store, configuration)
    run.log_datasets(configuration.datasets)
    if configuration.texts and store.takes_artifacts:
        run.log_texts(configuration.texts)


def in_trash(store: Store, config_key: str) -> bool:
    """Whether a deleted run has this config_key."""
    found = store.all_runs(f"tags.config_key = '{config_key}'")
    return any(run.info.lifecycle_stage == "deleted" for run in found)


def write_results(store: Store, configuration: Configuration) -> TrackedRun:
    """Find or create the run of a configuration and log params, curve, scores, costs and tags. Needs store.lock."""
    keys = {"train_key": configuration.train_key, "config_key": configuration.config_key}
    corpus, tags, scores = configuration.params.get("corpus"), configuration.tags, configuration.scores
    name = tags.get("DVC_EXP_NAME") or f"{corpus} {configuration.config_key[:7]}"
    training_runs = store.runs(configuration.train_key)
    run = choose_run(training_runs, configuration) or store.create_run(name, keys)
    claimed = "config_key" in run.tags
    if not claimed:  # a claimed run keeps its name: a user may have typed one in the page
        store.client.update_run(run.id, name=name)
    if configuration.rebuild and claimed:
        tags = {key: value for key, value in tags.items() if key not in run.tags}
        scores = {key: value for key, value in scores.items() if key not in run.data.metrics}
    all_scores = {**scores, **costs(run, training_runs, configuration.target_tokens)}
    run.log(configuration.params, configuration.curve, all_scores, {**tags, **keys})
    # The end time stays that of the training: with the time of a later update this run would look the longest.
    if run.info.status != "FINISHED":
        store.client.set_terminated(run.id, "FINISHED", end_time=run.info.end_time)
    return run


def choose_run(training_runs: Iterable[TrackedRun], configuration: Configuration) -> TrackedRun | None:
    """The run that has the config_key, else an unclaimed run of the training with fitting params, else None.

    Among several, a finished run comes first.
    """
    config_key = configuration.config_key
    runs = [run for run in training_runs if run.tags.get("config_key", config_key) == config_key]
    runs = [run for run in runs if "config_key" in run.tags or run.fits(configuration.params)]
    runs.sort(key=lambda run: ("config_key" not in run.tags, run.info.status != "FINISHED"))
    return runs[0] if runs else None


def costs(run: TrackedRun, training_runs: Iterable[TrackedRun], target_tokens: int) -> dict[str, float]:
    """train_seconds and train_tokens of a run's model, and the same with the suffix _saved.

    The run in which the model was trained has the costs, and 0 saved. Every other run of that training has costs of 0,
    and saved what the training took. Seconds are left out if no run measured them.
    """
    trained_here = "trained_here" in run.tags
    trained = [run] if trained_here else [one for one in training_runs if "trained_here" in one.tags]
    known: dict[str, float] = {"train_tokens": target_tokens}
    if trained:
        known["train_seconds"] = trained[0].total("seconds")
    nothing = dict.fromkeys(known, 0.0)
    spent, saved = (known, nothing) if trained_here else (nothing, known)
    return {**spent, **{f"{key}_saved": value for key, value in saved.items()}}
