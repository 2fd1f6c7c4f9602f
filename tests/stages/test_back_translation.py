"""The stage back_translate: what it adds, and that kills and several processes do not change it."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from support.stages import start, trained, training_place, wait_for_state
from support.tiny import stage

from transformer.files import read_lines, sha256
from transformer.text.pairs import Pairs

pytestmark = pytest.mark.full


def back_place(project: Path, folder: Path, steps: int = 160, **changes) -> Path:
    """A folder in which the stage back_translate can run."""
    training_place(project, folder, back_translation_steps=steps, d_model=32, warmup=40, **changes)
    shutil.copytree(project / "data/raw", folder / "data/raw")
    shutil.copy(project / "data/bpe.codes", folder / "data/bpe.codes")
    return folder


def test_back_translation_adds_pairs_that_training_uses(project, tmp_path):
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
    curve = list(read_lines(place / "data/back/training.csv"))
    assert curve[0] == "step,train_loss,valid_loss,learning_rate"
    assert curve[-1].startswith("160,")
    assert stage("train", place).returncode == 0
    with_both = trained(place)
    shutil.rmtree(place / "data/back")
    (place / "data/back").mkdir()
    assert stage("train", place).returncode == 0
    assert trained(place) != with_both


def test_a_killed_back_translation_ends_in_the_same_bytes(project, tmp_path):
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
    places = [back_place(project, tmp_path / name, steps=40, precision="float64") for name in ("alone", "pair")]
    for place, environment in zip(places, ({}, {"DEVICES": "2"}), strict=True):
        done = stage("back_translate", place, env=environment)
        assert done.returncode == 0, done.stderr
    for name in ("train.src", "back.json"):
        alone, pair = (sha256(place / "data/back" / name) for place in places)
        assert alone == pair
    alone, pair = ([path.name for path in place.glob("work/train-*")] for place in places)
    assert alone == pair  # the lock and the states of any number of processes are the same
    assert len(alone) == 1
