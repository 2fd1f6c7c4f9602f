"""The steps of the optimisers for each kind of weight."""

import pytest
import torch
from support.tiny import tiny_trainer

from transformer.training.config import TrainConfig
from transformer.training.optimiser import Adam, Muon

RATE = 0.01  # steps of the first update do not depend on the size of its gradient


def first_steps(folder, **update) -> dict:
    """The change of each weight by the first update, divided by the learning rate."""
    trainer = tiny_trainer(folder, precision="float64", **update)
    trainer.rate = lambda step: RATE
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    trainer.update(1)
    return {name: (weight.detach() - before[name]) / RATE for name, weight in trainer.model.named_parameters()}


@pytest.mark.parametrize(("muon_factor", "key_size"), [(1.0, 0), (2.0, 0), (2.0, 3), (2.0, 12)])
def test_muons_steps_are_orthogonal_for_each_projection(tmp_path, muon_factor, key_size):
    muon = first_steps(tmp_path, optimiser="muon", muon_factor=muon_factor, sizes={"key_size": key_size})
    adam = first_steps(tmp_path, optimiser="adam", sizes={"key_size": key_size})
    layers = [name for name in muon if muon[name].ndim == 2 and name.startswith(("encoder.", "decoder."))]
    assert len(layers) == 2 * 4 + 2 * 6
    keys = 2 * (key_size or 8)
    for name in layers:
        parts = (keys, keys, 16) if name.endswith("project.weight") else (len(muon[name]),)  # queries, keys, values
        for projection in muon[name].split(parts):
            singular = torch.linalg.svdvals(projection) / (muon_factor * 0.2 * max(projection.shape) ** 0.5)
            assert float(singular.median()) > 0.6, name
            assert float(singular.max()) < 1.3, name
    for name in muon.keys() - set(layers):
        assert torch.equal(muon[name], adam[name])


@pytest.mark.parametrize("numbers_at_once", [1, 2**24])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_muons_steps_equal_those_of_torchs_muon(monkeypatch, precision, numbers_at_once):
    monkeypatch.setattr("transformer.training.optimiser.NUMBERS_AT_ONCE", numbers_at_once)
    shapes = [(24, 8), (8, 8), (8, 24), (24, 8), (14, 8)]
    ours, theirs = ([torch.zeros(shape) for shape in shapes] for _ in range(2))
    parts = [(8, 8, 8), (8,), (8,), (8, 8, 8), (3, 3, 8)]
    muon = Muon(list(zip(ours, parts, strict=True)), precision)
    views = [view for matrix, count in zip(theirs, parts, strict=True) for view in matrix.split(count)]
    peer = torch.optim.Muon(views, lr=RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    random = torch.Generator().manual_seed(1)
    for _ in range(3):
        for matrix, other in zip(ours, theirs, strict=True):
            matrix.grad = other.grad = torch.randn(matrix.shape, generator=random)
        gradients = [part for other, count in zip(theirs, parts, strict=True) for part in other.grad.split(count)]
        for view, gradient in zip(views, gradients, strict=True):
            view.grad = gradient.clone()
        before = [matrix.clone() for matrix in (*ours, *theirs)]
        muon.step(RATE)
        peer.step()
        steps = [matrix - old for matrix, old in zip((*ours, *theirs), before, strict=True)]
        for step, other in zip(steps[: len(ours)], steps[len(ours) :], strict=True):
            assert float((step - other).norm() / other.norm()) < 0.03  # bfloat16 has 8 significant bits


def test_adams_steps_are_those_of_torchs_adam():
    config = TrainConfig(adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-7)
    ours, theirs = ([torch.ones(shape) for shape in ((5, 3), (7,), (2, 4))] for _ in range(2))
    adam = Adam(ours, config)
    peer = torch.optim.Adam(theirs, lr=RATE, betas=(0.8, 0.95), eps=1e-7, fused=True)
    for _ in range(3):
        for weight, other in zip(ours, theirs, strict=True):
            weight.grad = other.grad = torch.randn(weight.shape)
        adam.step(RATE)
        peer.step()
        assert all(map(torch.equal, ours, theirs))
