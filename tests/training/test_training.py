"""The result of a training depends on params and data only, and its loss, scores and averages are correct."""

import gc
import json
import math
from statistics import mean

import numpy as np
import pytest
import torch
from support.tiny import NO_DROPOUT, target_of, tiny_trainer
from support.trainings import train_tiny

from transformer.decoding.beam_search import Hypothesis
from transformer.decoding.likelihood import target_log_probabilities
from transformer.evaluation.bleu import bleu
from transformer.model.averaging import mean_weights
from transformer.model.config import TransformerConfig
from transformer.model.cpu import multiplies_bfloat16
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import UNK
from transformer.training import distributed
from transformer.training.checkpoints import CheckpointStore, best_steps, load_file
from transformer.training.distributed import prepare_process
from transformer.training.loop import Diverged, train
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.replay import score
from transformer.training.train_step import Trainer, predictions
from transformer.training.validation import ValidText, valid_bleu, valid_loss


def test_an_id_beyond_the_vocabulary_is_refused():
    pairs = Pairs.pack([([4, 5], [6, 7])])
    model = Transformer(TransformerConfig(7, d_model=8, d_ff=8, heads=2, layers=1))
    with pytest.raises(ValueError, match=r"valid has the id 7, the model a vocabulary of 7\. Build .*\(8\)"):
        Trainer(model, Pairs.pack([([4], [4])]), pairs)


def tensors_alive() -> int:
    """The number of tensors that exist in Python."""
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


@pytest.mark.parametrize("compute", [None, torch.bfloat16])
def test_an_update_frees_all_its_tensors(tmp_path, compute):
    trainer = tiny_trainer(tmp_path, sizes={"attention_dropout": 0.1, "activation_dropout": 0.1})
    trainer.model.compute = compute
    trainer.update(1)  # makes the moments of the weights
    gc.collect()
    gc.disable()  # tensors in reference cycles would stay for hundreds of updates
    try:
        before = tensors_alive()
        trainer.update(2)
        assert tensors_alive() == before
    finally:
        gc.enable()


def test_only_prepare_process_changes_settings_of_the_process(tmp_path, monkeypatch):
    torch.backends.cuda.enable_cudnn_sdp(True)  # torch's first choice on a Hopper GPU; it plans each new shape
    monkeypatch.setattr(distributed, "keep_freed_memory", lambda: None)
    settings = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), torch.get_default_dtype()
    tiny_trainer(tmp_path, deterministic=True).update(1)
    assert torch.backends.cuda.cudnn_sdp_enabled()
    assert settings == (
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
    )
    prepare_process()
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    ("optimiser", "updates", "lr_factor"), [("muon", 40, 1.0), pytest.param("adam", 400, 2.0, marks=pytest.mark.full)]
)
def test_training_reduces_the_loss(tmp_path, optimiser, updates, lr_factor):
    state, _ = train_tiny(
        tmp_path, tmp_path / "w", max_steps=updates, save_every=updates, lr_factor=lr_factor, optimiser=optimiser
    )
    losses = [row["train_loss"] for row in state.curve]
    assert losses[1] == pytest.approx(sum(state.losses[2:4]) / sum(state.tokens[2:4]))  # log_every is 2
    assert mean(losses[-10:]) < 0.8 * losses[0]  # a single row is noisy: the mean of two updates


def test_bleu_can_rank_checkpoints_and_stop_a_training_early(tmp_path, monkeypatch):
    scores = iter([10.0, 30.0, 20.0, 30.0, 5.0, 99.0])
    monkeypatch.setattr("transformer.training.loop.valid_bleu", lambda *arguments: next(scores))
    state, _ = train_tiny(tmp_path, tmp_path / "w", max_steps=40, keep=2, best_by="bleu", patience=3)
    assert state.stopped_early
    assert (state.step, state.best_step) == (20, 8)  # an equal score is not a new best
    assert best_steps(state.checkpoints) == [8, 16, 20]
    assert [row["valid_bleu"] for row in state.curve if row["valid_loss"] is not None] == [10, 30, 20, 30, 5]
    assert state.summary()["best_valid_bleu"] == 30


def test_a_machine_without_bfloat16_trains_in_float32(tmp_path, monkeypatch):
    plain = tiny_trainer(tmp_path)
    for capable, compute in ((True, torch.bfloat16), (False, None)):
        monkeypatch.setattr(
            "transformer.training.train_step.multiplies_bfloat16", lambda device, capable=capable: capable
        )
        trainer = tiny_trainer(tmp_path, precision="bfloat16")
        assert trainer.model.compute is compute
    for other in (plain, trainer):
        other.update(1)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters, trainer.parameters, strict=True))


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),  # oneDNN emulates bfloat16, slowly
        ({"avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": True}, True),
        ({"bf16": True}, True),  # ARM
    ],
)
def test_bfloat16_is_used_on_processors_with_instructions_for_it(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert multiplies_bfloat16(torch.device("cpu")) is expected
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert not multiplies_bfloat16(torch.device("cpu"))


def test_valid_bleu_is_exact_and_restores_the_models_precision(tmp_path, monkeypatch):
    monkeypatch.setattr("transformer.training.train_step.multiplies_bfloat16", lambda device: True)
    trainer = tiny_trainer(tmp_path, precision="bfloat16")

    def score() -> float:
        return valid_bleu(trainer, ValidText.build_from_ids(trainer.valid_pairs))

    def targets(models, sources, config, before_step):
        assert models[0].compute is None  # sums of log-probabilities in bfloat16 would be imprecise
        return [[Hypothesis(tuple(target_of(ids)), 0.0, 0.0)] for ids in sources]

    assert score() < 20
    monkeypatch.setattr("transformer.training.validation.translate_ids", targets)
    assert score() == pytest.approx(100)
    assert trainer.model.compute is torch.bfloat16


def test_bleu_on_valid_is_that_of_the_real_references(tmp_path, monkeypatch):
    """An unknown subword in a reference is its own text, so a translation cannot score by <unk>."""
    trainer = tiny_trainer(tmp_path)
    references = ["a man in the park runs"] * len(trainer.valid_pairs)
    translations = [[Hypothesis((UNK, UNK, UNK), 0.0, 0.0)]] * len(references)
    monkeypatch.setattr("transformer.training.validation.translate_ids", lambda *models, **options: translations)
    valid = ValidText(lambda ids: "a man " + "<unk> " * len(list(ids)) + "runs", references, references, "en")
    assert valid_bleu(trainer, valid) == bleu(["a man <unk> <unk> <unk> runs"] * len(references), references, "en") < 20


def test_bleu_on_valid_counts_chinese_characters(tmp_path, monkeypatch):
    trainer = tiny_trainer(tmp_path)
    references = ["一只狗在公园里跑。"] * len(trainer.valid_pairs)
    valid = ValidText(lambda ids: "一只狗在草地上跑。", references, references, "zh")
    assert 10 < valid_bleu(trainer, valid) < 90


def test_a_loss_that_is_not_finite_ends_a_training_with_advice(tmp_path):
    with pytest.raises(Diverged, match=r"Update 2: .* \(train lines (\d+, )+\d+.*\)\. This update was not saved\."):
        train_tiny(tmp_path, tmp_path / "w", lr_factor=1e300)
    assert not list((tmp_path / "w").glob("state*"))
    diverged = json.loads((tmp_path / "w/diverged.json").read_text())
    assert diverged["update"] == 2
    assert diverged["train_lines"] == sorted(diverged["train_lines"])
    trainer = tiny_trainer(tmp_path)
    assert diverged["train_lines"] == sorted((trainer.batches[2] + 1).tolist())


def test_an_update_descends_the_mean_loss_of_its_target_tokens(tmp_path):
    trainer = tiny_trainer(tmp_path, precision="float64", clip_norm=0.1, sizes=NO_DROPOUT)
    batch = trainer.batch(trainer.train_pairs, trainer.batches[1])
    loss = smoothed_cross_entropy(*predictions(trainer.model, batch), 0.1)
    (loss / len(batch.targets)).backward()
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in trainer.parameters if weight.grad is not None])
    update = trainer.update(1)
    assert (float(update.loss), update.tokens) == (pytest.approx(loss.item()), len(batch.targets))
    assert float(update.gradient_norm) == pytest.approx(float(norm))
    clipped = torch.nn.utils.get_total_norm([weight.grad for weight in trainer.parameters if weight.grad is not None])
    assert float(clipped) == pytest.approx(0.1, rel=1e-4)


def test_each_micro_batch_draws_its_own_dropout(tmp_path):
    trainer, rows = tiny_trainer(tmp_path), np.arange(5)
    trainer.model.train()
    losses = [trainer._loss(step, number, rows).item() for step, number in ((1, 0), (1, 1), (2, 0), (1, 0))]
    assert losses[0] == losses[3]
    assert len(set(losses)) == 3
    other = tiny_trainer(tmp_path, seed=4)
    other.model.train()
    assert other._loss(1, 0, rows).item() != losses[0]


def test_the_validation_loss_is_the_mean_of_all_target_tokens(tmp_path):
    trainer = tiny_trainer(tmp_path)
    model, pairs = trainer.model.eval(), trainer.valid_pairs
    batches = [trainer.batch(pairs, np.array([row])) for row in range(len(pairs))]
    losses = torch.cat([-target_log_probabilities(*predictions(model, batch)) for batch in batches])
    values = [valid_loss(tiny_trainer(tmp_path, device_tokens=tokens)) for tokens in (12, 30, 1000)]
    assert values == pytest.approx([float(losses.mean())] * 3, rel=1e-6)


def test_the_mean_of_weights_is_their_mean(tmp_path):
    state, _ = train_tiny(tmp_path, tmp_path / "w", keep=3)
    store = CheckpointStore(tmp_path / "w")
    paths = [store.weights(int(step)) for step in sorted(state.checkpoints, key=int)]
    mean = mean_weights(paths)
    for name, value in mean.items():
        expected = torch.stack([load_file(path)[name].double() for path in paths]).mean(0)
        assert torch.equal(value, expected.float())
    with pytest.raises(ValueError, match="no checkpoint"):
        mean_weights([])


def test_a_gradient_that_is_not_finite_stops_the_training(tmp_path, monkeypatch):
    trainer = tiny_trainer(tmp_path)
    update = trainer.update
    monkeypatch.setattr(trainer, "update", lambda *w: update(*w)._replace(gradient_norm=torch.tensor(math.inf)))
    with pytest.raises(Diverged, match="Update 1: the loss or its gradient"):
        train(trainer, CheckpointStore(tmp_path / "w"))


def test_a_bleu_of_one_percent_is_a_score():
    assert score({"loss": 9.0, "bleu": 1.0}, "bleu") == [-1.0]
    assert score({"loss": 9.0, "bleu": 0.99}, "bleu") == [0.0, 9.0]
