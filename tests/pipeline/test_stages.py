"""Stages run one by one on a small corpus: kills, several processes, warm starts, averages, mistakes of the user."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from support.projects import SPLITS, own_corpus, params_file, runs
from support.tiny import ROOT, stage

from transformer.files import read_lines, sha256
from transformer.model.linear import multiplies_bfloat16
from transformer.text.pairs import Pairs


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A folder in which the stages from download to average were run."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    own_corpus(folder / "own")
    params_file(folder)
    for name in ("download", "tokenise", "learn_bpe", "build_vocab", "encode", "back_translate", "train", "average"):
        done = stage(name, folder)
        assert done.returncode == 0, done.stderr
    return folder


def training_place(project: Path, folder: Path, **changes) -> Path:
    """A folder with the ids and the vocabulary of `project`, in which the stage train can run."""
    (folder / "data").mkdir(parents=True)
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    shutil.copytree(project / "data/ids", folder / "data/ids")
    (folder / "data/back").mkdir()  # no back-translation
    shutil.copy(project / "data/vocab.txt", folder / "data/vocab.txt")
    params_file(folder, **changes)
    return folder


@pytest.fixture
def place(project, tmp_path) -> Path:
    """A folder in which the stage train can run."""
    return training_place(project, tmp_path / "place")


@pytest.fixture(scope="module")
def unkilled(project, tmp_path_factory) -> str:
    """The hash of the outs of a training of 160 updates that was not killed."""
    folder = training_place(project, tmp_path_factory.mktemp("unkilled") / "place", max_steps=160)
    assert stage("train", folder).returncode == 0
    return trained(folder)


def trained(folder: Path) -> str:
    """One hash of the outs of the stage train."""
    return sha256(folder / "data/checkpoints") + sha256(folder / "reports/training.csv")


def start(name: str, folder: Path, *options: str) -> subprocess.Popen:
    """Start a stage in a folder, without waiting for its end."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DVC_ROOT": ""}
    return subprocess.Popen([sys.executable, "-m", f"pipeline.{name}", *options], cwd=folder, env=env,
                            stderr=subprocess.PIPE, text=True)  # fmt: skip


def wait_for_state(folder: Path, process: subprocess.Popen) -> None:
    """Wait until the first state is on the disk."""
    while not list(folder.glob("work/train-*/state-*.json")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_killed_training_writes_no_out_and_ends_in_the_same_bytes_as_an_unkilled_one(place, unkilled, number, status):
    params_file(place, max_steps=160)
    process = start("train", place)
    wait_for_state(place, process)
    process.send_signal(number)
    assert process.wait() == status
    assert not (place / "data/checkpoints").exists()
    assert not (place / "reports").exists()
    assert stage("train", place).returncode == 0
    assert trained(place) == unkilled
    assert len(runs(place)) == 1  # one MLflow run, continued


def back_place(project: Path, folder: Path, steps: int = 160, **changes) -> Path:
    """A folder in which the stage back_translate can run."""
    training_place(project, folder, back_translation_steps=steps, d_model=32, warmup=40, **changes)
    shutil.copytree(project / "data/raw", folder / "data/raw")
    shutil.copy(project / "data/bpe.codes", folder / "data/bpe.codes")
    return folder


def test_back_translation_adds_pairs_with_translated_sources_and_training_uses_them(project, tmp_path):
    place = back_place(project, tmp_path / "place")
    assert stage("back_translate", place).returncode == 0
    real, both = (Pairs.load(place / "data" / name, "train") for name in ("ids", "back"))
    sources, targets = list(real.source), list(real.target)
    count = json.loads((place / "data/back/back.json").read_text())["translated_pairs"]
    assert len(both) == len(real) + count
    assert count > 0.9 * len(real)
    row_of = {int(line): row for row, line in enumerate(real.lines)}
    for row, (source, target, line) in enumerate(zip(both.source, both.target, both.lines, strict=True)):
        own = row_of[int(line)]
        assert target.tolist() == targets[own].tolist()
        assert row >= len(real) or source.tolist() == sources[own].tolist()
    german = set(" ".join(read_lines(place / "data/raw/train.src")).replace(".", " ").split())
    translated = " ".join(read_lines(place / "data/back/train.src")).replace(".", " ").split()
    assert sum(word in german for word in translated) > 0.9 * len(translated)
    assert stage("train", place).returncode == 0
    with_both = trained(place)
    shutil.rmtree(place / "data/back")
    (place / "data/back").mkdir()
    assert stage("train", place).returncode == 0
    assert trained(place) != with_both


def test_a_killed_back_translation_writes_no_out_and_ends_in_the_same_bytes_as_an_unkilled_one(project, tmp_path):
    unkilled, killed = (back_place(project, tmp_path / name) for name in ("unkilled", "killed"))
    assert stage("back_translate", unkilled).returncode == 0
    process = start("back_translate", killed)
    wait_for_state(killed, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "data/back/train.src").exists()
    assert stage("back_translate", killed).returncode == 0
    assert sha256(killed / "data/back") == sha256(unkilled / "data/back")


def test_two_processes_give_the_same_back_translations(project, tmp_path):
    one, two = (back_place(project, tmp_path / name, steps=40, precision="float64") for name in ("one", "two"))
    assert stage("back_translate", one).returncode == 0
    done = stage("back_translate", two, "--nproc-per-node=2")
    assert done.returncode == 0, done.stderr
    assert sha256(two / "data/back") == sha256(one / "data/back")


def test_only_the_source_side_can_be_lower_cased(tmp_path):
    (tmp_path / "data/raw").mkdir(parents=True)
    for split in SPLITS:
        for side in ("src", "tgt"):
            (tmp_path / f"data/raw/{split}.{side}").write_text("Ein Hund.\n", encoding="utf-8")
    params_file(tmp_path, lowercase_source=True)
    assert stage("tokenise", tmp_path).returncode == 0
    assert list(read_lines(tmp_path / "data/tokens/test.src")) == ["▁ein ▁hund ."]
    assert list(read_lines(tmp_path / "data/tokens/test.tgt")) == ["▁Ein ▁Hund ."]


def test_sigterm_stops_all_processes_and_their_state_is_saved(place):
    params_file(place, max_steps=4000)
    process = start("train", place, "--nproc-per-node=2")
    wait_for_state(place, process)
    process.send_signal(signal.SIGTERM)
    errors = process.communicate()[1]
    assert process.returncode == 143
    assert ". Its state is saved. Run the same command again to resume." in errors
    assert not (place / "data/checkpoints").exists()


def test_when_one_process_dies_the_others_stop_and_the_training_can_be_resumed(place):
    params_file(place, max_steps=8000, save_every=2)
    process = start("train", place, "--nproc-per-node=3")
    wait_for_state(place, process)
    (victim,) = (pid for pid in processes() if environment(pid).get("LOCAL_RANK") == "1" and folder_of(pid) == place)
    os.kill(victim, signal.SIGKILL)
    errors = process.communicate(timeout=30)[1]
    assert process.returncode == 1
    assert "error: Process 1 of 3 ended first, with SIGKILL. The other processes were stopped." in errors
    assert "Traceback" not in errors
    (state,) = sorted(place.glob("work/train-*/state-*.json"))[-1:]
    params_file(place, max_steps=int(state.stem.removeprefix("state-")) + 2, save_every=2)
    done = stage("train", place)
    assert done.returncode == 0, done.stderr
    assert "Resuming after update" in done.stdout


def processes() -> list[int]:
    """The ids of all processes whose environment this one may read."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if os.access(path / "environ", os.R_OK)]


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(part.split("=", 1) for part in text.split("\0") if "=" in part)


def folder_of(pid: int) -> Path | None:
    """The folder that a process runs in; None if it has ended."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve()
    except OSError:
        return None


def test_two_equal_trainings_started_together_give_the_outs_of_one(place, unkilled):
    params_file(place, max_steps=160)
    first, second = start("train", place), start("train", place)
    for process in (first, second):
        assert process.wait() == 0, process.stderr and process.stderr.read()
    assert trained(place) == unkilled
    assert len(runs(place)) == 1


def first_loss(folder: Path) -> float:
    """The training loss in the first row of training.csv."""
    with open(folder / "reports/training.csv") as file:
        return float(next(csv.DictReader(file))["train_loss"])


def test_a_training_can_start_from_a_model_folder_with_its_vocabulary_and_merges(project, place):
    model = project / "data/model"
    assert stage("train", place).returncode == 0
    cold = first_loss(place)
    params_file(place, init_from=str(model), bpe_merges=3)
    shutil.copytree(project / "data/tokens", place / "data/tokens")
    for name in ("learn_bpe", "build_vocab"):
        assert f"taken over from {model}" in stage(name, place).stdout
    assert (place / "data/bpe.codes").read_bytes() == (model / "bpe.codes").read_bytes()
    assert (place / "data/vocab.txt").read_bytes() == (model / "vocab.txt").read_bytes()
    assert stage("train", place).returncode == 0
    assert first_loss(place) < cold
    assert len(list(place.glob("work/train-*"))) == 2  # another initial model makes another training


@pytest.mark.parametrize(
    ("changes", "vocabulary", "wanted"),
    [
        ({"init_from": "nowhere"}, None, "init_from=nowhere is not a model folder: it has no model.json"),
        ({"d_ff": 64}, None, "has d_ff=32, this training has d_ff=64. Training did not start. Make them equal"),
        ({}, "<pad>", "has another vocabulary than data/vocab.txt"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(project, place, changes, vocabulary, wanted):
    params_file(place, **{"init_from": str(project / "data/model"), **changes})
    if vocabulary:
        text = (place / "data/vocab.txt").read_text(encoding="utf-8").split("\n")
        text[-2] = "another"
        (place / "data/vocab.txt").write_text("\n".join(text), encoding="utf-8")
    done = stage("train", place)
    assert done.returncode == 1
    assert done.stderr.startswith("error: init_from=")
    assert wanted in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (place / "work").exists()


def test_the_model_is_the_mean_of_the_last_or_best_checkpoints_or_the_moving_average(project, place):
    params_file(place, ema_decay=0.9, best_by="bleu")
    assert stage("train", place).returncode == 0
    for name in ("bpe.codes", "vocab.txt"):
        shutil.copy(project / f"data/{name}", place / "data" / name)
    record = json.loads((place / "data/checkpoints/checkpoints.json").read_text())
    assert sorted(record["worth"]) == ["12", "4", "8"]
    best = sorted(sorted(map(int, record["worth"])), key=lambda step: record["worth"][str(step)])[:2]
    weights = {}
    updates = ", ".join(map(str, sorted(best)))
    messages = {"last": "The model is the mean of the last checkpoints: updates 8, 12.",
                "best": f"The model is the mean of the best checkpoints: updates {updates}.",
                "ema": "The model is the moving average of the weights."}  # fmt: skip
    for average, message in messages.items():
        params_file(place, ema_decay=0.9, best_by="bleu", average=average)
        assert message in stage("average", place).stdout
        weights[average] = sha256(place / "data/model/weights.safetensors")
    assert weights["ema"] == sha256(place / "data/checkpoints/average.safetensors")
    assert weights["last"] != weights["ema"]
    params_file(place, average="ema")
    assert "average=ema needs the moving average that ema_decay=0 switches off" in stage("average", place).stderr


def test_the_log_shows_step_loss_rate_speed_and_time_left_and_a_change_of_precision(place):
    params_file(place, precision="bfloat16")
    done = stage("train", place)
    uses_float32 = not multiplies_bfloat16(torch.device("cpu"))
    message = "This machine has no instructions for bfloat16. Training computes in float32, which is faster here."
    assert (message in done.stderr) == uses_float32
    pattern = r"update 8 of 12 · loss \d\.\d+ · rate \d\.\d+e-\d+ · [\d,]+ tokens/s · valid \d\.\d+ · 0:00:\d\d left"
    assert re.search(pattern, done.stdout), done.stdout


def test_a_warmup_longer_than_the_training_is_explained_in_one_line(place):
    params_file(place, warmup=1200)
    output = stage("train", place)
    assert "warmup=1200 is longer than max_steps=12" in output.stderr
    assert "at 1% of its peak" in output.stderr


def test_two_processes_train_the_same_model(place):
    params_file(place, precision="float64")
    assert stage("train", place).returncode == 0
    (place / "reports/training.csv").rename(place / "one.csv")
    shutil.rmtree(place / "work")
    done = stage("train", place, "--nproc-per-node=2")
    assert done.returncode == 0, done.stderr
    for one, two in zip(read_lines(place / "one.csv"), read_lines(place / "reports/training.csv"), strict=True):
        for a, b in zip(one.split(","), two.split(","), strict=True):
            assert a == b or float(a) == pytest.approx(float(b), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "changes", "wanted"),
    [
        ("train", {"d_model": 100, "heads": 8}, "d_model=100 does not divide into heads=8"),
        ("train", {"warmup": 0}, "warmup=0 must be a whole number >= 1"),
        ("download", {"corpus_path": "nowhere"}, "train.de is missing"),
        ("download", {"source": "fr", "corpus": "toy"}, "corpus=toy has German and English, not fr-en"),
        ("tokenise", {}, "data/raw is missing; `dvc repro` makes it"),
        ("average", {}, "data/checkpoints is missing"),
        ("translate", {}, "data/model is missing"),
    ],
)
def test_a_mistake_ends_in_one_line_and_leaves_nothing(tmp_path, name, changes, wanted):
    params_file(tmp_path, **changes)
    for path in ("data/ids", "data/vocab.txt") if name == "train" else ():
        (tmp_path / path).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    done = stage(name, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert wanted in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_training_set_that_max_length_empties_is_refused(project, tmp_path):
    params_file(tmp_path, max_length=1)
    names = {name: str(project / f"data/{path}") for name, path in
             {"tokens": "tokens", "codes": "bpe.codes", "vocab": "vocab.txt"}.items()}  # fmt: skip
    done = stage("encode", tmp_path, *(part for name, path in names.items() for part in (f"--{name}", path)))
    assert done.returncode == 1
    assert "no train pair is left: all have an empty side or more than max_length=1 subwords" in done.stderr
    assert not (tmp_path / "data/ids").exists()
