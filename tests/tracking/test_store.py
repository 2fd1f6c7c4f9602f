"""Opening a store: created whole, in the project, with the table of runs; and what is said of one that cannot be."""

from __future__ import annotations

import json
import re
import shutil
import socketserver
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from support.runs import configuration, opened, record, runs_of, score, train, training

from pipeline.tracking import live, runs_table
from pipeline.tracking import store as tracking


def test_a_run_is_written_into_its_project_and_nowhere_else(tmp_path, monkeypatch, fresh_process):
    fresh, elsewhere, home = (tmp_path / name for name in ("fresh", "elsewhere", "home"))
    for folder in (fresh, elsewhere, home):
        folder.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", str(home))
    run_id = train(fresh, "key")
    fields = {**configuration("key", "key"), "texts": {"report.html": "report"}}
    assert record(fresh, fields).info.run_id == run_id
    assert [file.path for file in opened(fresh).client.list_artifacts(run_id)] == ["report.html"]
    assert {path.name for path in fresh.iterdir()} - {"mlflow.db.lock"} == {"mlflow.db", "mlartifacts", "work"}
    assert [*elsewhere.iterdir(), *home.iterdir()] == []


def test_a_process_killed_while_it_creates_one_leaves_no_half(tmp_path, monkeypatch, fresh_process):
    from mlflow.store.db import utils

    upgrade = utils._upgrade_db
    monkeypatch.setattr(utils, "_upgrade_db", lambda engine: exit(130))  # the first tables are there, the rest is not
    with pytest.raises(SystemExit):
        tracking.connect(tmp_path)
    assert not (tmp_path / "mlflow.db").exists()
    monkeypatch.setattr(utils, "_upgrade_db", upgrade)
    (tmp_path / "mlflow.db.tmp").write_bytes(b"left by SIGKILL")
    assert tracking.connect(tmp_path).search("") == []


@pytest.mark.full
def test_a_relative_store_is_in_the_project(tmp_path, monkeypatch, fresh_process):
    temporary, project = tmp_path / "temporary copy", tmp_path / "project"
    for folder in (temporary, project / "runs"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(temporary)  # as `dvc exp run --temp` does
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///runs/team.db")
    score(project, "key", "config")
    assert list(temporary.iterdir()) == []
    assert (project / "runs/team.db").is_file()


def test_a_deleted_experiment_is_restored(root, key, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", key)
    for _ in range(2):
        tracking.open_store.cache_clear()
        store = opened(root)
        store.client.delete_experiment(store.experiment_id)
    tracking.open_store.cache_clear()
    score(root, key, key)
    assert [opened(root).experiment_id, len(runs_of(root, key))] == [store.experiment_id, 1]


def test_the_table_shows_scores_by_a_tag_that_mlflows_pages_know(root, key, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", key)  # without runs
    store = opened(root)
    runs_table.show_differing_params(store.client, store.experiment_id)
    tags = store.client.get_experiment(store.experiment_id).tags
    shown = json.loads(tags[f"mlflow.sharedViewState.{runs_table.VIEW}"])
    scores = ["bleu", "valid_bleu", "delta_bleu", "p_randomisation"]
    assert shown["selectedColumns"][:5] == [*(f"metrics.`{name}`" for name in scores), "params.`corpus`"]
    pages = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"
    main = next(pages.glob("main.*.js")).read_text(encoding="utf-8")
    assert {word for word in ("mlflow.sharedViewState.", "viewStateShareKey", *shown) if word not in main} == set()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("http://anna:se[cret@localhost", "MLFLOW_TRACKING_URI is not an address"),
        ("http://[::1", "MLFLOW_TRACKING_URI is not an address"),
        ("sqlite:///broken.db", "file is not a database"),
        ("sqlite:///folder.db", "unable to open database file"),
    ],
)
def test_a_store_that_cannot_be_opened_has_a_reason_in_one_line(tmp_path, monkeypatch, fresh_process, uri, message):
    (tmp_path / "broken.db").write_text("not a database" * 50)
    (tmp_path / "folder.db").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(tracking.StoreError, match=re.escape(message)) as error:
        tracking.connect(tmp_path)
    assert ("\n" in str(error.value), "cret" in str(error.value)) == (False, False)


def test_a_file_of_another_version_of_mlflow_names_the_upgrade(root, tmp_path, fresh_process):
    shutil.copy(root / "mlflow.db", tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '0123456789ab'")
    with pytest.raises(tracking.StoreError) as error:
        tracking.connect(tmp_path)
    assert "mlflow db upgrade" in str(error.value)


@pytest.mark.parametrize("answer", ["", "HTTP/1.1 503 Busy\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n"])
def test_a_server_that_is_silent_or_busy_is_given_up_soon(tmp_path, monkeypatch, fresh_process, answer):
    class Bad(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer.encode())
            time.sleep(0 if answer else 10)

    tracking.connect(tmp_path)  # imports MLflow, which may take long
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Bad) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_address[1]}")
        begin = time.monotonic()
        with pytest.raises(tracking.StoreError):
            tracking.connect(tmp_path)
        assert time.monotonic() - begin < 5  # two tries of one second, and a second between them
        server.shutdown()


def test_what_a_library_raises_is_the_stores_failure_and_what_we_raise_a_bug(monkeypatch, tmp_path, fresh_process):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "soon")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with pytest.raises(tracking.StoreError, match="soon"):
        opened(tmp_path)
    for error in (ValueError("ours"), json.JSONDecodeError("ours", "", 0), KeyError("ours")):
        with pytest.raises(type(error)), tracking.store_errors():
            raise error


def test_a_bug_in_the_live_curve_is_told_once_and_the_training_goes_on(root, key, monkeypatch, capsys):
    def fail(*words: object) -> None:
        raise AttributeError("ours")

    monkeypatch.setattr(live.LiveRun, "_open", fail)
    train_run = training(root, key)
    with train_run as curve:
        curve.log_curve([{"step": 1, "train_loss": 1.0}])
    errors = capsys.readouterr().err
    assert errors.count("AttributeError: ours. This is a bug of this program") == 1
    assert errors.count("Traceback: work/error-tracking-") == 1
