"""A stage on two machines computes what one computes, survives the loss of a machine, and refuses one that differs."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
from support.hosts import PATIENCE, losses, two_hosts, wait_for, why_no_hosts
from support.projects import command, own_corpus, params_file
from support.stages import wait_until
from support.tiny import ROOT, stage

STAGES = ("download", "filter", "tokenise", "learn_bpe", "build_vocab", "encode", "back_translate")

# A long warmup: at a high learning rate, training multiplies the rounding of sums by ten every few updates.
KNOBS = {"precision": "float64", "warmup": 400}

CONNECT = "from pathlib import Path; from pipeline.tracking.store import connect; connect(Path())"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder in which the stage train can run."""
    if reason := why_no_hosts():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("prepared") / "project"
    folder.mkdir()
    own_corpus(folder / "own")
    params_file(folder, **KNOBS)
    for name in STAGES:
        done = stage(name, folder)
        assert done.returncode == 0, done.stderr
    # Makes MLflow's database, which takes ten seconds, once.
    command(folder, sys.executable, "-c", CONNECT, PYTHONPATH=str(ROOT))
    return folder


@pytest.fixture
def hosts(prepared, tmp_path):
    """A leader's machine and another one, each with its own copy of the data."""
    folders = tmp_path / "leader", tmp_path / "other"
    for folder in folders:
        shutil.copytree(prepared, folder)
    with two_hosts(folders) as pair:
        yield pair


def lead(host, module: str = "pipeline.train", nodes: str = "2", paths=(ROOT,), sharding: str = "none"):
    """Start a stage on the leader's machine."""
    return host.start(module, paths=paths, NODES=nodes, RENDEZVOUS=host.address, SHARDING=sharding)


def follow(host, leader, paths=(ROOT,)):
    """Start a worker on another machine."""
    return host.start("pipeline", "worker", "--join", leader.address, paths=paths)


def alone(folder: Path, **changes) -> list[float]:
    """The losses of the training on one machine."""
    params_file(folder, **KNOBS, **changes)
    done = stage("train", folder, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return losses(folder)


def facts(folder: Path) -> dict:
    """The contents of reports/environment.json: with what a training was computed."""
    return json.loads((folder / "reports/environment.json").read_text())


def succeeded(process, *machines) -> bool:
    """Whether a process ends with status 0; its machines' output is shown where it does not."""
    status = process.wait(PATIENCE)
    assert status == 0, "\n".join(machine.printed() for machine in machines)
    return True


@pytest.mark.parametrize(
    ("updates", "sharding"),
    [
        (12, "none"),
        pytest.param(100, "none", marks=pytest.mark.full),
        pytest.param(100, "full", marks=pytest.mark.full),
    ],
)
def test_two_machines_give_the_losses_of_one_and_the_leaders_alone_writes(hosts, prepared, tmp_path, updates, sharding):
    one, two = hosts
    params_file(one.folder, **KNOBS, max_steps=updates)
    process, worker = lead(one, sharding=sharding), follow(two, one)
    assert succeeded(process, one, two)
    assert "Machines that take part: 2." in one.printed()
    expected = alone(shutil.copytree(prepared, tmp_path / "alone"), max_steps=updates)
    assert losses(one.folder) == pytest.approx(expected, rel=1e-6)
    assert len(expected) == updates
    assert facts(one.folder).get("sharding", "none") == sharding
    assert [path for path in two.folder.glob("**/*") if path.is_file() and path.stat().st_mtime > one_start(one)] == []
    worker.send_signal(signal.SIGINT)  # it waits for the next stage
    assert worker.wait(PATIENCE) == 130
    assert "Traceback" not in two.printed()


def one_start(host) -> float:
    """The time at which the first command of a machine was started."""
    return min(path.stat().st_ctime for path in host.logs.iterdir())


@pytest.mark.full
def test_back_translations_are_made_on_two_machines_that_share_no_folder(hosts, prepared, tmp_path):
    one, two = hosts
    other = shutil.copytree(prepared, tmp_path / "alone")
    for folder in (one.folder, other):
        params_file(folder, **KNOBS, back_translation_steps=12)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/sitecustomize.py").write_text(
        "import pipeline.training.translate_text as t\nt.PART_LINES = 20\n"
    )
    paths = (tmp_path / "parts", ROOT)
    process = lead(one, "pipeline.back_translate", paths=paths)
    follow(two, one, paths)
    assert succeeded(process, one, two)
    assert "Machines that take part: 2." in one.printed()
    done = stage("back_translate", other, env={"PYTHONPATH": f"{paths[0]}:{paths[1]}"})
    assert done.returncode == 0, done.stderr
    for name in ("train.src", "back.json"):
        assert (one.folder / "data/back" / name).read_bytes() == (other / "data/back" / name).read_bytes()
    assert not list(two.folder.glob("work/**/translations-*"))


# Before update n, waits while there is a file stop-n, and writes reached-n-<number of processes>.
GATE = """
import os
import time
from pathlib import Path

from transformer.training.train_step import Trainer

update = Trainer.update


def gated(self, step, stop_requested=lambda: False):
    if self.world.is_leader:
        Path(f"reached-{step}-{self.world.size}").touch()
    while Path(f"stop-{step}").exists() and not stop_requested():
        time.sleep(0.02)
    return update(self, step, stop_requested)


Trainer.update = gated
"""


# On other machines than the leader's, update 6 fails.
FAILS = """
from transformer.training.train_step import Trainer

update = Trainer.update


def failing(self, step, stop_requested=lambda: False):
    if step == 6 and not self.world.is_leader:
        raise OSError("no space left on this machine")
    return update(self, step, stop_requested)


Trainer.update = failing
"""


@pytest.mark.full
def test_a_fixed_number_of_machines_does_not_wait_for_one_whose_own_processes_fail(hosts, tmp_path):
    one, two = hosts
    (tmp_path / "fails").mkdir()
    (tmp_path / "fails/sitecustomize.py").write_text(FAILS)
    paths = tmp_path / "fails", ROOT
    process, worker = lead(one, paths=paths), follow(two, one, paths)
    assert process.wait(PATIENCE) == 1, one.printed()
    assert "no space left on this machine" in two.printed()
    assert "have failed, and NODES=2 needs all machines. The newest saved state is kept." in one.printed()
    assert list(one.folder.glob("work/train-*/state-*4.json"))
    assert worker.poll() is None  # it waits for the next stage
    process = lead(one)
    worker.terminate()
    follow(two, one)
    assert succeeded(process, one, two)


@pytest.mark.full
def test_a_leader_that_waits_for_machines_ends_by_a_signal(hosts):
    one, _ = hosts
    for number, how in enumerate((signal.SIGTERM, signal.SIGINT), 1):
        process = lead(one)
        wait_until(lambda number=number: one.printed().count("Waiting until 2 machines") == number, PATIENCE)
        process.send_signal(how)
        assert process.wait(PATIENCE) == 128 + how
    assert "Traceback" not in one.printed()


@pytest.fixture
def paths(tmp_path) -> tuple[Path, Path]:
    """Folders of modules for processes that wait at updates; see GATE."""
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate/sitecustomize.py").write_text(GATE)
    return tmp_path / "gate", ROOT


@pytest.mark.full
@pytest.mark.parametrize(
    ("loss", "sharding"), [("power", "none"), ("power", "full"), ("cable", "none"), ("stop", "none")]
)
def test_a_machine_that_vanishes_and_comes_back_is_survived_from_the_exact_state(
    hosts, prepared, paths, tmp_path, loss, sharding
):
    one, two = hosts
    params_file(one.folder, **KNOBS, max_steps=100)
    for number in (30, 60):
        (one.folder / f"stop-{number}").touch()
    process, worker = lead(one, nodes="1:2", paths=paths, sharding=sharding), follow(two, one, paths)
    wait_for(one.folder / "reached-30-2", process, worker)
    {"power": two.kill, "cable": two.cut, "stop": worker.terminate}[loss]()
    (one.folder / "stop-30").unlink()
    wait_for(one.folder / "reached-60-1", process)  # on one machine, from the state after update 28; if stopped, 29
    assert (one.folder / "reached-29-1").exists() == (loss != "stop")
    assert not (one.folder / "reached-28-1").exists()
    if loss == "cable":
        two.cut(off=False)  # the worker finds its way back alone
    else:
        follow(two, one, paths)
    (one.folder / "reached-60-2").unlink(missing_ok=True)
    wait_for(one.folder / "reached-60-2", process)  # the state after update 59 was saved for it
    (one.folder / "stop-60").unlink()
    assert succeeded(process, one, two)
    expected = alone(shutil.copytree(prepared, tmp_path / "alone"), max_steps=100)
    assert losses(one.folder) == pytest.approx(expected, rel=1e-6)


@pytest.mark.full
def test_with_a_fixed_number_of_machines_the_leader_waits_for_the_one_that_was_lost(hosts, paths):
    one, two = hosts
    (one.folder / "stop-6").touch()
    process, worker = lead(one, paths=paths), follow(two, one, paths)
    wait_for(one.folder / "reached-6-2", process, worker)
    two.kill()
    (one.folder / "stop-6").unlink()
    wait_until(lambda: one.printed().count("Waiting until 2 machines are there.") == 2, PATIENCE)
    follow(two, one, paths)
    assert succeeded(process, one, two)
    assert not list(one.folder.glob("reached-*-1"))


@pytest.mark.full
def test_a_signal_or_a_kill_of_the_leader_sends_the_worker_back_to_waiting(hosts, paths):
    one, two = hosts
    for number in (3, 5):
        (one.folder / f"stop-{number}").touch()
    worker = follow(two, one, paths)
    for number, how in ((3, signal.SIGTERM), (5, signal.SIGKILL)):
        process = lead(one, paths=paths)
        wait_for(one.folder / f"reached-{number}-2", process, worker)
        process.send_signal(how)
        assert process.wait(PATIENCE) == {signal.SIGTERM: 143, signal.SIGKILL: -9}[how]
        (one.folder / f"stop-{number}").unlink()
    assert "Training stopped after update 2. Its state is saved." in one.printed()
    process = lead(one, paths=paths)
    assert succeeded(process, one, two)
    wait_until(lambda: two.printed().count("Waiting for a stage of") == 4, PATIENCE)
    assert worker.poll() is None
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 143
    assert "Traceback" not in two.printed()


@pytest.mark.full
def test_a_machine_with_other_data_code_or_versions_is_refused_on_both_sides(hosts, tmp_path):
    one, two = hosts
    process = lead(one)
    code = tmp_path / "other code"
    for name in ("pipeline", "transformer"):
        shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", "versions.yaml"):
        shutil.copy(ROOT / name, code / name)
    batches = code / "transformer/training/batches.py"
    batches.write_text(batches.read_text() + "\nMORE = 1\n")
    versions = tmp_path / "numpy-1.0.dist-info"
    versions.mkdir()
    (versions / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n")
    corpus = two.folder / "data/ids/corpus.json"
    text = corpus.read_text()
    for paths, other, message in (
        ((ROOT,), json.dumps(json.loads(text) | {"more": 1}), "differs from the leader's machine in: data ids."),
        ((code,), text, "differs from the leader's machine in: code transformer/training/batches.py."),
        ((tmp_path, ROOT), text, "numpy 1.0 is installed"),
    ):
        corpus.write_text(other)
        assert follow(two, one, paths).wait(PATIENCE) == 1
        for machine in hosts:
            wait_until(lambda machine=machine, message=message: message in machine.printed(), PATIENCE)
            assert "Traceback" not in machine.printed()
    assert process.poll() is None  # the leader still waits for a machine that fits
