"""The MLflow run of a scored configuration: which run it gets, and what is written to that run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

from transformer.tracking.run import Curve, Params, TrackedRun
from transformer.tracking.store import Store, is_permanent, store_errors

ORIGIN = ("git_commit", "git_dirty", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV", "mlflow.user")
COMPARED = ("delta_bleu", "p_bootstrap", "p_randomisation")  # with the baseline of the first recording
RECORDINGS = "recordings.csv"


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
    try:
        write_all(store, configuration)
    except store_errors() as error:
        if not is_permanent(error):
            raise
        # Another clone recorded the same meanwhile, and deleted this run in favour of its own.
        write_all(store, configuration)


def write_all(store: Store, configuration: Configuration) -> None:
    """Write everything about a configuration to its run."""
    with store.lock:
        run = keep_first(store, write_results(store, configuration), configuration)
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
    found = choose_run(training_runs, configuration, store.clone)
    claimed = found is not None and "config_key" in found.tags
    run = found or store.create_run(name, {**keys, "clone": store.clone})
    if claimed:
        add_recording(store, run, tags)
        tags = {key: value for key, value in tags.items() if not is_origin(key)}
        scores = {key: value for key, value in scores.items() if key not in COMPARED}
    else:  # a claimed run keeps its name: a user may have typed one in the page
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


def keep_first(store: Store, run: TrackedRun, configuration: Configuration) -> TrackedRun:
    """The run of a configuration. If two clones made one each, the earlier one; the other is deleted.

    Both clones come to the same choice. Who may not delete runs on a server marks the other one by `duplicate_of`.
    """
    key, params = configuration.config_key, {name: str(value) for name, value in configuration.params.items()}
    runs = store.runs(configuration.train_key)
    same = [one for one in runs if one.tags.get("config_key") == key]
    same.sort(key=lambda one: (one.info.start_time, one.id))
    # What this clone trained and did not claim, since the other clone had recorded the same before.
    own = [one for one in runs if "config_key" not in one.tags and one.tags.get("clone") == store.clone
           and one.data.params == params]  # fmt: skip
    for other in [*same[1:], *own]:
        store.client.set_tag(other.id, "duplicate_of", same[0].id)
        if "config_key" in other.tags:  # else it would be taken for the run of this configuration
            store.client.delete_tag(other.id, "config_key")
        try:
            store.client.delete_run(other.id)
        except store_errors() as error:
            if getattr(error, "error_code", None) != "PERMISSION_DENIED":
                raise
    return same[0] if same else run


def is_origin(tag: str) -> bool:
    """Whether a tag says by whom, where and from which commit a run was recorded: those of the first recording stay."""
    return tag in ORIGIN or tag.startswith(("env_", "mlflow."))


def add_recording(store: Store, run: TrackedRun, tags: Mapping[str, str]) -> None:
    """Add a row to the table of later recordings in a run, if it comes from another commit, experiment or user."""
    names = [name for name in ORIGIN if name in tags]
    if not store.takes_artifacts or all(tags.get(name) == run.tags.get(name) for name in names):
        return
    row = [tags.get(name, "") for name in ORIGIN]
    table = [list(ORIGIN)]
    if any(file.path == RECORDINGS for file in store.client.list_artifacts(run.id)):
        with TemporaryDirectory() as folder, open(store.client.download_artifacts(run.id, RECORDINGS, folder)) as file:
            table = list(csv.reader(file))
    if row not in table:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*table, row])
        store.client.log_text(run.id, text.getvalue(), RECORDINGS)


def choose_run(training_runs: Iterable[TrackedRun], configuration: Configuration, clone: str) -> TrackedRun | None:
    """The run that has the config_key, else this clone's unclaimed run of the training with fitting params, else None.

    Among several, a finished run comes first.
    """
    config_key = configuration.config_key
    runs = [run for run in training_runs if run.tags.get("config_key", config_key) == config_key]
    runs = [run for run in runs
            if "config_key" in run.tags or (run.fits(configuration.params) and run.of_clone(clone))]  # fmt: skip
    runs.sort(key=lambda run: ("config_key" not in run.tags, run.info.status != "FINISHED"))
    return runs[0] if runs else None


def costs(run: TrackedRun, training_runs: Iterable[TrackedRun], target_tokens: int) -> dict[str, float]:
    """train_seconds and train_tokens that were spent in a run, and with the suffix _saved what others had spent.

    Tokens are saved by DVC's cache, or by a training that was resumed under another configuration. Seconds are saved
    where another run of the same training measured them; they are left out if no run did.
    """
    seconds, tokens = spent(run)
    known = max([seconds, *(spent(one)[0] for one in training_runs if not tokens)])
    found: dict[str, float] = {"train_tokens": tokens, "train_tokens_saved": max(target_tokens - tokens, 0)}
    return {**found, "train_seconds": seconds, "train_seconds_saved": known - seconds} if known else found


def spent(run: TrackedRun) -> tuple[float, int]:
    """The seconds and target tokens of the updates that were computed in a run, from the speed in its curve."""
    history = {name: {point.step: point.value for point in run.client.get_metric_history(run.id, name)}
               for name in ("seconds", "tokens_per_second")}  # fmt: skip
    seconds, speed = history["seconds"], history["tokens_per_second"]
    return sum(seconds.values()), sum(round(seconds[step] * speed[step]) for step in seconds.keys() & speed.keys())
