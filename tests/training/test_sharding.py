"""Weights in shards (SHARDING=full) give the numbers of whole weights, and each process holds its share of them."""

from __future__ import annotations

import gc
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from support.processes import together
from support.tiny import tiny_trainer
from support.trainings import valid_text

from transformer.files import sha256
from transformer.training.checkpoints import CheckpointStore
from transformer.training.distributed import Stopped, World
from transformer.training.loop import Interrupted, Observers, train
from transformer.training.sharding import wants_shards
from transformer.training.validation import valid_bleu, valid_loss

# Other weights than those of an encoder and a decoder layer, and sizes that do not divide into shards
PARTS = {"tie_embeddings": False, "positions": "learned", "norm": "post"}
SETTINGS = {
    "muon": {"optimiser": "muon"},
    "one micro-batch, so that the second process has none": {"device_tokens": 120, "sizes": PARTS},
}


class Result(NamedTuple):
    """What a process computed: losses and gradient norms of updates, then validation loss and BLEU."""

    losses: list[float]
    norms: list[float]
    valid: tuple[float, float]


def updates(world: World, folder: Path, count: int, settings: dict) -> Result:
    """Train for some updates in float64; in shards if there are several processes."""
    settings = {"precision": "float64", "warmup": 400, **settings}
    trainer = tiny_trainer(folder / f"{world.rank}of{world.size}", world, sharded=world.size > 1, **settings)
    made = [trainer.update(step) for step in range(1, count + 1)]
    with trainer.whole_weights():
        valid = valid_loss(trainer), valid_bleu(trainer, valid_text(trainer))
    return Result([float(update.loss) for update in made], [float(update.gradient_norm) for update in made], valid)


def check_equal(several: list[Result], one: Result) -> None:
    """Compare the processes of a training in shards with one process that has whole weights."""
    for rank in several:
        assert rank.norms[:10] == pytest.approx(one.norms[:10], rel=1e-6)
        assert rank.losses == pytest.approx(one.losses, rel=1e-6)
        assert rank.valid == pytest.approx(one.valid, rel=1e-6)
    assert max(one.norms) > 1.0  # clip_norm scales some gradients


@pytest.mark.parametrize("name", SETTINGS)
def test_shards_give_the_losses_and_gradient_norms_of_one_process(tmp_path, pair, name):
    check_equal([rank[name] for rank in pair], updates(World(), tmp_path, 10, SETTINGS[name]))


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_shards_give_the_losses_of_a_hundred_updates(tmp_path, size, optimiser):
    several, one = (together(processes, updates, tmp_path, 100, {"optimiser": optimiser}) for processes in (size, 1))
    check_equal(several, one[0])


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("name", SETTINGS)
def test_two_gpus_with_shards_give_the_losses_of_one(tmp_path, name):
    one = updates(World(device=torch.device("cuda")), tmp_path, 10, SETTINGS[name])
    check_equal(together(2, updates, tmp_path, 10, SETTINGS[name], gpus=True), one)


def summed_in_bfloat16(world: World, folder: Path) -> tuple[list[float], list[torch.dtype]]:
    """Losses in float32 with gradients that are summed in bfloat16, and the kinds of numbers of the gradients."""
    trainer = tiny_trainer(folder / str(world.rank), world, sharded=world.size > 1, gradient_compression="bfloat16")
    losses = [float(trainer.update(step).loss) for step in range(1, 6)]
    return losses, [str(weight.grad.dtype) for weight in trainer.parameters]


@pytest.mark.full
def test_gradients_of_shards_may_be_summed_in_bfloat16(tmp_path):
    ((one, _),), ((two, kinds), _) = (together(size, summed_in_bfloat16, tmp_path) for size in (1, 2))
    assert two != pytest.approx(one, rel=1e-7)
    assert two == pytest.approx(one, rel=1e-2)
    assert set(kinds) == {"torch.float32"}


def numbers_held() -> int:
    """The bytes of all tensors of floating-point numbers that this process holds."""
    gc.collect()
    tensors = [found for found in gc.get_objects() if isinstance(found, torch.Tensor) and found.is_floating_point()]
    storages = {}
    for tensor in tensors:
        with suppress(RuntimeError, NotImplementedError):  # a DTensor has no storage: its shard is another tensor
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def bytes_between_updates(world: World, folder: Path) -> tuple[int, int]:
    """The bytes that a process holds between updates more than before the training; and those of the weights alone."""
    before = numbers_held()
    sizes = {"d_model": 64, "d_ff": 128}
    trainer = tiny_trainer(folder / str(world.rank), world, sizes, sharded=world.size > 1)
    for step in range(1, 4):
        trainer.update(step)
    with trainer.whole_weights():
        valid_loss(trainer)
    trainer.update(4)
    held = numbers_held() - before
    return held, 4 * sum(weight.numel() for weight in trainer.parameters)


def test_each_process_holds_its_share_of_weights_gradients_moments_and_moving_average(tmp_path, pair):
    whole, weights = bytes_between_updates(World(), tmp_path)
    assert whole == pytest.approx(5 * weights, rel=0.1)  # weights, gradients, two moments, moving average
    for rank in pair:
        assert rank["bytes"][0] == pytest.approx(whole / 2, rel=0.05)


def train_in(
    world: World, folder: Path, work: Path, sharded: bool, stop: tuple | None = None, **settings
) -> str | None:
    """Train from the states in `work` to the end, or to a stop that one process requests.

    stop: after ("update", step), so in a validation if that is due; or after ("row", step), so in the next update.
    Returns the hash of the weights and moments at the end; None if it was stopped.
    """
    settings = {"precision": "float64", **settings}
    trainer = tiny_trainer(folder / f"{world.rank}of{world.size}", world, sharded=sharded, **settings)
    events: list[tuple] = []
    observers = Observers(
        on_rows=lambda rows: events.extend(("row", row["step"]) for row in rows),
        on_update=lambda step, update: events.append(("update", step)),
        stop_requested=lambda: bool(stop and world.rank == world.size - 1 and events and events[-1] == stop),
    )
    store = CheckpointStore(work)
    try:
        state = train(trainer, store, valid_text(trainer), observers)
    except Interrupted:
        return None
    return sha256(store.weights(state.step)) + sha256(store.folder / f"optimiser-{state.step:08d}.safetensors")


def changing_ways(world: World, folder: Path) -> dict[str, list[str | None]]:
    """Trainings of 12 updates by two processes, some stopped, in folders of their names; the hashes of train_in."""
    update, validation, row = ("update", 7), ("update", 8), ("row", 4)
    ways = {
        "sharded": [(True, None)],
        "stopped in an update": [(True, update), (True, None)],
        "stopped in a validation": [(True, validation), (True, None)],
        "stopped after a state was saved": [(True, row), (True, None)],
        "sharded, then whole": [(True, update), (False, None)],
        "whole, then sharded": [(False, update), (True, None)],
    }
    return {
        name: [train_in(world, folder, folder / name, sharded, stop, best_by="bleu") for sharded, stop in parts]
        for name, parts in ways.items()
    }


@pytest.mark.full
def test_states_of_shards_are_those_of_whole_weights_and_resume_either_way(tmp_path):
    hashes = together(2, changing_ways, tmp_path)[0]
    assert all(parts[0] is None for parts in hashes.values() if len(parts) == 2)  # they were stopped
    for name, parts in hashes.items():
        if name.startswith("stopped"):
            assert parts[-1] == hashes["sharded"][-1], name  # to the byte
    train_in(World(), tmp_path, tmp_path / "one", sharded=False, best_by="bleu")
    (one_step,) = {path.name for path in (tmp_path / "one").glob("optimiser-*12.safetensors")}
    for kind in ("weights", "optimiser"):
        one = load_file(tmp_path / f"one/{one_step.replace('optimiser', kind)}")
        for name in hashes:
            other = load_file(tmp_path / name / one_step.replace("optimiser", kind))
            assert other.keys() == one.keys()
            for key, tensor in one.items():
                torch.testing.assert_close(other[key], tensor, rtol=1e-5, atol=1e-9)


def test_one_process_resumes_from_the_state_of_shards(tmp_path, pair, pair_folder):
    assert [rank["stopped training"] for rank in pair] == [None, None]
    shutil.copytree(pair_folder / "work", tmp_path / "work")
    for work in ("work", "one"):
        train_in(World(), tmp_path, tmp_path / work, sharded=False)
    one, other = (load_file(tmp_path / work / "weights-00000012.safetensors") for work in ("one", "work"))
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-5, atol=1e-9)


def stopped_update(world: World, folder: Path) -> bool:
    """Whether a stop that the last process requests ends an update in each process, without a change of weights."""
    trainer = tiny_trainer(folder / str(world.rank), world, sharded=True)
    trainer.update(1)
    before = trainer.tensors()[0]
    with pytest.raises(Stopped):
        trainer.update(2, lambda: world.rank == world.size - 1)
    return all(torch.equal(before[name], tensor) for name, tensor in trainer.tensors()[0].items())


def tasks_of_a_pair(world: World, folder: Path) -> dict:
    """What the quick tests need of two processes; starting two takes longer than all of it."""
    return {name: updates(world, folder, 10, settings) for name, settings in SETTINGS.items()} | {
        "bytes": bytes_between_updates(world, folder),
        "stopped training": train_in(world, folder, folder / "work", sharded=True, stop=("row", 4)),
        "stopped update": stopped_update(world, folder),
    }


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory) -> Path:
    """The folder in which the processes of `pair` worked."""
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def pair(pair_folder) -> list[dict]:
    """The results of tasks_of_a_pair of both processes."""
    return together(2, tasks_of_a_pair, pair_folder)


def test_a_request_to_stop_ends_an_update_of_shards_in_all_processes(pair):
    assert [rank["stopped update"] for rank in pair] == [True, True]


def test_a_value_of_sharding_without_a_meaning_is_refused():
    assert [wants_shards(setting) for setting in ("", "none", "full")] == [False, False, True]
    with pytest.raises(ValueError, match=r"SHARDING='half' is not a way to hold the weights\. Set SHARDING to full"):
        wants_shards("half")
