"""The code that is different on a GPU, tested on a simulated GPU. No test here computes on a real one."""

import copy
import itertools

import pytest
import torch
from support.pretended import CPU, GPU, pretended_gpu
from support.tiny import NO_DROPOUT, make_ends_likely, tiny_model, tiny_trainer
from support.trainings import valid_text

from transformer.decoding.attention_maps import attention_maps
from transformer.decoding.beam_search import translate_ids
from transformer.decoding.config import SamplingConfig, SearchConfig
from transformer.decoding.forced_decoding import score_ids
from transformer.decoding.sampling import sample_ids
from transformer.training import train_step as trainer
from transformer.training.checkpoints import CheckpointStore
from transformer.training.distributed import World
from transformer.training.loop import Observers, train

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(torch.cuda.is_available(), reason="the simulation is for machines without a GPU"),
]
SOURCES = [[(7 * row + place) % 19 + 4 for place in range(row % 9)] for row in range(12)]


@pytest.fixture
def waits(monkeypatch):
    with pretended_gpu(monkeypatch) as waits:
        yield waits


def random_model(seed: int, **changes):
    """A random model in float64 whose probabilities are far from even, so that beams compete."""
    model = tiny_model(**changes).double()
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    make_ends_likely(model, pull=seed)
    return model


def trained(folder, work, device, on_update=lambda step, update: None, **update):
    """Train the tiny model on a device; returns its curve."""
    own = tiny_trainer(folder, World(device=device), **update)
    observers = Observers(on_rows=lambda rows: None, on_update=on_update)
    return train(own, CheckpointStore(work), valid_text(own), observers).curve


def test_a_simulated_gpu_raises_the_errors_of_cuda(waits):
    here = torch.ones(3)
    there = here.to(GPU)
    with pytest.raises(RuntimeError, match="two devices"):
        there + here
    with pytest.raises(TypeError):
        there.numpy()
    assert not waits.total()
    assert (there + there.to(GPU)).sum().item() == 6
    assert there.device == GPU
    assert there.cpu().tolist() == [1, 1, 1]
    assert waits.total() == 2  # item, cpu


@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_a_gpu_trains_and_resumes_like_a_cpu(tmp_path, waits, optimiser):
    settings = {"precision": "float64", "optimiser": optimiser, "sizes": NO_DROPOUT, "best_by": "bleu"}
    settings |= {"max_steps": 4, "save_every": 2}
    on_cpu = trained(tmp_path, tmp_path / "cpu", CPU, **settings)
    trained(tmp_path, tmp_path / "gpu", GPU, **{**settings, "max_steps": 2})
    on_gpu = trained(tmp_path, tmp_path / "gpu", GPU, **settings)
    numbers = [[[value for value in row.values() if value is not None] for row in curve] for curve in (on_cpu, on_gpu)]
    assert numbers[1] == [pytest.approx(row, rel=1e-9) for row in numbers[0]]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_training_waits_for_a_gpu_only_at_rows_of_a_curve(tmp_path, waits, monkeypatch, precision):
    monkeypatch.setattr(trainer, "multiplies_bfloat16", lambda device: True)
    seen = [0]
    trained(
        tmp_path,
        tmp_path / "w",
        GPU,
        lambda step, update: seen.append(waits.total()),
        precision=precision,
        log_every=2,
        save_every=6,
        max_steps=6,
    )
    grown = [step for step, (before, after) in enumerate(itertools.pairwise(seen), 1) if after > before]
    assert grown == [2, 4, 6]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_a_gpu_translates_samples_and_scores_like_a_cpu(waits, positions):
    models = [random_model(seed, positions=positions, max_positions=5) for seed in (1, 2)]
    there = [copy.deepcopy(model).to(GPU) for model in models]
    for some, beam_size in ((slice(1), 1), (slice(2), 3)):
        config = SearchConfig(beam_size, extra_length=6)
        searched = [translate_ids(these[some], SOURCES, config, batch_tokens=80) for these in (models, there)]
        drawn = [sample_ids(these[some], SOURCES, SamplingConfig(samples=2, top_p=0.9)) for these in (models, there)]
        for on_cpu, on_gpu in (searched, drawn):
            assert [[h.ids for h in line] for line in on_gpu] == [[h.ids for h in line] for line in on_cpu]
        targets = [list(line[0].ids) for line in drawn[0]]
        scores = [score_ids(these[some], SOURCES, targets) for these in (models, there)]
        assert scores[1] == [pytest.approx(line) for line in scores[0]]
    maps = [attention_maps(these[0], SOURCES[8], targets[8]) for these in (models, there)]
    assert torch.allclose(maps[0].cross, maps[1].cross)


def test_a_search_waits_for_a_gpu_at_every_eighth_subword(waits):
    model = tiny_model().to(GPU)
    waits.clear()
    longest = 40 - len(SOURCES[8])  # no hypothesis ends before the limit
    translate_ids([model], [SOURCES[8]], SearchConfig(beam_size=3, extra_length=longest))
    assert waits["aten::nonzero"] == 40 // 8 + 1  # and once for the hypotheses that continue when others have ended
