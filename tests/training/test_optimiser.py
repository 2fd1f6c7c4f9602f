"""What an optimiser does to each kind of weight."""

import pytest
import torch
from support.tiny import tiny_trainer

from transformer.training.optimiser import MATRIX_RATE, Muon

RATE = 0.01  # of the first update, whose steps do not depend on the size of its gradient


def first_steps(folder, optimiser) -> dict:
    """What the first update adds to each weight, in multiples of the learning rate."""
    trainer = tiny_trainer(folder, optimiser=optimiser, precision="float64")
    trainer.rate = lambda step: RATE
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    trainer.update(1)
    return {name: (weight.detach() - before[name]) / RATE for name, weight in trainer.model.named_parameters()}


def test_muon_steps_alike_in_all_directions_of_a_layers_matrices_and_like_adam_elsewhere(tmp_path):
    muon, adam = (first_steps(tmp_path, optimiser) for optimiser in ("muon", "adam"))
    layers = [name for name in muon if muon[name].ndim == 2 and name.startswith(("encoder.", "decoder."))]
    assert len(layers) == 2 * 4 + 2 * 6
    for name in layers:
        singular = torch.linalg.svdvals(muon[name]) / (MATRIX_RATE * 0.2 * max(muon[name].shape) ** 0.5)
        assert float(singular.median()) > 0.6
        assert float(singular.max()) < 1.3
    for name in muon.keys() - set(layers):
        assert torch.equal(muon[name], adam[name])


@pytest.mark.parametrize("together", [1, 2**24])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_muon_makes_the_steps_of_torchs(monkeypatch, precision, together):
    monkeypatch.setattr("transformer.training.optimiser.TOGETHER", together)
    shapes = [(24, 8), (8, 8), (8, 24), (24, 8)]
    ours, theirs = ([torch.zeros(shape) for shape in shapes] for _ in range(2))
    muon = Muon(ours, precision)
    peer = torch.optim.Muon(theirs, lr=RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for group in muon.param_groups:
        group["lr"] = RATE
    random = torch.Generator().manual_seed(1)
    for _ in range(3):
        for matrix, other in zip(ours, theirs, strict=True):
            matrix.grad = other.grad = torch.randn(matrix.shape, generator=random)
        before = [matrix.clone() for matrix in (*ours, *theirs)]
        muon.step()
        peer.step()
        steps = [matrix - old for matrix, old in zip((*ours, *theirs), before, strict=True)]
        for step, other in zip(steps[: len(ours)], steps[len(ours) :], strict=True):
            assert float((step - other).norm() / other.norm()) < 0.03  # bfloat16 keeps 8 bits of each number


def test_adam_steps_by_the_learning_rate(tmp_path):
    for name, step in first_steps(tmp_path, "adam").items():
        moved = step[step != 0].abs()  # a key's bias has no gradient but rounding
        if len(moved) and not name.endswith("project.bias"):
            assert float(moved.median()) == pytest.approx(1.0, rel=1e-3)
