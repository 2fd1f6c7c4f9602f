"""MLflow's server may be down, slow, silent or foreign: no stage fails or waits, and what was missed is sent later."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest
from support.runs import SCORES, configuration, curve, opened, start, steps, training
from support.servers import Door

from transformer.tracking import outbox, recorder
from transformer.tracking import store as tracking

pytestmark = pytest.mark.usefixtures("fresh_process")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, fresh_process: None) -> None:
    """Nobody here waits long: the patience is that of a stage divided by many."""
    monkeypatch.setattr(recorder, "TRAINING_TIMEOUT", 0.2)
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 0.2)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


STAGES = """
import sys
from pathlib import Path
from support.runs import configuration, curve, recorder, training
recorder.TRAINING_TIMEOUT = recorder.STAGE_TIMEOUT = float(sys.argv[3])
root, key = Path(sys.argv[1]), sys.argv[2]
with training(root, key) as live:
    live.log_curve(curve(60))
print(recorder.record_configuration(root, configuration(key, "config")))
"""


def stages(root: Path, key: str = "key", patience: float = 0.2) -> tuple[str, str]:
    """What train and score do, in a process that then ends: what it prints, and its errors."""
    child = start(STAGES, str(root), key, str(patience))
    told, errors = child.communicate()
    assert child.returncode == 0, errors
    return told.strip(), errors


def spooled(root: Path) -> list[Path]:
    return sorted((root / "work/outbox").glob("*.jsonl"))


def dead_address() -> str:
    """Where nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{closed.getsockname()[1]}"


def test_what_a_dead_server_missed_is_sent_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, team_server: str
) -> None:
    door = Door(team_server)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", door.address)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    told, errors = stages(tmp_path, "missed")
    assert told == "False"
    lines = errors.splitlines()
    assert len(lines) == 2  # a training and a score
    assert all(line.startswith("tracking waits: ") and "work/outbox" in line for line in lines)
    assert len(spooled(tmp_path)) == 2
    door.open()
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    assert recorder.record_configuration(tmp_path, configuration("other", "other"))  # the next stage of anything
    assert spooled(tmp_path) == []
    store = opened(tmp_path)
    (run,) = store.runs("missed")
    assert sorted(steps(store, run.id, "train_loss")) == [10, 20, 30, 40, 50, 60]
    assert run.data.metrics["bleu"] == SCORES["bleu"]
    assert run.info.status == "FINISHED"
    door.close()


def test_a_silent_server_stalls_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    door = Door(dead_address())  # takes every packet, and never answers
    monkeypatch.setenv("MLFLOW_TRACKING_URI", door.address)
    with training(tmp_path, "key") as live:
        for last in range(10, 1010, 10):
            live.log_curve(curve(last)[-1:])
    assert capsys.readouterr().err.count("tracking waits: ") == 1
    events = list(outbox.read_events(spooled(tmp_path)[0]))
    assert [row["step"] for event in events for row in event.get("rows", [])] == list(range(10, 1010, 10))
    assert events[-1]["event"] == "end"
    door.close()


def test_a_slow_server_gets_all_that_a_training_said_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, team_server: str
) -> None:
    door = Door(team_server)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", door.address)
    monkeypatch.setattr(recorder, "TRAINING_TIMEOUT", 60)
    with training(tmp_path, "slow") as live:
        for last in range(10, 510, 10):
            live.log_curve(curve(last)[-1:])
        door.open()
    assert spooled(tmp_path) == []
    store = opened(tmp_path)
    (run,) = store.runs("slow")
    assert sorted(steps(store, run.id, "train_loss")) == list(range(10, 510, 10))
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= set(run.data.metrics)
    door.close()


KILLED = """
import os, sys, time
from pathlib import Path
from support.runs import curve, outbox, training
outbox.MESSAGE_INTERVAL = 0
with training(Path(sys.argv[1]), "killed") as live:
    live.log_curve(curve(40))
    while live.outbox._waiting:
        time.sleep(0.01)
    live.log_curve(curve(50))
    os.kill(os.getpid(), 9)
"""


def test_a_training_that_was_killed_is_marked_so_by_the_next_stage_of_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(KILLED, str(tmp_path))
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    assert recorder.record_configuration(tmp_path, configuration("other", "other"))
    store = opened(tmp_path)
    (run,) = store.runs("killed")
    assert run.info.status == "KILLED"
    assert sorted(steps(store, run.id, "train_loss")) == [10, 20, 30, 40, 50]  # what it said last is there too


@pytest.mark.parametrize("variable", [None, "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"])
def test_credentials_reach_neither_a_log_nor_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    place = dead_address()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{place}" if variable else f"http://me:geheim@{place}")
    if variable:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
        monkeypatch.setenv(variable, "geheim")
    told, errors = stages(tmp_path, patience=5)
    assert "tracking waits: " in errors
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "key" in written
    assert "geheim" not in told + errors + written


def test_a_secret_that_an_error_repeats_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "geheim")
    error = OSError("401 for Bearer geheim at https://me:hunter2@runs.example.org/api")
    assert tracking.reason(error) == "401 for Bearer *** at https://***@runs.example.org/api"


def test_an_address_without_a_server_shows_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"postgresql+psycopg://me:geheim@{dead_address()}/runs")
    told, errors = stages(tmp_path, patience=5)
    assert "tracking waits: " in errors
    assert "geheim" not in told + errors


@pytest.mark.parametrize("spoilt", ["not a database", None])
def test_a_spoilt_database_fails_no_stage_and_is_told_all_when_it_was_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: str | None
) -> None:
    database = tmp_path / "mlflow.db"
    if spoilt is None:
        database.mkdir()
    else:
        database.write_text(spoilt * 50)
    told, errors = stages(tmp_path, patience=5)
    assert told == "False"
    assert len(errors.splitlines()) == 2
    database.rename(tmp_path / "away")
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    assert recorder.record_configuration(tmp_path, configuration("other", "other"))
    assert [run.data.metrics["bleu"] for run in opened(tmp_path).runs("key")] == [SCORES["bleu"]]


def test_a_disk_that_takes_nothing_costs_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "work").write_text("a file where a folder should be")
    with training(tmp_path, "key") as live:
        live.log_curve(curve(60))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("tracking is off for this stage: ")


def test_a_slip_of_ours_is_not_taken_for_a_dead_server(tmp_path: Path) -> None:
    event = {"event": "configuration", **configuration("key", "c"), "curve": [{"train_loss": 1.0}]}
    with pytest.raises(KeyError, match="step"):
        recorder.Recorder(tmp_path).send([event])


def test_acts_for_another_store_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{dead_address()}")
    stages(tmp_path, "theirs")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    assert recorder.record_configuration(tmp_path, configuration("ours", "ours"))
    assert len(spooled(tmp_path)) == 2
    assert opened(tmp_path).runs("theirs") == []


def test_half_a_line_at_the_end_of_a_dead_process_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "work/outbox"
    folder.mkdir(parents=True)
    (folder / "1-1.jsonl").write_text('{"event": "open", "address": "mlflow.db"}\n{"event": "tra')
    outbox.send_leftovers(folder, lambda: recorder.Recorder(tmp_path))
    assert spooled(tmp_path) == []
    assert tracking.address() == "mlflow.db"
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_an_outbox_file_of_version_0_1_0_is_sent(tmp_path: Path) -> None:
    """Version 0.1.0 wrote the key "act" where "event" is written today."""
    folder = tmp_path / "work/outbox"
    folder.mkdir(parents=True)
    opening = {"act": "open", "address": "mlflow.db", "journal": False}
    events = [opening, {"act": "configuration", **configuration("old", "old")}]
    (folder / "1-1.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    outbox.send_leftovers(folder, lambda: recorder.Recorder(tmp_path))
    assert spooled(tmp_path) == []
    assert [run.data.metrics["bleu"] for run in opened(tmp_path).runs("old")] == [SCORES["bleu"]]
