"""What passes between processes arrives unchanged: values as JSON, tensors bit for bit."""

from __future__ import annotations

import math
import multiprocessing
import os
import socket
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from transformer.training.checkpoints import TrainingState
from transformer.training.distributed import World, decoded, encoded, join_processes

NUMBERS = st.floats(allow_nan=False) | st.integers()
STEPS = st.integers(0, 10**6).map(str)
STATES = st.builds(
    TrainingState,
    step=st.integers(0),
    losses=st.lists(NUMBERS),
    tokens=st.lists(st.integers(0)),
    validations=st.dictionaries(STEPS, st.dictionaries(st.sampled_from(["loss", "bleu"]), NUMBERS)),
    samples=st.dictionaries(STEPS, st.lists(st.text())),
    files=st.dictionaries(st.text(), st.text()),
    end=st.booleans(),
    curve=st.lists(st.dictionaries(st.text(), st.none() | NUMBERS)),
    checkpoints=st.dictionaries(STEPS, st.lists(NUMBERS)),
    stopped_early=st.booleans(),
)
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
SHAPES = st.lists(st.integers(0, 4), max_size=3)
TENSORS = st.dictionaries(
    st.text(max_size=5), st.tuples(st.sampled_from(TYPES), SHAPES, st.integers(0, 99)), max_size=4
)


def tensor(dtype, shape, seed):
    """A tensor of random bytes, among which are NaN and infinity."""
    size = math.prod(shape) * dtype.itemsize
    data = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), generator=torch.Generator().manual_seed(seed))
    return data.to(torch.uint8).view(dtype).view(shape)


def same(one, other) -> bool:
    """Whether two tensors are equal to the bit."""
    alike = (one.dtype, one.shape) == (other.dtype, other.shape)
    return alike and torch.equal(one.flatten().view(torch.uint8), other.flatten().view(torch.uint8))


@given(STATES)
def test_a_state_of_a_training_goes_through_json_unchanged(state):
    assert TrainingState(**decoded(encoded(vars(state)))) == state


def test_all_fields_of_a_state_are_plain_values():
    assert {field.type for field in fields(TrainingState)} <= {
        "int",
        "bool",
        "list[float]",
        "list[int]",
        "list[Row]",
        "dict[str, dict[str, float]]",
        "dict[str, list[str]]",
        "dict[str, str]",
        "dict[str, list[float]]",
    }


def exchange(rank: int, size: int, port: int, queue) -> None:
    """Exchange the same examples as all others, in the same order, and put how many, or the error, into the queue."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    count = 0
    # Without shrinking: the others would not follow.
    alike = settings(derandomize=True, database=None, max_examples=60, deadline=None, phases=[Phase.generate])

    def check(world: World, state: TrainingState, kinds: dict) -> None:
        nonlocal count
        count += 1
        assert TrainingState(**world.from_leader(vars(state) if world.is_leader else None)) == state
        assert world.gather([rank, state.samples] * rank) == [[other, state.samples] * other for other in range(size)]
        tensors = {name: tensor(*kind) for name, kind in kinds.items()}
        received = world.tensors_from_leader(tensors if world.is_leader else {})
        assert received.keys() == tensors.keys()
        assert all(same(received[name], value) for name, value in tensors.items())

    try:
        with join_processes() as world:
            alike(given(STATES, TENSORS)(lambda state, kinds: check(world, state, kinds)))()
        queue.put(count)
    except BaseException as error:
        queue.put(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.full)])
def test_any_state_and_any_tensors_arrive_unchanged_at_all_processes(size):
    spawn = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = spawn.Queue()
    ranks = [spawn.Process(target=exchange, args=(rank, size, port, queue)) for rank in range(size)]
    for process in ranks:
        process.start()
    found = [queue.get(timeout=240) for _ in ranks]
    for process in ranks:
        process.join()
    assert found == [60] * size


def test_one_process_sends_nothing():
    weights = {"a": torch.ones(2)}
    assert World().tensors_from_leader(weights) is weights
    assert World().gather("x") == ["x"]


def test_no_module_pickles_what_it_sends():
    for path in (Path(__file__).parents[2] / "transformer").rglob("*.py"):
        assert "_object" not in path.read_text(encoding="utf-8").replace("_objects", ""), path
