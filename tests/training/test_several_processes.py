"""Several processes compute what one process computes."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from support.processes import together
from support.tiny import tiny_trainer

from transformer.files import sha256
from transformer.training.checkpoints import CheckpointStore
from transformer.training.distributed import Stopped, World
from transformer.training.loop import Interrupted, Observers, train
from transformer.training.validation import ValidText, valid_bleu, valid_loss

DOUBLE = {"precision": "float64", "warmup": 400}
# Other weights than those of an encoder and a decoder layer
PARTS = {"tie_embeddings": False, "positions": "learned", "norm": "post"}
SETTINGS = {
    "uneven micro-batches, Muon": {**DOUBLE, "optimiser": "muon"},
    "one micro-batch, so that the second process has none": {**DOUBLE, "device_tokens": 120, "sizes": PARTS},
}
FLOAT32 = {"warmup": 400}


class Result(NamedTuple):
    """What a process computed: losses and gradient norms of updates, then validation loss and BLEU."""

    losses: list[float]
    norms: list[float]
    valid: tuple[float, float]


def train_some(world: World, folder: Path, count: int, settings: dict, validate: bool = True) -> Result:
    """Train for some updates. validate: whether to validate at the end."""
    trainer = tiny_trainer(folder / str(world), world, **settings)
    updates = [trainer.update(step) for step in range(1, count + 1)]
    valid = (0.0, 0.0)
    if validate:
        valid = valid_loss(trainer), valid_bleu(trainer, ValidText.build_from_ids(trainer.valid_pairs))
    return Result(
        [float(update.loss) for update in updates], [float(update.gradient_norm) for update in updates], valid
    )


def check_equal(several: list[Result], single: Result) -> None:
    """Compare the processes of a training with a single process."""
    for rank in several:
        assert rank.norms[:10] == pytest.approx(single.norms[:10], rel=1e-6)
        assert rank.losses == pytest.approx(single.losses, rel=1e-6)
        assert rank.valid == pytest.approx(single.valid, rel=1e-6)
    assert max(single.norms) > 1.0  # clip_norm scales some gradients


def stopped(world: World, folder: Path) -> list[bool]:
    """Whether all processes stop in an update and in both validations when the last one requests it, and change none.

    The update has several micro-batches for each process, and is stopped at the second.
    """
    trainer = tiny_trainer(folder / f"stopped {world}", world, device_tokens=16)
    trainer.update(1)
    before = trainer.tensors()[0]

    def at_call(number: int) -> Callable[[], bool]:
        calls = itertools.count(1)
        return lambda: next(calls) >= number and world.rank == world.size - 1

    answers = []
    for task in (
        lambda: valid_loss(trainer, at_call(1)),
        lambda: valid_bleu(trainer, ValidText.build_from_ids(trainer.valid_pairs), at_call(2)),
    ):
        with pytest.raises(Stopped):
            task()
        answers.append(True)
    with pytest.raises(Stopped):
        trainer.update(2, at_call(2))
    return [*answers, all(torch.equal(before[name], tensor) for name, tensor in trainer.tensors()[0].items())]


def train_in(world: World, work: Path, stop: tuple | None = None, **settings) -> str | None:
    """Train from the states in `work` to the end, or to a stop that the last process requests.

    stop: after ("update", step), so in a validation if that is due; or after ("row", step), so in the next update.
    Returns the hash of the weights and moments at the end; None if it was stopped.
    """
    trainer = tiny_trainer(work.parent / str(world), world, **settings)
    events: list[tuple] = []
    observers = Observers(
        on_rows=lambda rows: events.extend(("row", row["step"]) for row in rows),
        on_update=lambda step, update: events.append(("update", step)),
        stop_requested=lambda: bool(stop and world.rank == world.size - 1 and events and events[-1] == stop),
    )
    store = CheckpointStore(work)
    try:
        state = train(trainer, store, observers=observers)
    except Interrupted:
        return None
    return sha256(store.weights(state.step)) + sha256(store.folder / f"optimiser-{state.step:08d}.safetensors")


def tasks_of_a_pair(world: World, folder: Path) -> dict:
    """What the quick tests need of two processes; starting two takes longer than all of it."""
    results: dict = {name: train_some(world, folder, 6, settings) for name, settings in SETTINGS.items()}
    return results | {
        "stopped": stopped(world, folder),
        "float32": train_some(world, folder, 20, FLOAT32, validate=False),
        "stopped training": train_in(world, folder / "work", ("row", 4), precision="float64"),
    }


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory) -> Path:
    """The folder in which the processes of `pair` worked."""
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def pair(pair_folder) -> list[dict]:
    """The results of tasks_of_a_pair of both processes."""
    return together(2, tasks_of_a_pair, pair_folder)


@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_give_the_numbers_of_one(tmp_path, pair, name):
    check_equal([rank[name] for rank in pair], train_some(World(), tmp_path, 6, SETTINGS[name]))


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_any_number_of_processes_gives_the_losses_of_one(tmp_path, size, optimiser):
    settings = {**DOUBLE, "optimiser": optimiser}
    several, (single,) = (together(count, train_some, tmp_path, 100, settings) for count in (size, 1))
    check_equal(several, single)


def test_in_float32_two_processes_stay_near_one(tmp_path, pair):
    single = train_some(World(), tmp_path, 20, FLOAT32, validate=False)
    for rank in pair:
        assert rank["float32"].losses[0] == pytest.approx(single.losses[0], rel=1e-6)
        assert rank["float32"].losses == pytest.approx(single.losses, rel=1e-4)


def test_a_stop_that_one_process_requests_stops_all(pair):
    assert [rank["stopped"] for rank in pair] == [[True] * 3] * 2


def check_near(work: Path, other: Path, kinds: tuple[str, ...] = ("weights",)) -> None:
    """Check that the last states of two trainings have nearly equal tensors."""
    for kind in kinds:
        own, peer = (load_file(folder / f"{kind}-00000012.safetensors") for folder in (work, other))
        assert own.keys() == peer.keys()
        for name, tensor in own.items():
            torch.testing.assert_close(peer[name], tensor, rtol=1e-5, atol=1e-9)


def test_one_process_resumes_from_the_state_of_several(tmp_path, pair, pair_folder):
    assert [rank["stopped training"] for rank in pair] == [None, None]
    shutil.copytree(pair_folder / "work", tmp_path / "resumed")
    for work in ("resumed", "straight"):
        train_in(World(), tmp_path / work, precision="float64")
    check_near(tmp_path / "straight", tmp_path / "resumed")


STOPS = {"in an update": ("update", 7), "in a validation": ("update", 8), "after a state was saved": ("row", 4)}


def trainings(world: World, folder: Path) -> dict[str, list[str | None]]:
    """The hashes of train_in, in folders of their names: of a straight training, and of each stop and what follows."""
    settings = {"precision": "float64", "best_by": "bleu"}
    stops = {"straight": [None], **{name: [stop, None] for name, stop in STOPS.items()}}
    return {name: [train_in(world, folder / name, stop, **settings) for stop in parts] for name, parts in stops.items()}


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 3])
def test_trainings_of_several_processes_resume_to_the_same_bytes(tmp_path, size):
    hashes = together(size, trainings, tmp_path)[0]
    for name in STOPS:
        assert hashes[name] == [None, *hashes["straight"]]
    train_in(World(), tmp_path / "single", precision="float64", best_by="bleu")
    check_near(tmp_path / "single", tmp_path / "straight", ("weights", "optimiser"))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("name", SETTINGS)
def test_two_gpus_give_the_numbers_of_one(tmp_path, name):
    single = train_some(World(device=torch.device("cuda")), tmp_path, 10, SETTINGS[name])
    check_equal(together(2, train_some, tmp_path, 10, SETTINGS[name], gpus=True), single)
