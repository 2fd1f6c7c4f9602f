"""One MLflow run per configuration, also after a kill, a repetition, a deletion or a lost connection."""

import gc
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from support.projects import PATHS
from support.runs import (
    KEYS,
    PARAMS,
    SCORES,
    configuration,
    curve,
    opened,
    record,
    score,
    start,
    steps,
    train,
    training,
)

from pipeline.experiments.track import rebuild
from pipeline.tracking import recorder
from pipeline.tracking import runs_table as view
from pipeline.tracking import store as tracking
from pipeline.tracking.record import Record, record_of, short_hash
from pipeline.tracking.seeds import renew_means
from pipeline.tracking.sender import send_waiting
from pipeline.tracking.sync import Sync

pytestmark = pytest.mark.usefixtures("fresh_process")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests here, as creating a database takes two seconds; each test has its own train_key."""
    return tmp_path_factory.mktemp("root").resolve()


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("'", "")


KILLED = """
import sys, time
from pathlib import Path
from support.runs import curve, opened, training
from pipeline.tracking import sender
sender.MESSAGE_INTERVAL = 0
with training(Path(sys.argv[1]), sys.argv[2]) as live:
    live.log_curve(curve(40))
    while live.record.is_unsent(opened(live.root).identity):
        time.sleep(0.01)
    print(opened(Path(sys.argv[1])).runs(sys.argv[2])[0].id, flush=True)
    sys.stdin.read()
"""


def test_a_run_killed_by_sigkill_is_resumed_under_its_id_with_every_step_once(root: Path, key: str) -> None:
    child = start(KILLED, str(root), key)
    assert child.stdout is not None
    run_id = child.stdout.readline().strip()
    child.kill()
    child.communicate()
    store = opened(root)
    assert store.client.get_run(run_id).info.status == "RUNNING"
    with training(root, key) as live:
        live.log_curve(curve(90))  # the whole curve again
        live.log_curve(curve(120))
    assert [run.id for run in store.runs(key)] == [run_id]
    assert sorted(steps(store, run_id, "train_loss")) == list(range(10, 130, 10))
    assert sorted(steps(store, run_id, "learning_rate")) == list(range(10, 130, 10))
    assert sorted(steps(store, run_id, "valid_loss")) == [30, 60, 90, 120]
    assert store.client.get_run(run_id).info.status == "RUNNING"  # until it is recorded
    score(root, key, key, last=120)
    assert store.client.get_run(run_id).info.status == "FINISHED"


@pytest.mark.parametrize(
    ("error", "status"),
    [(SystemExit(143), "KILLED"), (KeyboardInterrupt(), "KILLED"), (ValueError("loss is nan"), "FAILED")],
)
def test_an_interrupted_run_has_the_status_of_its_end_and_is_resumed(
    root: Path, key: str, error: BaseException, status: str
) -> None:
    with pytest.raises(type(error)), training(root, key):
        raise error
    (run,) = opened(root).runs(key)
    assert run.info.status == status
    assert train(root, key) == run.id
    assert opened(root).client.get_run(run.id).info.status == "RUNNING"


def test_one_run_per_configuration_however_often_it_is_trained_and_scored(root: Path, key: str) -> None:
    run_id = train(root, key)
    score(root, key, "c")
    score(root, key, "c")
    assert train(root, key) == run_id  # dvc repro --force
    score(root, key, "c")
    store = opened(root)
    assert [run.id for run in store.runs(key)] == [run_id]
    run = store.client.get_run(run_id)
    assert run.data.params == {name: str(value) for name, value in PARAMS.items()}
    assert {name: run.data.metrics[name] for name in SCORES} == SCORES
    assert [steps(store, run_id, name) for name in SCORES] == [[0]] * len(SCORES)
    assert sorted(steps(store, run_id, "valid_loss")) == [30, 60]
    assert run.data.tags["git_commit"] == "abc"
    assert run.info.run_name == "toy c"
    assert run.info.status == "FINISHED"


def test_another_beam_size_makes_a_second_run_with_the_same_curve(root: Path, key: str) -> None:
    first = train(root, key)
    score(root, key, "four")
    score(root, key, "one", beam_size=1)
    score(root, key, "one", beam_size=1)
    store = opened(root)
    runs = {run.data.params["beam_size"]: run for run in store.runs(key)}
    assert len(store.runs(key)) == 2
    assert runs["4"].id == first
    assert [steps(store, runs["1"].id, name) for name in KEYS] == [steps(store, first, name) for name in KEYS]
    assert runs["1"].info.status == "FINISHED"


def test_two_queued_beam_sizes_that_share_a_training_make_two_runs(root: Path, key: str) -> None:
    train(root, key, beam_size=4)
    train(root, key, beam_size=8)  # the second worker, before the first has scored
    score(root, key, "eight", beam_size=8)
    score(root, key, "four", beam_size=4)
    runs = {run.tags["config_key"]: run.data.params["beam_size"] for run in opened(root).runs(key)}
    assert runs == {"four": "4", "eight": "8"}
    assert len(opened(root).runs(key)) == 2


def test_a_training_taken_from_the_cache_still_gets_its_run_and_curve(root: Path, key: str) -> None:
    score(root, key, "c")
    store = opened(root)
    (run,) = store.runs(key)
    assert sorted(steps(store, run.id, "train_loss")) == [10, 20, 30, 40, 50, 60]


def test_a_curve_longer_than_one_message_is_logged_completely(root: Path, key: str) -> None:
    score(root, key, "c", last=12_000)  # 1,200 rows: more than a batch of MLflow may hold
    store = opened(root)
    (run,) = store.runs(key)
    assert len(steps(store, run.id, "train_loss")) == len(steps(store, run.id, "learning_rate")) == 1200


def test_a_changed_score_replaces_the_old_one_and_a_name_typed_in_the_page_stays(root: Path, key: str) -> None:
    score(root, key, "c")
    store = opened(root)
    (run,) = store.runs(key)
    store.client.update_run(run.id, name="my favourite")
    ended = run.info.end_time
    score(root, key, "c", scores=SCORES | {"bleu": 30.0})
    run = store.client.get_run(run.id)
    assert run.data.metrics["bleu"] == 30.0
    assert run.data.metrics["chrf"] == SCORES["chrf"]
    assert run.info.run_name == "my favourite"
    assert run.info.end_time == ended


def test_the_run_of_a_dvc_experiment_has_its_name(root: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_EXP_NAME", "wordy-bird")
    score(root, key, "c")
    assert [run.info.run_name for run in opened(root).runs(key)] == ["wordy-bird"]


def test_mlflow_run_id_in_the_environment_has_no_effect(root: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = opened(root).client.create_run(opened(root).experiment_id).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", other)
    assert train(root, key) != other
    score(root, key, "c")
    assert opened(root).client.get_run(other).data.metrics == {}


def test_a_deleted_run_is_created_again_and_a_deletion_during_training_fails_nothing(
    root: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train(root, key)
    opened(root).client.delete_run(first)
    with training(root, key) as live:
        while live.record.is_unsent(opened(live.root).identity):
            time.sleep(0.01)
        (run,) = opened(root).runs(key)
        assert run.id != first
        opened(root).client.delete_run(run.id)
        live.log_curve(curve(60))
    assert capsys.readouterr().err.count("Tracking is off") == 1


def test_a_run_restored_from_the_trash_does_not_take_its_configuration_back(root: Path, key: str) -> None:
    client, first = opened(root).client, train(root, key)
    client.delete_run(first)
    score(root, key, "c")
    client.restore_run(first)
    score(root, key, "c")
    assert [run.id != first for run in opened(root).runs(key) if "config_key" in run.tags] == [True]


def test_a_deleted_experiment_is_restored(root: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", key)
    first = opened(root)
    first.client.delete_experiment(first.experiment_id)
    monkeypatch.setattr(tracking, "_stores", {})
    score(root, key, "c")
    assert opened(root).experiment_id == first.experiment_id
    assert len(opened(root).runs(key)) == 1


WORKER = """
import sys
from pathlib import Path
from support.runs import configuration, curve, record, recorder, training
root, key = Path(sys.argv[1]), sys.argv[2]
recorder.TRAINING_TIMEOUT = recorder.STAGE_TIMEOUT = 100  # a busy machine must not fail this test
sys.stdin.readline()
with training(root, key, seed=key) as live:
    for last in range(10, 210, 10):
        live.log_curve(curve(last))
fields = {**configuration(key, key, last=200, seed=key), "texts": {"report.html": "report"}}
print(record(root, fields))
"""


def test_four_processes_create_the_database_at_once_and_write_nowhere_else(tmp_path: Path) -> None:
    fresh, elsewhere, home = (tmp_path / name for name in ("fresh", "elsewhere", "home"))
    for folder in (fresh, elsewhere, home):
        folder.mkdir()
    workers = [start(WORKER, str(fresh), f"key{n}", cwd=elsewhere, HOME=str(home)) for n in range(4)]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    ended = [worker.communicate(timeout=120) for worker in workers]
    assert ended == [("True\n", "")] * 4
    store = opened(fresh)
    for n in range(4):
        (run,) = store.runs(f"key{n}")
        assert sorted(steps(store, run.id, "train_loss")) == list(range(10, 210, 10))
        assert [file.path for file in store.client.list_artifacts(run.id)] == ["report.html"]
    assert {path.name for path in fresh.iterdir()} == {"mlflow.db", "mlartifacts", "work"}
    assert [*elsewhere.iterdir(), *home.iterdir()] == []


def test_a_process_that_ends_while_it_creates_the_database_leaves_no_half_database(tmp_path: Path, monkeypatch) -> None:
    from mlflow.store.db import utils

    whole = utils._upgrade_db
    monkeypatch.setattr(utils, "_upgrade_db", lambda engine: exit(130))  # the first tables are there, the rest is not
    with pytest.raises(SystemExit):
        tracking.connect(tmp_path)
    assert not (tmp_path / "mlflow.db").exists()
    monkeypatch.setattr(utils, "_upgrade_db", whole)
    (tmp_path / "mlflow.db.tmp").write_bytes(b"left by SIGKILL")
    assert list(tracking.connect(tmp_path).all_runs()) == []


def test_a_copied_project_puts_no_files_into_the_original(root: Path, key: str, tmp_path: Path) -> None:
    train(root, key)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    before = sorted(root.rglob("*"))
    assert record(copy, {**configuration(key, "c"), "texts": {"report.html": "report"}})
    assert sorted(root.rglob("*")) == before
    assert "c" in [run.tags.get("config_key") for run in opened(copy).runs(key)]


def test_a_copied_project_is_another_clone_and_a_moved_one_the_same(tmp_path: Path) -> None:
    name = tracking.clone_id(tmp_path / "project")
    shutil.copytree(tmp_path / "project", tmp_path / "copy")
    copy = tracking.clone_id(tmp_path / "copy")
    assert copy != name
    (tmp_path / "project").rename(tmp_path / "moved")
    assert [tracking.clone_id(tmp_path / folder) for folder in ("moved", "copy")] == [name, copy]


def test_the_table_shows_scores_and_params_and_mlflows_pages_still_use_the_tag(root: Path) -> None:
    import mlflow

    store = opened(root)
    tags = store.client.get_experiment(store.experiment_id).tags
    shown = json.loads(tags[f"mlflow.sharedViewState.{view.VIEW}"])
    scores = ["bleu", "valid_bleu", "delta_bleu", "p_bootstrap"]
    assert shown["selectedColumns"][:5] == [*(f"metrics.`{name}`" for name in scores), "params.`corpus`"]
    assert shown["columnOrder"] == shown["selectedColumns"]
    pages = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"
    main = next(pages.glob("main.*.js")).read_text(encoding="utf-8")
    unknown = {word for word in ("mlflow.sharedViewState.", "viewStateShareKey", *shown) if word not in main}
    assert unknown == set()


def test_a_plain_mlflow_ui_opens_the_same_database(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    mlflow.set_tracking_uri(None)  # another test may have set it in this process
    opened(root)
    monkeypatch.chdir(root)
    assert mlflow.get_tracking_uri() == opened(root).uri


def test_objects_of_an_import_are_left_out_of_later_garbage_collections() -> None:
    """Otherwise the next collection goes through all of MLflow and stops the training for a third of a second."""
    with tracking.without_garbage_collection():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert not {id(one) for one in made} & {id(one) for one in gc.get_objects()}


def test_objects_of_a_failed_connection_can_be_collected_as_garbage() -> None:
    """Otherwise the tries to reach a server that is down for days fill the memory."""
    made: list[list] = []

    def fail() -> None:
        made.extend([] for _ in range(1000))
        raise OSError("down")

    with pytest.raises(OSError, match="down"), tracking.without_garbage_collection():
        fail()
    assert gc.isenabled()
    assert {id(one) for one in made} <= {id(one) for one in gc.get_objects()}


@pytest.mark.parametrize("uri", ["sqlite:///mlflow.db", "sqlite:///runs/team.db"])
def test_a_relative_store_is_in_the_project_and_not_in_the_current_folder(tmp_path, monkeypatch, fresh_process, uri):
    temporary, project = tmp_path / "temporary copy", tmp_path / "project"
    for folder in (temporary, project / "runs"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(temporary)  # as `dvc exp run --temp` does
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    score(project, "key", "config")
    assert list(temporary.iterdir()) == []
    assert (project / uri.removeprefix("sqlite:///")).is_file()


def test_clones_that_create_one_sqlite_store_at_once_leave_it_whole(tmp_path):
    code = "import sys; from pathlib import Path; from support.runs import opened; opened(Path(sys.argv[1]))"
    uri = f"sqlite:///{tmp_path}/team.db"
    clones = [start(code, str(tmp_path / f"clone{number}"), MLFLOW_TRACKING_URI=uri) for number in range(3)]
    for clone in clones:
        _, errors = clone.communicate()
        assert clone.returncode == 0, errors
    connection = sqlite3.connect(tmp_path / "team.db")
    assert connection.execute("select count(*) from experiments where name = 'translation'").fetchone() == (1,)


def rows(first: int, last: int, tokens: int = 100, seconds: float = 2.0) -> list[dict]:
    """Rows of a curve at steps first, first + 10, ... last, with the speed at which they were computed."""
    speed = {"seconds": seconds, "tokens_per_second": tokens / seconds}
    return [row | speed for row in curve(last) if row["step"] >= first]


def costs_of(root: Path, config: str, prefix: str = "train_") -> dict[str, float]:
    """The costs of the run of a configuration."""
    (run,) = opened(root).all_runs(f"tags.config_key = '{config}'")
    return {name: value for name, value in run.data.metrics.items() if name.startswith(prefix) and "loss" not in name}


def test_a_run_claims_the_tokens_and_seconds_that_were_spent_in_it_and_counts_the_others_as_saved(root, key):
    with training(root, f"{key} long") as live:
        live.log_curve(curve(50))  # a training of 50 updates that is resumed
        live.log_curve(rows(60, 100))
    fields = configuration(f"{key} long", f"{key} long", last=100)
    assert record(root, {**fields, "target_tokens": 1000})
    half = {
        "train_tokens": 500,
        "train_tokens_saved": 500,
        "train_seconds": 10,
        "train_seconds_saved": 0,
        "train_updates": 50,
        "train_updates_saved": 50,
    }
    assert costs_of(root, f"{key} long") == half
    with training(root, f"{key} long", beam_size=1) as live:  # finds the finished state
        live.log_curve(curve(100))
    fields = configuration(f"{key} long", f"{key} beam", last=100, beam_size=1)
    assert record(root, {**fields, "target_tokens": 1000})
    none = {
        "train_tokens": 0,
        "train_tokens_saved": 1000,
        "train_seconds": 0,
        "train_seconds_saved": 10,
        "train_updates": 0,
        "train_updates_saved": 100,
    }
    assert costs_of(root, f"{key} beam") == none


def test_a_run_keeps_who_recorded_it_first_and_lists_later_recordings_once(root, key, monkeypatch):
    fields = configuration(key, key)
    first = {"git_commit": "one", "DVC_EXP_NAME": "best-exp", "mlflow.user": "anna"}
    later = {"git_commit": "two", "mlflow.user": "ben"}
    for tags, scores in ((first, SCORES | {"delta_bleu": 1.0}), (later, SCORES), (later, SCORES), (first, SCORES)):
        assert record(root, {**fields, "tags": tags, "scores": scores})
    store = opened(root)
    (run,) = store.all_runs(f"tags.config_key = '{key}'")
    assert {name: run.data.tags[name] for name in first} == first
    assert run.data.metrics["delta_bleu"] == 1.0
    name = f"recordings/{store.clone}.csv"
    table = pd.read_csv(store.client.download_artifacts(run.info.run_id, name)).to_dict("records")
    assert [(row["git_commit"], row["mlflow.user"]) for row in table] == [("two", "ben")]


def test_a_training_has_a_user_and_a_source(root, key, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "anna")
    train(root, key)
    (run,) = opened(root).runs(key)
    assert (run.tags["mlflow.user"], run.tags["mlflow.source.name"]) == ("anna", "dvc")


@pytest.mark.full
def test_a_run_that_was_deleted_for_good_does_not_come_back_and_a_lost_one_does(tmp_path, key, monkeypatch):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    train(tmp_path, f"{key} trained")
    score(tmp_path, key, key)
    store = opened(tmp_path)
    for run in list(store.all_runs()):
        store.client.delete_run(run.info.run_id)
    gc = ("mlflow", "gc", "--backend-store-uri", store.uri, "--tracking-uri", store.uri)
    subprocess.run([sys.executable, "-m", *gc], check=True, capture_output=True, env={**os.environ, "PATH": PATHS})
    rebuild(tmp_path)
    assert list(store.all_runs()) == []
    (tmp_path / "mlflow.db").unlink()
    code = "import sys, pathlib; from pipeline.experiments.track import rebuild; rebuild(pathlib.Path(sys.argv[1]))"
    start(code, str(tmp_path), cwd=tmp_path).communicate()  # a new process: MLflow keeps a removed database open
    found = sqlite3.connect(tmp_path / "mlflow.db").execute("select status from runs order by status").fetchall()
    assert found == [("FINISHED",), ("RUNNING",)]


CLONES = """
import sys
from pathlib import Path
from support.runs import curve, opened, score, training
root, key, configs = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split()
opened(root)
print("ready", flush=True)
sys.stdin.readline()
for config in configs:
    with training(root, f"{key} {config}") as live:
        live.log_curve(curve(120))
    score(root, f"{key} {config}", f"{key} {config}", last=120)
"""


def in_two_clones(tmp_path: Path, uri: str, key: str, configs: tuple[str, str]) -> None:
    """Train and record configurations in two clones of a project at the same time, in one store."""
    clones = [
        start(CLONES, str(tmp_path / f"clone{number}"), key, configs[number], MLFLOW_TRACKING_URI=uri)
        for number in range(2)
    ]
    for clone in clones:
        assert clone.stdout is not None
        assert clone.stdout.readline() == "ready\n"
    for clone in clones:
        assert clone.stdin is not None
        clone.stdin.write("go\n")
        clone.stdin.flush()
    for clone in clones:
        _, errors = clone.communicate()
        assert (clone.returncode, errors) == (0, "")


@pytest.mark.parametrize("kind", [pytest.param("server", marks=pytest.mark.full), "sqlite"])
def test_two_clones_on_one_store_make_one_run_per_configuration_with_each_step_once(tmp_path, request, key, kind):
    uri = request.getfixturevalue("team_server") if kind == "server" else f"sqlite:///{tmp_path}/team.db"
    in_two_clones(tmp_path, uri, key, ("a b c d", "a b c e"))
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("translation")
    assert experiment
    found = client.search_runs([experiment.experiment_id], f"tags.train_key LIKE '{key}%'")
    assert sorted(run.data.tags["config_key"] for run in found) == [f"{key} {config}" for config in "abcde"]
    for run in found:
        history = client.get_metric_history(run.info.run_id, "train_loss")
        assert sorted(point.step for point in history) == list(range(10, 130, 10))
        assert run.info.status == "FINISHED"


def test_the_same_training_in_two_clones_writes_into_two_runs(tmp_path, monkeypatch, key):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/team.db")
    with training(tmp_path / "one", key) as live, training(tmp_path / "two", key) as other:
        live.log_curve(curve(50))
        other.log_curve(curve(30))
    runs = opened(tmp_path / "one").runs(key)
    assert sorted(len(run.client.get_metric_history(run.id, "train_loss")) for run in runs) == [3, 5]
    score(tmp_path / "one", key, key)
    score(tmp_path / "two", key, key)
    assert len(list(opened(tmp_path / "one").all_runs(f"tags.config_key = '{key}'"))) == 1


def test_other_translations_of_the_same_training_and_params_are_another_run(root, key):
    first = train(root, key)
    score(root, key, f"{key} one")
    score(root, key, f"{key} two", scores=SCORES | {"bleu": 30.0})
    score(root, key, f"{key} one")
    runs = {run.tags["config_key"]: run for run in opened(root).runs(key)}
    assert {name: run.data.metrics["bleu"] for name, run in runs.items()} == {f"{key} one": 31.5, f"{key} two": 30.0}
    assert runs[f"{key} one"].id == first


def recorded_seeds(root: Path, key: str, seeds: tuple[int, ...]) -> None:
    """Record a configuration with several seeds; its BLEU is the seed."""
    for seed in seeds:
        fields = configuration(f"{key} {seed}", f"{key} {seed}", seed=seed)
        fields |= {"seeds_key": key, "scores": SCORES | {"bleu": float(seed), "delta_bleu": 1.0}}
        assert record(root, fields)


def parents_of(root: Path, key: str) -> list:
    """The parents of the seeds of a configuration."""
    return opened(root).search(f"tags.seeds_parent = '{key}'")


def test_the_second_seed_of_a_configuration_makes_a_parent_with_mean_and_deviation(root, key):
    recorded_seeds(root, key, (1,))
    assert parents_of(root, key) == []
    recorded_seeds(root, key, (3, 1))
    (parent,) = parents_of(root, key)
    assert (parent.data.metrics["bleu"], parent.data.metrics["bleu_deviation"]) == (2.0, 1.4142)
    assert (parent.data.metrics["seeds"], "delta_bleu" in parent.data.metrics) == (2, False)
    assert parent.data.params == {name: str(value) for name, value in PARAMS.items()}  # the seed is none of them
    children = opened(root).search(f"tags.seeds_key = '{key}'")
    assert [run.tags["mlflow.parentRunId"] for run in children] == [parent.id] * 2
    recorded_seeds(root, key, (5,))
    (same,) = parents_of(root, key)
    assert (same.id, same.data.metrics["bleu"], same.info.status) == (parent.id, 3.0, "FINISHED")


def test_parents_made_by_two_clones_become_one_and_the_last_seed_has_none(root, key):
    store = opened(root)
    recorded_seeds(root, key, (1, 2))
    store.create_run("by another clone at the same time", {"seeds_parent": key})
    recorded_seeds(root, key, (2,))
    assert len(parents_of(root, key)) == 1
    (child, _) = store.search(f"tags.seeds_key = '{key}'")
    store.client.delete_run(child.id)
    left = 3 - int(child.data.params["seed"])
    recorded_seeds(root, key, (left,))
    assert parents_of(root, key) == []
    assert "mlflow.parentRunId" not in opened(root).runs(f"{key} {left}")[0].tags


ABANDONED = """
import os, sys
from pathlib import Path
from support.runs import curve, opened, training
from pipeline.tracking.record import note_stage
root, key = Path(sys.argv[1]), sys.argv[2]
with training(root, f"{key} trained") as live:
    live.log_curve(curve(60))
note_stage(root, "translate")
live = training(root, f"{key} killed").__enter__()
live.log_curve(curve(30))
while live.record.is_unsent(opened(live.root).identity):
    pass
os.kill(os.getpid(), 9)
"""


def test_a_run_whose_dvc_has_ended_is_killed_or_incomplete_and_one_that_runs_or_is_elsewhere_is_left_alone(root, key):
    start(ABANDONED, str(root), key).communicate()
    train(root, f"{key} running")  # by this process
    train(root, f"{key} elsewhere")
    with record_of(root, f"{key} elsewhere", PARAMS).change() as run:
        run["owner"] |= {"host": "another", "pid": 1}
    store = opened(root)
    score(root, f"{key} other", f"{key} other")  # the next stage
    found = {run.tags["train_key"].split()[-1]: run for run in store.search(f"tags.train_key LIKE '{key}%'")}
    statuses = {name: (run.info.status, run.tags.get("incomplete")) for name, run in found.items()}
    assert statuses == {
        "trained": ("FINISHED", "translate"),
        "killed": ("KILLED", None),
        "other": ("FINISHED", None),
        "running": ("RUNNING", None),
        "elsewhere": ("RUNNING", None),
    }
    score(root, f"{key} trained", f"{key} trained")
    (run,) = store.runs(f"{key} trained")
    assert (run.id, run.info.status, "incomplete" in run.tags) == (found["trained"].id, "FINISHED", False)


def test_the_curve_and_cost_of_back_translation_are_in_the_run_that_paid_for_it(root, key):
    with recorder.BackTranslationCurve(root, PARAMS, f"{key} back") as live:
        live.log_curve(rows(10, 60))
    for beam in (4, 8):
        with recorder.TrainingRun(root, PARAMS | {"beam_size": beam}, key, {}, key, f"{key} back") as live:
            live.log_curve(rows(10, 60) if beam == 4 else curve(60))
        score(root, key, f"{key} {beam}", beam_size=beam)
    paid, saved = (costs_of(root, f"{key} {beam}", "back_train_") for beam in (4, 8))
    assert paid == {
        "back_train_updates": 60,
        "back_train_updates_saved": 0,
        "back_train_tokens": 600,
        "back_train_tokens_saved": 0,
        "back_train_seconds": 12,
        "back_train_seconds_saved": 0,
    }
    assert saved == {
        name.removesuffix("_saved") if "_saved" in name else f"{name}_saved": cost for name, cost in paid.items()
    }
    store = opened(root)
    for run in store.runs(key):
        assert steps(store, run.id, "back_train_loss") == steps(store, run.id, "train_loss") == list(range(10, 70, 10))


def test_a_longer_training_names_the_run_whose_updates_it_resumed(root, key):
    for last, first in ((60, 10), (100, 70)):
        with recorder.TrainingRun(root, PARAMS | {"max_steps": last}, f"{key} {last}", {}, key) as live:
            live.log_curve(curve(first - 10))
            live.log_curve(rows(first, last))
        fields = configuration(f"{key} {last}", f"{key} {last}", last=last, max_steps=last)
        assert record(root, {**fields, "target_tokens": 10 * last})
    (run,) = opened(root).runs(f"{key} 100")
    assert run.tags["updates_from"] == "toy test_a_"
    metrics = run.data.metrics
    assert (metrics["train_updates"], metrics["train_updates_saved"]) == (40, 60)
    assert (metrics["train_seconds"], metrics["train_seconds_saved"]) == (8, 12)


def test_a_stopped_training_claims_the_updates_between_its_last_row_and_its_state(root, key):
    """Rows at 10, 20, ...; stopped after update 25; the row at 30 then measures 5 updates."""
    for part in (
        rows(10, 20),
        [{"step": 25, "seconds": 1.0, "tokens_per_second": 50.0}],
        rows(30, 30, tokens=50, seconds=1.0),
        rows(40, 40),
    ):
        with training(root, key) as live:
            live.log_curve(part)
    fields = configuration(key, key, last=40)
    assert record(root, {**fields, "target_tokens": 400})
    assert costs_of(root, key) == {
        "train_updates": 40,
        "train_updates_saved": 0,
        "train_tokens": 400,
        "train_tokens_saved": 0,
        "train_seconds": 8,
        "train_seconds_saved": 0,
    }


def test_a_run_without_params_yet_is_not_taken_for_another_configuration(root, key):
    store = opened(root)
    for beam in (4, 8):  # as another process of this clone leaves them for a moment
        store.create_run(
            "young", {"train_key": key, "clone": store.clone, "params_key": short_hash(PARAMS | {"beam_size": beam})}
        )
    for beam in (8, 4):
        score(root, key, f"{key} {beam}", beam_size=beam)
    found = {run.tags["config_key"]: run.data.params["beam_size"] for run in store.runs(key)}
    assert found == {f"{key} 8": "8", f"{key} 4": "4"}


def test_an_experiment_gets_only_the_runs_that_were_made_for_it(tmp_path, key, monkeypatch):
    score(tmp_path, f"{key} one", "one")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "other")
    monkeypatch.setattr(tracking, "_stores", {})
    score(tmp_path, f"{key} two", "two")
    assert [run.tags["config_key"] for run in opened(tmp_path).search("tags.config_key IS NOT NULL")] == ["two"]


def test_a_file_that_changed_at_the_same_length_is_sent(root, key):
    fields = configuration(key, key)
    for text in ("AAAA", "BBBB"):
        assert record(root, {**fields, "texts": {"valid.hyp": text}})
    store = opened(root)
    (run,) = store.runs(key)
    assert Path(store.client.download_artifacts(run.id, "valid.hyp")).read_text() == "BBBB"


def samples_of(root, key) -> str:
    """The file samples.csv of the run of a training, from the store."""
    (run,) = opened(root).runs(key)
    return Path(opened(root).client.download_artifacts(run.id, recorder.SAMPLES)).read_text()


def test_the_samples_of_a_stopped_training_are_in_its_run_and_are_replaced_when_it_is_resumed(root, key):
    with suppress(SystemExit), training(root, key) as live:
        live.log_samples("step\n30\n")
        raise SystemExit(143)
    assert samples_of(root, key) == "step\n30\n"
    with training(root, key) as live:
        live.log_samples("step\n30\n")
        live.log_samples("step\n30\n60\n")
    assert samples_of(root, key) == "step\n30\n60\n"
    score(root, key, key)  # the stage record, for a run that was trained here
    assert samples_of(root, key) == "step\n30\n60\n"


def test_a_training_taken_from_the_cache_has_the_samples_that_record_found(root, key):
    assert record(root, {**configuration(key, key), "texts": {recorder.SAMPLES: "step\n30\n"}})
    assert samples_of(root, key) == "step\n30\n"


def test_a_mark_as_duplicate_deletes_nothing_but_a_duplicate(root, key):
    score(root, key, f"{key} one")
    score(root, key, f"{key} two", beam_size=1)
    store = opened(root)
    one, two = store.runs(key)
    store.client.set_tag(one.id, "duplicate_of", "nonsense")
    store.client.set_tag(two.id, "duplicate_of", one.id)  # of other params
    send_waiting(root, store)
    assert len(store.runs(key)) == 2
    third = store.create_run("double", {"train_key": key, "duplicate_of": one.id})
    third.log(one.data.params, (), {}, {})
    send_waiting(root, store)
    assert {run.id for run in store.runs(key)} == {one.id, two.id}


def test_waiting_records_do_not_delay_the_record_of_the_stage(tmp_path, monkeypatch, key):
    for number in range(5):
        recorder.write_configuration(tmp_path, recorder.Configuration(**configuration(f"old {number}", f"{number}")))
    sent, send = [], Sync.send

    def noted(self, *rest, **more) -> bool:
        sent.append(self.record.read()["config_key"])
        return send(self, *rest, **more)

    monkeypatch.setattr(Sync, "send", noted)
    score(tmp_path, key, "new")
    assert sent[0] == "new"
    send_waiting(tmp_path, opened(tmp_path))
    assert sorted(sent[1:]) == list("01234")


class Nowhere:
    """A sender without a server."""

    def notify(self) -> None:
        pass

    def close(self, timeout: float) -> bool:
        return False


def test_a_deleted_training_that_is_repeated_while_the_server_is_away_is_sent_later(tmp_path, key, monkeypatch):
    train(tmp_path, key)
    store = opened(tmp_path)
    store.client.delete_run(store.runs(key)[0].id)
    send_waiting(tmp_path, store)
    assert store.runs(key) == []  # it stays deleted
    monkeypatch.setattr(recorder, "Sender", lambda *_: Nowhere())  # the server is away
    with training(tmp_path, key) as live:
        live.log_curve(curve(60))
    send_waiting(tmp_path, store)
    assert len(store.runs(key)) == 1


@pytest.mark.full
def test_a_run_deleted_in_one_of_two_stores_stays_deleted_there(tmp_path, key, monkeypatch):
    for name in ("a", "b"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/{name}.db")
        score(tmp_path, key, key)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/a.db")
    store = opened(tmp_path)
    (run,) = store.runs(key)
    store.client.delete_run(run.id)
    send_waiting(tmp_path, store, all_addresses=True)
    assert store.runs(key) == []


def test_means_over_seeds_follow_a_run_that_was_deleted(root, key):
    recorded_seeds(root, key, (1, 3, 8))
    store = opened(root)
    store.client.delete_run(store.runs(f"{key} 8")[0].id)
    renew_means(store)
    (parent,) = parents_of(root, key)
    assert (parent.data.metrics["seeds"], parent.data.metrics["bleu"]) == (2, 2.0)


def full_disk(*_) -> None:
    raise OSError(28, "No space left on device", "curve.jsonl")


def test_a_full_disk_ends_tracking_and_not_the_training(tmp_path, key, capsys, monkeypatch):
    with training(tmp_path, key) as live:
        live.log_curve(curve(20))
        monkeypatch.setattr(Record, "add_rows", full_disk)
        live.log_curve(curve(40))
        live.log_curve(curve(60))
    assert capsys.readouterr().err.count("Tracking is off for this stage ([Errno 28] No space left on device") == 1


def test_a_clean_recording_after_one_with_uncommitted_edits_is_listed(root, key):
    fields = configuration(key, key)
    origin = {"git_commit": "one", "mlflow.user": "anna"}
    for tags in (origin | {"git_dirty": "true"}, origin):
        assert record(root, {**fields, "tags": tags})
    store = opened(root)
    (run,) = store.runs(key)
    table = pd.read_csv(store.client.download_artifacts(run.id, f"recordings/{store.clone}.csv"))
    assert table["git_dirty"].isna().tolist() == [True]


@pytest.mark.parametrize("uri", ["http://anna:se[cret@localhost", "http://[::1"])
def test_an_address_that_is_none_costs_one_line(tmp_path, monkeypatch, capsys, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert not record(tmp_path, configuration("key", "config"))
    errors = capsys.readouterr().err
    assert errors.startswith("Tracking is delayed (MLFLOW_TRACKING_URI is not an address (")
    assert (errors.count("\n"), "cret" in errors) == (1, False)
