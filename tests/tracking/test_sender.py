"""If MLflow's server is down, slow or silent, no stage fails or waits for long, and a later stage sends the run."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest
from support.runs import PARAMS, SCORES, configuration, curve, opened, record, start, steps, training
from support.servers import Relay

from pipeline.tracking import recorder
from pipeline.tracking import store as tracking
from pipeline.tracking.record import Record, note_stage, record_of, records
from pipeline.tracking.run import TrackedRun
from pipeline.tracking.sender import send_waiting
from pipeline.tracking.sync import Sync

pytestmark = pytest.mark.usefixtures("fresh_process")


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch, fresh_process: None) -> None:
    """Wait 0.2 s where a stage waits 10 or 30 s."""
    monkeypatch.setattr(recorder, "TRAINING_TIMEOUT", 0.2)
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 0.2)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


STAGES = """
import sys
from pathlib import Path
from support.runs import configuration, curve, record, recorder, training
recorder.TRAINING_TIMEOUT = recorder.STAGE_TIMEOUT = float(sys.argv[3])
root, key = Path(sys.argv[1]), sys.argv[2]
with training(root, key) as live:
    live.log_curve(curve(60))
print(record(root, configuration(key, "config")))
"""


def stages(root: Path, key: str = "key", timeout: float = 0.2) -> tuple[str, str]:
    """Do what train and score do in a process that then ends; returns its standard output and standard error."""
    child = start(STAGES, str(root), key, str(timeout))
    printed, errors = child.communicate()
    assert child.returncode == 0, errors
    return printed.strip(), errors


def unsent(root: Path) -> list[str]:
    """The train_keys of the records that the store of this process lacks."""
    store = opened(root).identity
    return [record.read()["train_key"] for record in records(root) if record.is_unsent(store)]


def unused_address() -> str:
    """An address at which no server listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{closed.getsockname()[1]}"


def test_runs_for_a_server_that_is_down_are_sent_by_a_later_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, team_server: str
) -> None:
    relay = Relay(team_server)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", relay.address)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    printed, errors = stages(tmp_path, "missed")
    assert printed == "False"
    lines = errors.splitlines()
    assert len(lines) == 2  # a training and a score
    assert all(line.startswith("Tracking is delayed (") and "work/runs" in line for line in lines)
    relay.open()
    assert unsent(tmp_path) == ["missed"]
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    assert record(tmp_path, configuration("other", "other"))  # a later stage
    assert unsent(tmp_path) == []
    store = opened(tmp_path)
    (run,) = store.runs("missed")
    assert sorted(steps(store, run.id, "train_loss")) == [10, 20, 30, 40, 50, 60]
    assert run.data.metrics["bleu"] == SCORES["bleu"]
    assert run.info.status == "FINISHED"
    relay.close()


def test_a_server_that_never_answers_does_not_stop_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    relay = Relay(unused_address())  # stays closed: accepts connections and never answers
    monkeypatch.setenv("MLFLOW_TRACKING_URI", relay.address)
    with training(tmp_path, "key") as live:
        for last in range(10, 1010, 10):
            live.log_curve(curve(last)[-1:])
    assert capsys.readouterr().err.count("Tracking is delayed (") == 1
    (record,) = records(tmp_path)
    assert [row["step"] for row in record.rows()] == list(range(10, 1010, 10))
    assert "trained" in record.read()
    relay.close()


def test_a_slow_server_gets_all_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, team_server: str
) -> None:
    relay = Relay(team_server)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", relay.address)
    monkeypatch.setattr(recorder, "TRAINING_TIMEOUT", 60)
    with training(tmp_path, "slow") as live:
        for last in range(10, 510, 10):
            live.log_curve(curve(last)[-1:])
        relay.open()
    assert unsent(tmp_path) == []
    store = opened(tmp_path)
    (run,) = store.runs("slow")
    assert sorted(steps(store, run.id, "train_loss")) == list(range(10, 510, 10))
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= set(run.data.metrics)
    relay.close()


KILLED = """
import os, sys, time
from pathlib import Path
from support.runs import curve, opened, training
from pipeline.tracking import sender
sender.MESSAGE_INTERVAL = 0
with training(Path(sys.argv[1]), "killed") as live:
    live.log_curve(curve(40))
    while live.record.is_unsent(opened(live.root).identity):
        time.sleep(0.01)
    live.log_curve(curve(50))
    os.kill(os.getpid(), 9)
"""


def test_the_next_stage_marks_a_killed_training_as_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = start(KILLED, str(tmp_path))
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    assert record(tmp_path, configuration("other", "other"))
    store = opened(tmp_path)
    (run,) = store.runs("killed")
    assert run.info.status == "KILLED"
    assert sorted(steps(store, run.id, "train_loss")) == [10, 20, 30, 40, 50]  # 50 was not sent yet


@pytest.mark.parametrize("variable", [None, "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"])
def test_credentials_are_neither_printed_nor_written_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    place = unused_address()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{place}" if variable else f"http://me:geheim@{place}")
    if variable:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
        monkeypatch.setenv(variable, "geheim")
    printed, errors = stages(tmp_path, timeout=5)
    assert "Tracking is delayed (" in errors
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "key" in written
    assert "geheim" not in printed + errors + written


def test_a_secret_inside_an_error_message_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "geheim")
    error = OSError("401 for Bearer geheim at https://me:hunter2@runs.example.org/api")
    assert tracking.reason(error) == "401 for Bearer *** at https://***@runs.example.org/api"


def test_the_password_of_an_unreachable_database_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"postgresql+psycopg://me:geheim@{unused_address()}/runs")
    printed, errors = stages(tmp_path, timeout=5)
    assert "Tracking is delayed (" in errors
    assert "geheim" not in printed + errors


@pytest.mark.parametrize("broken", ["not a database", pytest.param(None, marks=pytest.mark.full)])
def test_a_broken_database_fails_no_stage_and_its_runs_are_sent_once_it_is_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str | None
) -> None:
    database = tmp_path / "mlflow.db"
    if broken is None:
        database.mkdir()
    else:
        database.write_text(broken * 50)
    printed, errors = stages(tmp_path, timeout=5)
    assert printed == "False"
    assert len(errors.splitlines()) == 2
    database.rename(tmp_path / "away")
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    assert record(tmp_path, configuration("other", "other"))
    assert [run.data.metrics["bleu"] for run in opened(tmp_path).runs("key")] == [SCORES["bleu"]]


def test_a_record_that_cannot_be_written_costs_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "work").write_text("a file where a folder should be")
    with training(tmp_path, "key") as live:
        live.log_curve(curve(60))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Tracking is off for this stage (")


def test_runs_for_another_store_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{unused_address()}")
    stages(tmp_path, "theirs")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    assert record(tmp_path, configuration("ours", "ours"))
    assert unsent(tmp_path) == ["theirs"]
    assert opened(tmp_path).runs("theirs") == []


def test_an_incomplete_last_line_of_a_killed_process_is_skipped_and_the_next_row_is_not_lost(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add_rows(curve(20))
    with open(tmp_path / "curve.jsonl", "a") as file:
        file.write('{"step": 30, "train_')
    later = Record(tmp_path)
    later.add_rows(curve(40))
    assert [row["step"] for row in Record(tmp_path).rows()] == [10, 20, 30, 40]
    assert later.rows() == Record(tmp_path).rows()


def test_a_record_keeps_each_point_once_and_adds_what_a_later_row_knows_more(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add_rows(curve(30))
    record.add_rows([{**row, "seconds": 2.0} for row in curve(40)])
    points = [(row["step"], name) for row in Record(tmp_path).rows() for name in row if name not in ("step", "time")]
    assert len(points) == len(set(points)) == 4 * 3 + 1


@pytest.mark.parametrize("damage", ["", "{", '{"status": ', "[1]", '{"train_key": "key"}'])
def test_a_damaged_record_fails_no_stage_and_is_written_anew(tmp_path: Path, damage: str, monkeypatch) -> None:
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    monkeypatch.setattr(recorder, "TRAINING_TIMEOUT", 60)
    with training(tmp_path, "key") as live:
        live.log_curve(curve(60))
    (live.record.folder / "run.json").write_text(damage)
    note_stage(tmp_path, "translate")
    assert record(tmp_path, configuration("other", "other"))
    assert record(tmp_path, configuration("key", "config"))
    (run,) = opened(tmp_path).runs("key")
    assert (run.tags["config_key"], run.info.status) == ("config", "FINISHED")


def test_a_row_that_is_added_while_others_are_sent_is_sent_the_next_time(tmp_path: Path, monkeypatch) -> None:
    record = record_of(tmp_path, "key", PARAMS)
    recorder.write_configuration(tmp_path, recorder.Configuration(**configuration("key", "config", last=30)))
    sync, store, log = Sync(record), opened(tmp_path), TrackedRun.log

    def slow_log(*arguments) -> None:
        log(*arguments)
        record.add_rows(curve(60))  # as another thread does
        record.rows()

    monkeypatch.setattr(TrackedRun, "log", slow_log)
    sync.send(store, running=True)
    assert record.is_unsent(store.identity)
    sync.send(store, running=True)
    (run,) = store.runs("key")
    assert sorted(steps(store, run.id, "train_loss")) == [10, 20, 30, 40, 50, 60]


def test_a_damaged_row_or_a_dangling_link_does_not_stop_the_records_behind_it(tmp_path: Path) -> None:
    for number, key in enumerate(("damaged", "behind")):
        fields = configuration(key, key) | {"texts": {"valid.hyp": "a"}}
        record = recorder.write_configuration(tmp_path, recorder.Configuration(**fields))
        if number == 0:
            (record.folder / "files/dangling").symlink_to("nowhere")
            with (record.folder / "curve.jsonl").open("a") as file:
                file.write('12\n{"x": 1}\n[]\n')
    store = opened(tmp_path)
    assert send_waiting(tmp_path, store)
    assert sorted(run.tags["config_key"] for run in store.search("tags.config_key IS NOT NULL")) == [
        "behind",
        "damaged",
    ]


TWICE = """
import sys
from pathlib import Path
from support.runs import opened
from pipeline.tracking.sender import send_waiting
store = opened(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
send_waiting(Path(sys.argv[1]), store)
"""


def test_two_processes_that_send_the_same_records_at_once_send_each_point_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, team_server: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", team_server)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "at once")
    for number in range(6):
        for beam in (4, 8):
            fields = configuration(f"twice {number}", f"{number} {beam}", beam_size=beam)
            recorder.write_configuration(tmp_path, recorder.Configuration(**fields))
    opened(tmp_path)
    senders = [start(TWICE, str(tmp_path)) for _ in range(2)]
    for sender in senders:
        assert sender.stdout is not None
        assert sender.stdin is not None
        assert sender.stdout.readline() == "ready\n"
        sender.stdin.write("go\n")
        sender.stdin.flush()
    for sender in senders:
        assert sender.communicate()[1] == ""
    store = opened(tmp_path)
    found = {run.tags["config_key"]: run for run in store.search("tags.config_key IS NOT NULL")}
    assert sorted(found) == [f"{number} {beam}" for number in range(6) for beam in (4, 8)]
    for key, run in found.items():
        assert run.data.params["beam_size"] == key[-1]
        assert sorted(steps(store, run.id, "train_loss")) == [10, 20, 30, 40, 50, 60]


def test_a_waiting_record_that_cannot_be_sent_does_not_hold_back_that_of_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = recorder.write_configuration(tmp_path, recorder.Configuration(**configuration("waits", "waits")))
    monkeypatch.setattr(recorder, "STAGE_TIMEOUT", 60)
    send = Sync.send

    def refused(self, *rest, **more) -> bool:
        if self.record.folder == waiting.folder:
            raise OSError("its files cannot be stored")
        return send(self, *rest, **more)

    monkeypatch.setattr(Sync, "send", refused)
    assert record(tmp_path, configuration("key", "config"))
    monkeypatch.setattr(Sync, "send", send)
    assert unsent(tmp_path) == ["waits"]
