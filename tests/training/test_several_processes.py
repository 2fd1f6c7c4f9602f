"""Several processes compute what one process computes, each with all weights (DDP) or with a shard of them (FSDP2)."""

from __future__ import annotations

import gc
import itertools
import shutil
from collections.abc import Callable
from contextlib import suppress
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
from transformer.training.sharding import wants_shards
from transformer.training.validation import ValidText, valid_bleu, valid_loss

WAYS = pytest.mark.parametrize("sharded", [False, True], ids=["copies", "shards"])
DOUBLE = {"precision": "float64", "warmup": 400}
# Other weights than those of an encoder and a decoder layer, and sizes that do not divide into shards
PARTS = {"tie_embeddings": False, "positions": "learned", "norm": "post"}
SETTINGS = {
    "uneven micro-batches, Muon": {**DOUBLE, "optimiser": "muon"},
    "one micro-batch, so that the second process has none": {**DOUBLE, "device_tokens": 120, "sizes": PARTS},
    "splits that are drawn in each epoch": {**DOUBLE, "bpe_dropout": 0.3},
}
SHARDED = (False, True, False)  # for each of SETTINGS
FLOAT32 = {"warmup": 400}
BFLOAT16_SUMS = {**DOUBLE, "gradient_compression": "bfloat16"}


class Result(NamedTuple):
    """What a process computed: losses and gradient norms of updates, then validation loss and BLEU."""

    losses: list[float]
    norms: list[float]
    valid: tuple[float, float]


def train_some(world: World, folder: Path, count: int, sharded: bool, settings: dict, validate: bool = True) -> Result:
    """Train for some updates; in shards if there are several processes. validate: whether to validate at the end."""
    trainer = tiny_trainer(folder / str(world), world, sharded=sharded and world.size > 1, **settings)
    updates = [trainer.update(step) for step in range(1, count + 1)]
    valid = (0.0, 0.0)
    if validate:
        with trainer.full_weights():
            valid = valid_loss(trainer), valid_bleu(trainer, ValidText.of_ids(trainer.valid_pairs))
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


def stopped(world: World, folder: Path, sharded: bool) -> list[bool]:
    """Whether all processes stop in an update and in both validations when the last one requests it, and change none.

    The update has several micro-batches for each process, and is stopped at the second.
    """
    trainer = tiny_trainer(folder / f"stopped {world}", world, sharded=sharded, device_tokens=16)
    trainer.update(1)
    before = trainer.tensors()[0]

    def at_call(number: int) -> Callable[[], bool]:
        calls = itertools.count(1)
        return lambda: next(calls) >= number and world.rank == world.size - 1

    answers = []
    with trainer.full_weights():
        for task in (
            lambda: valid_loss(trainer, at_call(1)),
            lambda: valid_bleu(trainer, ValidText.of_ids(trainer.valid_pairs), at_call(2)),
        ):
            with pytest.raises(Stopped):
                task()
            answers.append(True)
    with pytest.raises(Stopped):
        trainer.update(2, at_call(2))
    return [*answers, all(torch.equal(before[name], tensor) for name, tensor in trainer.tensors()[0].items())]


def bytes_of_tensors() -> int:
    """The bytes of all tensors of floating-point numbers in this process."""
    gc.collect()
    tensors = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor) and item.is_floating_point()]
    storages = {}
    for tensor in tensors:
        with suppress(RuntimeError, NotImplementedError):  # a DTensor has no storage: its shard is another tensor
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def bytes_between_updates(world: World, folder: Path) -> tuple[int, int]:
    """The bytes that a training in shards keeps between updates; and those of the weights alone."""
    before = bytes_of_tensors()
    sizes = {"d_model": 64, "d_ff": 128}
    trainer = tiny_trainer(folder / f"bytes {world}", world, sizes, sharded=world.size > 1)
    for step in range(1, 4):
        trainer.update(step)
    with trainer.full_weights():
        valid_loss(trainer)
    trainer.update(4)
    return bytes_of_tensors() - before, 4 * sum(weight.numel() for weight in trainer.parameters)


def train_in(world: World, work: Path, sharded: bool, stop: tuple | None = None, **settings) -> str | None:
    """Train from the states in `work` to the end, or to a stop that the last process requests.

    stop: after ("update", step), so in a validation if that is due; or after ("row", step), so in the next update.
    Returns the hash of the weights and moments at the end; None if it was stopped.
    """
    trainer = tiny_trainer(work.parent / str(world), world, sharded=sharded, **settings)
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
    results: dict = {
        (name, sharded): train_some(world, folder, 6, sharded, settings)
        for (name, settings), sharded in zip(SETTINGS.items(), SHARDED, strict=True)
    }
    results |= {("stopped", sharded): stopped(world, folder, sharded) for sharded in (False, True)}
    return results | {
        "float32": train_some(world, folder, 20, False, FLOAT32, validate=False),
        "bfloat16 sums": train_some(world, folder, 5, False, BFLOAT16_SUMS, validate=False),
        "bytes": bytes_between_updates(world, folder),
        "stopped training": train_in(world, folder / "work", True, ("row", 4), precision="float64"),
    }


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory) -> Path:
    """The folder in which the processes of `pair` worked."""
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def pair(pair_folder) -> list[dict]:
    """The results of tasks_of_a_pair of both processes."""
    return together(2, tasks_of_a_pair, pair_folder)


@pytest.mark.parametrize(("name", "sharded"), zip(SETTINGS, SHARDED, strict=True), ids=["copies", "shards", "drawn"])
def test_two_processes_give_the_numbers_of_one(tmp_path, pair, name, sharded):
    check_equal([rank[name, sharded] for rank in pair], train_some(World(), tmp_path, 6, False, SETTINGS[name]))


@pytest.mark.full
@WAYS
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_any_number_of_processes_gives_the_losses_of_one(tmp_path, size, optimiser, sharded):
    settings = {**DOUBLE, "optimiser": optimiser}
    several, (single,) = (together(count, train_some, tmp_path, 100, sharded, settings) for count in (size, 1))
    check_equal(several, single)


def test_in_float32_two_processes_stay_near_one(tmp_path, pair):
    single = train_some(World(), tmp_path, 20, False, FLOAT32, validate=False)
    for rank in pair:
        assert rank["float32"].losses[0] == pytest.approx(single.losses[0], rel=1e-6)
        assert rank["float32"].losses == pytest.approx(single.losses, rel=1e-4)


def check_rounded(several: list[Result], single: Result) -> None:
    """Check that losses are near those of a single process, but not equal."""
    for rank in several:
        assert rank.losses != pytest.approx(single.losses, rel=1e-9)
        assert rank.losses == pytest.approx(single.losses, rel=1e-2)


def test_gradients_may_be_summed_in_bfloat16(tmp_path, pair):
    single = train_some(World(), tmp_path, 5, False, BFLOAT16_SUMS, validate=False)
    check_rounded([rank["bfloat16 sums"] for rank in pair], single)


@WAYS
def test_a_stop_that_one_process_requests_stops_all(pair, sharded):
    assert [rank["stopped", sharded] for rank in pair] == [[True] * 3] * 2


def test_each_process_keeps_its_share_of_all_tensors(tmp_path, pair):
    single, weights = bytes_between_updates(World(), tmp_path)
    assert single == pytest.approx(5 * weights, rel=0.1)  # weights, gradients, two moments, moving average
    for rank in pair:
        assert rank["bytes"][0] == pytest.approx(single / 2, rel=0.05)


def check_near(work: Path, other: Path, kinds: tuple[str, ...] = ("weights",)) -> None:
    """Check that the last states of two trainings have nearly equal tensors."""
    for kind in kinds:
        own, peer = (load_file(folder / f"{kind}-00000012.safetensors") for folder in (work, other))
        assert own.keys() == peer.keys()
        for name, tensor in own.items():
            torch.testing.assert_close(peer[name], tensor, rtol=1e-5, atol=1e-9)


def test_one_process_resumes_from_the_state_of_shards(tmp_path, pair, pair_folder):
    assert [rank["stopped training"] for rank in pair] == [None, None]
    shutil.copytree(pair_folder / "work", tmp_path / "resumed")
    for work in ("resumed", "straight"):
        train_in(World(), tmp_path / work, False, precision="float64")
    check_near(tmp_path / "straight", tmp_path / "resumed")


UPDATE, VALIDATION, ROW = ("update", 7), ("update", 8), ("row", 4)  # places of a stop; see train_in
TRAININGS = {
    "shards": [(True, None)],
    "shards, stopped in an update": [(True, UPDATE), (True, None)],
    "shards, stopped in a validation": [(True, VALIDATION), (True, None)],
    "shards, stopped after a state was saved": [(True, ROW), (True, None)],
    "copies": [(False, None)],
    "copies, stopped in an update": [(False, UPDATE), (False, None)],
    "from shards to copies": [(True, UPDATE), (False, None)],
    "from copies to shards": [(False, UPDATE), (True, None)],
}


def trainings(world: World, folder: Path) -> dict[str, list[str | None]]:
    """The hashes of train_in for each part of TRAININGS, in folders of their names."""
    settings = {"precision": "float64", "best_by": "bleu"}
    return {
        name: [train_in(world, folder / name, sharded, stop, **settings) for sharded, stop in parts]
        for name, parts in TRAININGS.items()
    }


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 3])
def test_trainings_resume_to_the_same_bytes_or_the_other_way(tmp_path, size):
    hashes = together(size, trainings, tmp_path)[0]
    assert all(parts[0] is None for parts in hashes.values() if len(parts) == 2)  # they were stopped
    for name, parts in hashes.items():
        if ", stopped" in name:
            assert parts[-1] == hashes[name.split(",")[0]][-1], name  # to the byte
    train_in(World(), tmp_path / "single", False, precision="float64", best_by="bleu")
    for name in hashes:
        check_near(tmp_path / "single", tmp_path / name, ("weights", "optimiser"))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@WAYS
@pytest.mark.parametrize("name", SETTINGS)
def test_two_gpus_give_the_numbers_of_one(tmp_path, name, sharded):
    single = train_some(World(device=torch.device("cuda")), tmp_path, 10, False, SETTINGS[name])
    check_equal(together(2, train_some, tmp_path, 10, sharded, SETTINGS[name], gpus=True), single)


def test_a_value_of_sharding_without_a_meaning_is_refused():
    assert [wants_shards(setting) for setting in ("", "none", "full")] == [False, False, True]
    with pytest.raises(ValueError, match=r"SHARDING='half' is not a way to hold the weights\. Set SHARDING to full"):
        wants_shards("half")
