"""Training is a function of params and data: not of the number of devices, of kills, or of what was trained before."""

import errno
import gc
import itertools
import json
import multiprocessing
import os
import platform
import resource
import socket
from pathlib import Path
from statistics import mean

import pytest
import torch
from safetensors.torch import save_file
from support.tiny import NO_DROPOUT, tiny_trainer

from transformer.decoding.beam_search import Hypothesis
from transformer.files import sha256
from transformer.model.averaging import mean_weights
from transformer.model.linear import multiplies_bfloat16
from transformer.training import checkpoints as checkpoint
from transformer.training import loop
from transformer.training.checkpoints import CheckpointStore, best_steps, load_file
from transformer.training.distributed import World, world
from transformer.training.ema import decay_at
from transformer.training.loop import Diverged, Interrupted, Observers, train
from transformer.training.train_step import Trainer
from transformer.training.validation import valid_bleu, valid_loss

pytestmark = pytest.mark.usefixtures("one_thread")


def run(folder, work, keep=2, on_rows=lambda rows: None, wants_stop=lambda: False, **update):
    """Train the tiny model; returns the final state and the sha256 of its weights."""
    store = CheckpointStore(work, keep)
    state = train(tiny_trainer(folder, **update), store, words, Observers(on_rows, wants_stop=wants_stop))
    return state, sha256(store.weights(state.step))


def words(ids) -> str:
    """A line of text for ids."""
    return " ".join(f"w{number}" for number in ids)


def outcome(state) -> tuple:
    """What a training leaves for its outs."""
    return state.step, state.curve, state.checkpoints, state.best_step, state.target_tokens, state.files


def test_the_same_params_give_the_same_bytes_and_another_seed_others(tmp_path):
    first, second = (run(tmp_path, tmp_path / name) for name in ("a", "b"))
    assert outcome(first[0]) == outcome(second[0])
    assert first[1] != run(tmp_path, tmp_path / "c", seed=4)[1]


def page_faults_of_a_second_batch(folder: Path) -> int:
    """How many pages the kernel gives to a process with a Trainer for 160 MB that it has had and freed before."""
    tiny_trainer(folder)
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [torch.ones(5_000_000) for _ in range(8)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory as they like")
def test_a_batch_gets_the_memory_that_the_one_before_it_freed(tmp_path):
    with multiprocessing.get_context("spawn").Pool(1) as fresh:
        faults = fresh.apply(page_faults_of_a_second_batch, (tmp_path,))
    assert faults < 20_000  # of 39,063; a block that no hole is large enough for costs 4,883


def tensors_alive() -> int:
    """Tensors that Python knows of."""
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


@pytest.mark.parametrize("compute", [None, torch.bfloat16])
def test_an_update_leaves_no_tensor_behind(tmp_path, compute):
    trainer = tiny_trainer(tmp_path, sizes={"attention_dropout": 0.1, "activation_dropout": 0.1})
    trainer.model.compute = compute
    trainer.update(1)  # makes the moments of the weights
    gc.collect()
    gc.disable()  # what only the collector of cycles frees stays for hundreds of updates
    try:
        before = tensors_alive()
        trainer.update(2)
        assert tensors_alive() == before
    finally:
        gc.enable()


def test_no_library_that_plans_attention_for_each_shape_of_a_batch_is_taken(tmp_path):
    torch.backends.cuda.enable_cudnn_sdp(True)  # torch's first choice on a Hopper GPU
    tiny_trainer(tmp_path)
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_training_learns(tmp_path):
    state, _ = run(tmp_path, tmp_path / "w", max_steps=400, save_every=100, lr_factor=2.0)
    losses = [row["train_loss"] for row in state.curve]
    assert mean(losses[-50:]) < 0.8 * losses[0]  # two single rows say little: each is the mean of two updates


@pytest.mark.parametrize(
    ("stop_after", "optimiser"), [*((step, "adam") for step in (1, 2, 3, 4, 7, 8, 11)), (4, "muon"), (7, "muon")]
)
def test_stopped_after_any_update_and_started_again_it_ends_in_the_same_bytes(tmp_path, stop_after, optimiser):
    whole, digest = run(tmp_path, tmp_path / "straight", optimiser=optimiser)
    trained = []

    def wants_stop() -> bool:
        trained.append(1)
        return len(trained) == stop_after

    with pytest.raises(Interrupted, match=f"after update {stop_after}"):
        run(tmp_path, tmp_path / "stopped", wants_stop=wants_stop, optimiser=optimiser)
    resumed, again = run(tmp_path, tmp_path / "stopped", optimiser=optimiser)
    assert again == digest
    assert outcome(resumed) == outcome(whole)


# What a training of 12 updates does where it may die: file operations, of which half a file may remain, and work.
OPERATIONS = {"update": 12, "validate": 3, "write": 6, "replace": 10, "fsync": 20, "unlink": 12}


def dying_training(folder, work, operation, number):
    """Train, and die on the spot, without any clean-up, in the operation of that kind and number."""
    torch.set_num_threads(1)

    def deadly(kind, function, half=lambda *arguments: None):
        count = itertools.count(1)

        def wrapped(*arguments, **more):
            if kind == operation and next(count) == number:
                half(*arguments)
                os._exit(9)
            return function(*arguments, **more)

        return wrapped

    def half_a_file(tensors, path):
        save_file(tensors, path)
        os.truncate(path, path.stat().st_size // 2)

    os.replace, os.fsync, Path.unlink = (
        deadly(kind, function)
        for kind, function in (("replace", os.replace), ("fsync", os.fsync), ("unlink", Path.unlink))
    )
    checkpoint.save_file = deadly("write", save_file, half_a_file)
    loop.valid_loss = deadly("validate", loop.valid_loss)
    update = Trainer.update
    Trainer.update = deadly("update", update, half=update)  # the update is made, and nobody knows
    run(folder, work)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The sha256 of the weights that nobody disturbed."""
    folder = tmp_path_factory.mktemp("straight")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    digest = run(folder, folder / "w")[1]
    torch.set_num_threads(threads)
    return digest


def survives(folder, operation, number, digest) -> None:
    """Kill a training, start it again, and expect the very same end."""
    process = multiprocessing.get_context("spawn").Process(
        target=dying_training, args=(folder, folder / "w", operation, number)
    )
    process.start()
    process.join()
    assert process.exitcode == 9, f"there are fewer than {number} operations {operation}"
    state, again = run(folder, folder / "w")
    assert again == digest
    assert [row["step"] for row in state.curve] == [2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize(
    ("operation", "number"),
    [("update", 1), ("update", 12), ("validate", 2), ("write", 2), ("write", 5), ("replace", 3), ("fsync", 8),
     ("unlink", 7)],
)  # fmt: skip
def test_killed_at_work_or_while_writing_it_ends_in_the_same_bytes(tmp_path, straight, operation, number):
    survives(tmp_path, operation, number, straight)


@pytest.mark.full
@pytest.mark.parametrize(
    ("operation", "number"), [(kind, number) for kind, count in OPERATIONS.items() for number in range(1, count + 1)]
)
def test_killed_in_any_operation_it_ends_in_the_same_bytes(tmp_path, straight, operation, number):
    survives(tmp_path, operation, number, straight)


def test_a_full_disk_costs_the_state_being_written_and_nothing_else(tmp_path, straight, monkeypatch):
    count = itertools.count(1)

    def full(tensors, path):
        if next(count) == 5:  # weights and optimiser of two states are on the disk
            path.write_bytes(b"half a fi")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        save_file(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path, tmp_path / "w")
    assert not list((tmp_path / "w").glob("*.tmp"))
    state = CheckpointStore(tmp_path / "w", 2).newest(12)
    assert state is not None
    assert state.step == 8
    assert run(tmp_path, tmp_path / "w")[1] == straight


def test_no_row_of_the_curve_is_missing_and_none_comes_twice_after_a_resume(tmp_path):
    rows = []
    calls = iter([False] * 6 + [True])
    with pytest.raises(Interrupted):
        run(tmp_path, tmp_path / "w", on_rows=rows.extend, wants_stop=lambda: next(calls))
    resumed = []
    run(tmp_path, tmp_path / "w", on_rows=resumed.extend)
    assert [row["step"] for row in rows] == [2, 4, 6]
    assert [row["step"] for row in resumed] == [2, 4, 6, 8, 10, 12]
    assert resumed[:3] == rows


def test_longer_and_shorter_trainings_equal_fresh_ones(tmp_path):
    fresh = {steps: run(tmp_path, tmp_path / f"fresh{steps}", max_steps=steps) for steps in (8, 16)}
    for order in ((8, 16), (16, 8)):
        for steps in order:
            state, digest = run(tmp_path, tmp_path / f"order{order[0]}", max_steps=steps)
            assert digest == fresh[steps][1]
            assert outcome(state) == outcome(fresh[steps][0])


def test_a_much_shorter_training_after_a_long_one_keeps_its_own_states(tmp_path):
    fresh, digest = run(tmp_path, tmp_path / "fresh", max_steps=8)
    long, long_digest = run(tmp_path, tmp_path / "w", max_steps=40)
    calls = iter([False] * 4 + [True])
    with pytest.raises(Interrupted, match="after update 5"):
        run(tmp_path, tmp_path / "w", max_steps=8, wants_stop=lambda: next(calls))
    state = CheckpointStore(tmp_path / "w", 2).newest(8)
    assert state is not None
    assert state.step == 5
    short, again = run(tmp_path, tmp_path / "w", max_steps=8)
    assert again == digest
    assert outcome(short) == outcome(fresh)
    assert all((tmp_path / "w" / name).is_file() for name in short.files)
    assert run(tmp_path, tmp_path / "w", max_steps=40)[1] == long_digest
    assert long.end


def test_early_stopping_is_an_end_that_more_max_steps_do_not_move(tmp_path):
    worse = {"lr_factor": 1e-12}  # nothing is learned, so the first validation stays the best
    state, digest = run(tmp_path, tmp_path / "w", max_steps=40, patience=2, keep=3, **worse)
    assert state.stopped_early
    assert state.step < 40
    more, again = run(tmp_path, tmp_path / "w", max_steps=80, patience=2, keep=3, **worse)
    assert again == digest
    assert outcome(more) == outcome(state)


def test_checkpoints_can_be_ranked_and_training_ended_by_bleu(tmp_path, monkeypatch):
    scores = iter([10.0, 30.0, 20.0, 30.0, 5.0, 99.0])
    monkeypatch.setattr("transformer.training.loop.valid_bleu", lambda *arguments: next(scores))
    state, _ = run(tmp_path, tmp_path / "w", max_steps=40, keep=2, best_by="bleu", patience=3)
    assert state.stopped_early
    assert (state.step, state.best_step) == (20, 8)  # equal to the best is not better
    assert best_steps(state.checkpoints) == [8, 16, 20]
    assert [row["valid_bleu"] for row in state.curve if row["valid_loss"] is not None] == [10, 30, 20, 30, 5]
    assert state.summary()["best_valid_bleu"] == 30


def test_a_machine_without_bfloat16_trains_in_float32_instead(tmp_path, monkeypatch):
    plain = tiny_trainer(tmp_path)
    for has, compute in ((True, torch.bfloat16), (False, None)):
        monkeypatch.setattr("transformer.training.train_step.multiplies_bfloat16", lambda device, has=has: has)
        trainer = tiny_trainer(tmp_path, precision="bfloat16")
        assert trainer.model.compute is compute
    for one in (plain, trainer):
        one.update(1)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters, trainer.parameters, strict=True))


@pytest.mark.parametrize(
    ("has", "multiplies"),
    [
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),  # oneDNN imitates them, slowly
        ({"avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": True}, True),
        ({"bf16": True}, True),  # ARM
    ],
)
def test_bfloat16_is_for_processors_with_instructions_for_it(monkeypatch, has, multiplies):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert multiplies_bfloat16(torch.device("cpu")) is multiplies
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert not multiplies_bfloat16(torch.device("cpu"))


def test_valid_bleu_is_that_of_the_translations_and_leaves_training_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("transformer.training.train_step.multiplies_bfloat16", lambda device: True)
    trainer = tiny_trainer(tmp_path, precision="bfloat16")

    def score() -> float:
        return valid_bleu(trainer, words)

    def reversed_sources(models, sources, config):
        assert models[0].compute is None  # sums of log-probabilities in bfloat16 would be rough
        return [[Hypothesis(tuple(reversed(ids)), 0.0, 0.0)] for ids in sources]

    assert score() < 20
    monkeypatch.setattr("transformer.training.validation.translate_ids", reversed_sources)
    assert score() == pytest.approx(100)  # the targets of these pairs are their sources, reversed
    assert trainer.model.compute is torch.bfloat16


def test_the_moving_average_follows_its_formula(tmp_path):
    trainer = tiny_trainer(tmp_path, ema_decay=0.25)
    expected = {name: value.detach().double() for name, value in trainer.model.named_parameters()}
    for step in range(1, 6):
        trainer.update(step)
        share = min(0.25, (1 + step) / (10 + step))
        assert decay_at(step, 0.25) == share
        for name, value in trainer.model.named_parameters():
            expected[name] = share * expected[name] + (1 - share) * value.detach().double()
    for name, value in trainer.average.items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-7)
    assert not tiny_trainer(tmp_path, ema_decay=0.0).average


@pytest.mark.parametrize("victim", ["weights", "optimiser", "state"])
def test_a_harmed_newest_state_is_passed_over_for_the_one_before(tmp_path, capsys, victim):
    _, digest = run(tmp_path, tmp_path / "w")
    store = CheckpointStore(tmp_path / "w", 2)
    path = next((tmp_path / "w").glob(f"{victim}-00000012.*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    state = store.newest(12)
    assert state is not None
    assert state.step == 8
    assert "damaged" in capsys.readouterr().err
    assert run(tmp_path, tmp_path / "w")[1] == digest


def test_the_folder_holds_no_more_than_promised(tmp_path):
    state, _ = run(tmp_path, tmp_path / "w", max_steps=40, keep=3)
    assert {"32", "36", "40"} | set(map(str, best_steps(state.checkpoints)[:3])) == set(state.checkpoints)
    names = sorted(path.name for path in (tmp_path / "w").iterdir())
    assert sum(name.startswith("state") for name in names) == 2
    assert sum(name.startswith("optimiser") for name in names) == 2
    assert sum(name.startswith("weights") for name in names) <= 3 + 3 + 2  # last 3, best 3, those of the older state


def test_a_loss_that_is_no_number_stops_with_advice_and_saves_nothing(tmp_path):
    with pytest.raises(Diverged, match=r"Update 2: the loss .* train lines (\d+, )+.*Lower lr_factor"):
        run(tmp_path, tmp_path / "w", lr_factor=float("inf"))
    assert not list((tmp_path / "w").glob("state*"))
    told = json.loads((tmp_path / "w/diverged.json").read_text())
    assert told["update"] == 2
    assert told["train_lines"] == sorted(told["train_lines"])
    trainer = tiny_trainer(tmp_path)
    assert told["train_lines"] == sorted((trainer.batches[2] + 1).tolist())


def test_gradient_accumulation_does_not_change_the_loss(tmp_path):
    losses = []
    for device_tokens in (16, 48, 120):
        trainer = tiny_trainer(tmp_path, device_tokens=device_tokens, precision="float64", sizes=NO_DROPOUT)
        losses.append([float(trainer.update(step).loss) for step in range(1, 9)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert losses[0] == pytest.approx(losses[2], rel=1e-9)


def test_validation_is_the_mean_over_tokens_whatever_the_batches(tmp_path):
    values = [valid_loss(tiny_trainer(tmp_path, device_tokens=tokens)) for tokens in (12, 30, 1000)]
    assert values == pytest.approx([values[0]] * 3, rel=1e-6)


def losses_of_rank(rank, size, port, folder, precision, updates, optimiser, queue):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    with world() as here:
        trainer = tiny_trainer(folder / f"rank{rank}of{size}", world=here, precision=precision, warmup=400,
                               optimiser=optimiser)  # fmt: skip
        losses = [float(trainer.update(step).loss) for step in range(1, updates + 1)]
        valid = valid_loss(trainer), valid_bleu(trainer, words)
        trainer.update(updates + 1, stop=rank == size - 1)
        stop = trainer.update(updates + 2).stop
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    if rank == 0:
        queue.put((losses, valid, stop, threads))


def losses_of_world(size, folder, precision="float64", updates=100, optimiser="adam"):
    """Losses of updates on `size` processes, the validation loss after them, a stop wished by the last rank, and the
    names of the threads that are left behind."""
    spawn = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = spawn.Queue()
    task = (port, folder, precision, updates, optimiser, queue)
    ranks = [spawn.Process(target=losses_of_rank, args=(rank, size, *task)) for rank in range(size)]
    for process in ranks:
        process.start()
    result = queue.get(timeout=120)
    for process in ranks:
        process.join()
    return result


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return losses_of_world(1, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("size", [2, 4])
def test_any_number_of_processes_gives_the_same_losses(tmp_path, alone, size):
    losses, valid, stop, threads = losses_of_world(size, tmp_path)
    assert losses == pytest.approx(alone[0], rel=1e-6)
    assert valid == pytest.approx(alone[1], rel=1e-6)
    assert stop  # the wish of one is known to all
    assert not [name for name in threads if "gloo" in name]  # Python, when it ends, may abort one that lives on


def test_any_number_of_processes_gives_the_same_losses_with_muon(tmp_path):
    one, two = (losses_of_world(size, tmp_path / str(size), optimiser="muon") for size in (1, 2))
    assert two[0] == pytest.approx(one[0], rel=1e-6)


def test_the_mean_of_weights_is_their_mean(tmp_path):
    state, _ = run(tmp_path, tmp_path / "w", keep=2)
    store = CheckpointStore(tmp_path / "w", 2)
    paths = [store.weights(int(step)) for step in sorted(state.checkpoints, key=int)]
    mean = mean_weights(paths)
    for name, value in mean.items():
        expected = torch.stack([load_file(path)[name].double() for path in paths]).mean(0)
        torch.testing.assert_close(value, expected.float())
    with pytest.raises(ValueError, match="no checkpoint"):
        mean_weights([])


def test_states_hold_only_tensors_and_json(tmp_path):
    run(tmp_path, tmp_path / "w")
    for path in (tmp_path / "w").iterdir():
        assert path.suffix in (".json", ".safetensors")
        if path.suffix == ".json":
            assert json.loads(path.read_text())["format"] == 1


def test_one_process_needs_no_network():
    assert World().sum(torch.tensor(2.0)) == 2
    assert World().from_leader("x") == "x"
