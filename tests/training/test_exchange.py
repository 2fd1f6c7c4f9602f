"""What passes between processes arrives unchanged: values as JSON, tensors bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.processes import together

from transformer.training.checkpoints import TrainingState
from transformer.training.distributed import LostConnection, World

NUMBERS = st.floats(allow_nan=False) | st.integers()
STEPS = st.integers(0, 10**6).map(str)
STATES = st.builds(
    TrainingState,
    step=st.integers(0),
    losses=st.lists(NUMBERS),
    validations=st.dictionaries(STEPS, st.dictionaries(st.sampled_from(["loss", "bleu"]), NUMBERS)),
    samples=st.dictionaries(STEPS, st.lists(st.text())),
    files=st.dictionaries(st.text(), st.text()),
    curve=st.lists(st.dictionaries(st.text(), st.none() | NUMBERS)),
    stopped_early=st.booleans(),
)
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
KINDS = st.tuples(st.sampled_from(TYPES), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 99))
TENSORS = st.dictionaries(st.text(max_size=5), KINDS, max_size=4)


def random_tensor(dtype, shape, seed):
    """A tensor of random bytes, among which are NaN and infinity."""
    size = math.prod(shape) * dtype.itemsize
    data = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), generator=torch.Generator().manual_seed(seed))
    return data.to(torch.uint8).view(dtype).view(shape)


def in_bytes(tensor):
    """The type, shape and bytes of a tensor."""
    return tensor.dtype, tensor.shape, tensor.flatten().view(torch.uint8).tolist()


def exchange(world: World) -> int:
    """Exchange the same examples as all other processes, in the same order. Returns how many."""
    count = 0

    # Without shrinking: the other processes would not follow.
    @settings(derandomize=True, database=None, max_examples=12, deadline=None, phases=[Phase.generate])
    @given(STATES, TENSORS)
    def check(state: TrainingState, kinds: dict) -> None:
        nonlocal count
        count += 1
        assert TrainingState(**world.broadcast(vars(state) if world.is_leader else None)) == state
        values = [[rank, state.samples] * rank for rank in range(world.size)]
        assert world.gather(values[world.rank]) == values
        tensors = {name: random_tensor(*kind) for name, kind in kinds.items()}
        received = world.tensors_from_leader(tensors if world.is_leader else {})
        assert {name: in_bytes(tensor) for name, tensor in received.items()} == {
            name: in_bytes(tensor) for name, tensor in tensors.items()
        }

    check()
    assert [world.any(world.rank == 1), world.any(False)] == [True, False]
    return count


def disagree(world: World) -> str:
    """The error over facts that differ. Fails if the leader does not notice that the other process has ended."""
    world.agree({"torch": "2", "data/ids": "a"})
    with pytest.raises(ValueError, match="not equal") as error:
        world.agree({"torch": "2", "data/ids": f"{world.rank}", f"code of {world.rank}": "b"})
    if world.is_leader:
        with pytest.raises(LostConnection, match=r"Process 0 of 2 lost the connection to another process \("):
            world.wait()
    return str(error.value)


def tasks_of_a_pair(world: World) -> tuple[int, str]:
    """What the tests need of two processes; starting two takes longer than all of it."""
    return exchange(world), disagree(world)


@pytest.fixture(scope="module")
def pair() -> list[tuple[int, str]]:
    """The results of tasks_of_a_pair of both processes."""
    return together(2, tasks_of_a_pair)


def test_any_state_and_any_tensors_arrive_unchanged(pair):
    assert [count for count, _ in pair] == [12, 12]


@pytest.mark.full
def test_they_arrive_at_two_other_processes_too():
    assert together(3, exchange) == [12] * 3


def test_facts_that_differ_and_a_process_that_ended_are_noticed(pair):
    for _, message in pair:
        assert message.startswith("code of 0, code of 1, data/ids: not equal on ")
        assert "(process 1)" in message
