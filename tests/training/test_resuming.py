"""A training that was stopped, killed or disturbed resumes, and ends in the same bytes as an undisturbed one."""

import errno
import itertools
import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.trainings import outcome, train_tiny

from transformer.files import Mistake, sha256
from transformer.model import weights
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.training import checkpoints, loop
from transformer.training.checkpoints import CheckpointStore, best_steps, copy_checkpoints
from transformer.training.config import TrainConfig
from transformer.training.loop import Interrupted, train
from transformer.training.train_step import Trainer

FULL = pytest.mark.full
WORSE = {"lr_factor": 1e-12}  # weights hardly change, so the first validation stays the best


@pytest.mark.parametrize(
    ("stop_after", "settings"), [pytest.param(1, {}, marks=FULL), (4, {"optimiser": "muon"}), (7, {})]
)
def test_a_stopped_training_resumes_to_the_same_bytes(tmp_path, stop_after, settings):
    straight, digest = train_tiny(tmp_path, tmp_path / "unstopped", **settings)
    rows, resumed_rows = [], []
    with pytest.raises(
        Interrupted, match=rf"stopped after update {stop_after}\. Its state is saved\. Run the same command again"
    ):
        train_tiny(tmp_path, tmp_path / "stopped", **stop_after_update(stop_after), **settings, on_rows=rows.extend)
    resumed, again = train_tiny(tmp_path, tmp_path / "stopped", **settings, on_rows=resumed_rows.extend)
    assert again == digest
    assert outcome(resumed) == outcome(straight)
    assert [row["step"] for row in resumed_rows] == [2, 4, 6, 8, 10, 12]  # each once
    assert resumed_rows[: len(rows)] == rows


def stop_after_update(step) -> dict:
    """Arguments of train_tiny that request a stop after an update."""
    steps: list[int] = []
    return {"on_update": lambda number, update: steps.append(number), "stop_requested": lambda: step in steps}


def count_of_questions(folder, **settings) -> int:
    """How often an unstopped training asks whether to stop."""
    count = itertools.count()
    train_tiny(folder, folder / "counted", stop_requested=lambda: next(count) < 0, **settings)
    return next(count)


@pytest.mark.full
@pytest.mark.parametrize("best_by", ["loss", "bleu"])
def test_a_training_stopped_anywhere_resumes_to_the_same_bytes(tmp_path, best_by):
    """A stop is obeyed at the next micro-batch or decoding step, and the state of the last complete update is saved."""
    settings = {"best_by": best_by, "max_steps": 8}
    straight, digest = train_tiny(tmp_path, tmp_path / "unstopped", **settings)
    total = count_of_questions(tmp_path, **settings)
    assert total > 2 * 8  # several micro-batches an update
    for number in range(0, total, max(1, total // 20)):
        work, answers = tmp_path / f"stopped{number}", iter([False] * number + [True])
        with pytest.raises(Interrupted, match=r"after update \d+\. Its state is saved|before its first update"):
            train_tiny(tmp_path, work, stop_requested=answers.__next__, **settings)
        resumed, again = train_tiny(tmp_path, work, **settings)
        assert again == digest
        assert outcome(resumed) == outcome(straight)


# Operations in which a training of 12 updates is killed, and how often each occurs. A kill in `write` leaves half a
# file.
OPERATIONS = {"update": 12, "validate": 3, "write": 6, "replace": 10, "fsync": 20, "unlink": 12}
OFTEN = {("write", 2)}


def killed_training(folder, work, operation, number):
    """Train until operation `number` (from 1) of that kind, and exit in it without any clean-up."""

    def killing(kind, function, before=lambda *arguments: None):
        count = itertools.count(1)

        def wrapped(*arguments, **options):
            if kind == operation and next(count) == number:
                before(*arguments)
                os._exit(9)
            return function(*arguments, **options)

        return wrapped

    def half_a_file(tensors, path):
        save_file(tensors, path)
        os.truncate(path, path.stat().st_size // 2)

    os.replace, os.fsync, Path.unlink = (
        killing(kind, function)
        for kind, function in (("replace", os.replace), ("fsync", os.fsync), ("unlink", Path.unlink))
    )
    weights.save_file = killing("write", save_file, half_a_file)
    loop.valid_loss = killing("validate", loop.valid_loss)
    update = Trainer.update
    Trainer.update = killing("update", update, before=update)  # killed after the update
    train_tiny(folder, work)


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory):
    """The sha256 of the weights of a training that was not killed."""
    folder = tmp_path_factory.mktemp("unkilled")
    return train_tiny(folder, folder / "w")[1]


@pytest.mark.parametrize(
    ("operation", "number"),
    [
        pytest.param(kind, number, marks=[] if (kind, number) in OFTEN else FULL)
        for kind, count in OPERATIONS.items()
        for number in range(1, count + 1)
    ],
)
def test_a_training_killed_anywhere_resumes_to_the_same_bytes(tmp_path, unkilled, operation, number):
    """The training is killed in an operation of this kind, and resumed."""
    process = multiprocessing.get_context("spawn").Process(
        target=killed_training, args=(tmp_path, tmp_path / "w", operation, number)
    )
    process.start()
    process.join()
    assert process.exitcode == 9, f"there are fewer than {number} operations {operation}"
    state, again = train_tiny(tmp_path, tmp_path / "w")
    assert again == unkilled
    assert [row["step"] for row in state.curve] == [2, 4, 6, 8, 10, 12]


def test_a_full_disk_loses_only_the_state_being_written(tmp_path, unkilled, monkeypatch):
    count = itertools.count(1)

    def full(tensors, path):
        if next(count) == 5:  # weights and optimiser of two states are on the disk
            path.write_bytes(b"half a fi")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        save_file(tensors, path)

    monkeypatch.setattr(weights, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        train_tiny(tmp_path, tmp_path / "w")
    assert not list((tmp_path / "w").glob("*.tmp"))
    state = next(CheckpointStore(tmp_path / "w").states(12))
    assert state.step == 8
    assert train_tiny(tmp_path, tmp_path / "w")[1] == unkilled


def test_after_a_longer_or_shorter_one_a_training_equals_a_fresh(tmp_path):
    fresh = {steps: train_tiny(tmp_path, tmp_path / f"fresh{steps}", max_steps=steps) for steps in (8, 16)}
    for order in ((8, 16), (16, 8)):
        for steps in order:
            state, digest = train_tiny(tmp_path, tmp_path / f"order{order[0]}", max_steps=steps)
            assert digest == fresh[steps][1]
            assert outcome(state) == outcome(fresh[steps][0])


@pytest.mark.full
def test_a_short_training_after_a_long_one_keeps_the_states_of_both(tmp_path):
    fresh, digest = train_tiny(tmp_path, tmp_path / "fresh", max_steps=8)
    long, long_digest = train_tiny(tmp_path, tmp_path / "w", max_steps=40)
    with pytest.raises(Interrupted, match="after update 5"):
        train_tiny(tmp_path, tmp_path / "w", max_steps=8, **stop_after_update(5))
    state = next(CheckpointStore(tmp_path / "w").states(8))
    assert state.step == 5
    short, again = train_tiny(tmp_path, tmp_path / "w", max_steps=8)
    assert again == digest
    assert outcome(short) == outcome(fresh)
    assert all((tmp_path / "w" / name).is_file() for name in short.files)
    assert train_tiny(tmp_path, tmp_path / "w", max_steps=40)[1] == long_digest
    assert long.end


def test_a_larger_max_steps_does_not_continue_an_early_end(tmp_path):
    state, digest = train_tiny(tmp_path, tmp_path / "w", max_steps=40, patience=2, keep=3, **WORSE)
    assert state.stopped_early
    assert state.step < 40
    longer, again = train_tiny(tmp_path, tmp_path / "w", max_steps=80, patience=2, keep=3, **WORSE)
    assert again == digest
    assert outcome(longer) == outcome(state)


def outs_of(folder, work, **settings):
    """Train the tiny model. Returns what the stage train writes to its outs, and the updates that were made."""
    steps: list[int] = []
    state, _ = train_tiny(folder, work, on_update=lambda step, update: steps.append(step), **settings)
    checkpoints = folder / "checkpoints"
    shutil.rmtree(checkpoints, ignore_errors=True)
    checkpoints.mkdir()
    copy_checkpoints(CheckpointStore(work), state, checkpoints, {})
    return (sha256(checkpoints), state.curve, state.summary()), steps


@pytest.mark.parametrize(
    ("before", "after", "first", "message"),
    [
        ({}, {"log_every": 4}, None, ""),
        pytest.param({}, {"save_every": 12}, None, "", marks=FULL),
        ({}, {"save_every": 6}, 1, "save_every=6 needs a validation after update 6, which was not made. "),
        pytest.param({"keep": 3}, {"keep": 1}, None, "", marks=FULL),
        (
            {**WORSE, "keep": 1},
            {**WORSE, "keep": 2},
            9,
            "keep=2 needs the checkpoint of update 8, which was not kept. ",
        ),
        pytest.param({**WORSE, "patience": 1}, {**WORSE, "patience": 0}, 9, "", marks=FULL),
        (
            {**WORSE, "patience": 0, "max_steps": 24},
            {**WORSE, "patience": 2, "max_steps": 24},
            1,
            "patience=2 ends this training after update 12, whose state was not kept. ",
        ),
        pytest.param({"best_by": "bleu"}, {"best_by": "loss"}, None, "", marks=FULL),
        pytest.param(
            {"best_by": "loss"},
            {"best_by": "bleu"},
            1,
            "best_by=bleu needs the BLEU of the checkpoint of update 4",
            marks=pytest.mark.full,
        ),
    ],
)
def test_with_other_bookkeeping_a_fresh_ones_state_is_resumed(tmp_path, capsys, before, after, first, message):
    fresh, _ = outs_of(tmp_path, tmp_path / "fresh", **after)
    train_tiny(tmp_path, tmp_path / "w", **before)
    capsys.readouterr()
    outs, steps = outs_of(tmp_path, tmp_path / "w", **after)
    errors = capsys.readouterr().err
    assert outs == fresh
    assert steps[:1] == ([first] if first else [])
    assert message in errors
    if message:
        assert ("Training starts anew." if first == 1 else f"Training resumes after update {first - 1}.") in errors
    else:
        assert not errors


@pytest.mark.full
def test_back_to_the_first_patience_finds_the_state_in_which_it_ended(tmp_path):
    first, _ = outs_of(tmp_path, tmp_path / "w", max_steps=20, patience=1, **WORSE)
    train_tiny(tmp_path, tmp_path / "w", max_steps=20, patience=0, **WORSE)
    assert outs_of(tmp_path, tmp_path / "w", max_steps=20, patience=1, **WORSE) == (first, [])


@pytest.mark.full
def test_patience_that_ended_between_saves_ends_no_training(tmp_path):
    with pytest.raises(Interrupted, match="after update 10"):
        train_tiny(tmp_path, tmp_path / "w", max_steps=20, **stop_after_update(10), **WORSE)
    fresh, _ = outs_of(tmp_path, tmp_path / "fresh", max_steps=20, patience=1, **WORSE)
    assert outs_of(tmp_path, tmp_path / "w", max_steps=20, patience=1, **WORSE)[0] == fresh


@pytest.mark.parametrize("victim", ["weights", *(pytest.param(kind, marks=FULL) for kind in ("optimiser", "state"))])
def test_the_state_before_a_damaged_one_is_resumed(tmp_path, capsys, victim):
    _, digest = train_tiny(tmp_path, tmp_path / "w")
    store = CheckpointStore(tmp_path / "w")
    path = next((tmp_path / "w").glob(f"{victim}-00000012.*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    damaged: list[Path] = []
    state = next(store.states(12, damaged))
    assert (state.step, [each.name for each in damaged]) == (8, ["state-00000012.json"])
    assert train_tiny(tmp_path, tmp_path / "w")[1] == digest
    message = (
        "state-00000012.json: damaged, or a file that it lists is. It was set aside as .damaged. Training resumes "
    )
    assert message in capsys.readouterr().err


def test_a_file_system_that_fails_once_costs_no_state(tmp_path, monkeypatch):
    _, digest = train_tiny(tmp_path, tmp_path / "w")
    names = sorted(path.name for path in (tmp_path / "w").iterdir())
    for function, module in (("sha256", checkpoints), ("read_text", Path)):

        def fail(*words: object, **named: object) -> None:
            raise OSError(errno.ESTALE, "Stale file handle", "state")

        with monkeypatch.context() as patch:
            patch.setattr(module, function, fail)
            with pytest.raises(OSError, match="Stale file handle"):
                train_tiny(tmp_path, tmp_path / "w")
    assert sorted(path.name for path in (tmp_path / "w").iterdir()) == names
    assert train_tiny(tmp_path, tmp_path / "w")[1] == digest


def test_a_folder_keeps_one_training(tmp_path):
    """Another one, as after an edit in a notebook, is refused; a longer one goes on, also with the trained model."""
    pairs, others = (Pairs.pack([([4, 5], [5, last])] * 8) for last in (4, 6))

    def model(seed: int = 1) -> Transformer:
        torch.manual_seed(seed)
        return Transformer(TransformerConfig(7, d_model=8, d_ff=8, heads=2, layers=1))

    def curve(model: Transformer, train_pairs=pairs, valid=pairs, steps=4, **changed) -> list:
        config = TrainConfig(max_steps=steps, save_every=2, log_every=2, warmup=2, **changed)
        return train(Trainer(model, train_pairs, valid, config=config), CheckpointStore(tmp_path / "w")).curve

    trained = model()
    first = curve(trained)
    assert curve(model()) == first
    assert curve(trained, steps=6)[:2] == first
    for what, changes in (
        ("lr_factor", {"lr_factor": 0.5}),
        ("train", {"train_pairs": others}),
        ("valid", {"valid": others}),
    ):
        with pytest.raises(Mistake, match=f"w has another training: not equal are {what}. Nothing was trained. Name"):
            curve(model(), **changes)
    with pytest.raises(Mistake, match=r"not equal are initial weights\..* with torch seeded"):
        curve(model(2))
    (tmp_path / "w/identity.json").write_text("")  # as after a power cut
    with pytest.raises(Mistake, match="w has another training"):
        curve(model(), lr_factor=0.5)
    for state in (tmp_path / "w").glob("state-*"):
        state.unlink()  # a training that diverged has no state, and is begun anew with other settings
    assert curve(model(), lr_factor=0.5) != first


def test_without_an_undamaged_state_a_training_starts_anew(tmp_path, capsys):
    _, digest = train_tiny(tmp_path, tmp_path / "w", max_steps=4)
    for path in (tmp_path / "w").glob("weights-*"):
        path.write_bytes(path.read_bytes()[:100])
    steps: list[int] = []
    assert train_tiny(tmp_path, tmp_path / "w", max_steps=4, on_update=lambda step, _: steps.append(step))[1] == digest
    assert steps[0] == 1
    assert "It was set aside as .damaged. Training starts anew. " in capsys.readouterr().err


def test_two_states_and_the_last_and_best_checkpoints_are_kept(tmp_path):
    state, _ = train_tiny(tmp_path, tmp_path / "w", max_steps=24, keep=3)
    assert {"16", "20", "24"} | set(map(str, best_steps(state.checkpoints)[:3])) == set(state.checkpoints)
    names = sorted(path.name for path in (tmp_path / "w").iterdir())
    assert sum(name.startswith("state") for name in names) == 2
    assert sum(name.startswith("optimiser") for name in names) == 2
    assert sum(name.startswith("weights") for name in names) <= 3 + 3 + 2  # last 3, best 3, two of the older state
    for path in (tmp_path / "w").iterdir():
        assert path.suffix in (".json", ".safetensors")
        if path.name.startswith("state"):
            assert json.loads(path.read_text())["format"] == 1


def test_the_last_state_of_a_shorter_training_is_the_only_one_kept_of_it(tmp_path):
    for steps in (4, 24):
        train_tiny(tmp_path, tmp_path / "w", max_steps=steps, keep=3)
    names = sorted(path.name for path in (tmp_path / "w").glob("state*"))
    assert names == [f"state-{step:08d}.json" for step in (4, 20, 24)]
