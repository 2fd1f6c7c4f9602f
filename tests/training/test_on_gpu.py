"""Training and decoding on a real CUDA device. `make gpu-check` runs these tests; without a device they are skipped."""

from __future__ import annotations

import pytest
import torch
from decoding.test_search import model64
from support.tiny import NO_DROPOUT, tiny_trainer

from transformer.decoding.attention_maps import attention_maps
from transformer.decoding.beam_search import translate_ids
from transformer.decoding.config import SearchConfig
from transformer.decoding.forced_decoding import score_ids
from transformer.training.checkpoints import CheckpointStore
from transformer.training.distributed import World
from transformer.training.loop import Observers, train
from transformer.training.validation import ValidText, valid_bleu, valid_loss

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")]
GPU, CPU = torch.device("cuda"), torch.device("cpu")
SOURCES = [[(7 * row + place) % 19 + 4 for place in range(row % 9)] for row in range(12)]


def validated_losses(folder, device, updates=20, **settings) -> list[float]:
    """The losses of some updates of the tiny model, and the loss and BLEU of a validation after them."""
    trainer = tiny_trainer(folder, World(device=device), **settings)
    losses = [float(trainer.update(step).loss) for step in range(1, updates + 1)]
    return [*losses, valid_loss(trainer), valid_bleu(trainer, ValidText.build_from_ids(trainer.valid_pairs))]


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-3), ("bfloat16", 5e-2)])
@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_a_gpu_computes_the_losses_of_a_cpu(tmp_path, precision, tolerance, optimiser):
    settings = {"optimiser": optimiser, "sizes": NO_DROPOUT}
    on_cpu = validated_losses(tmp_path, CPU, precision="float64", **settings)
    on_gpu = validated_losses(tmp_path, GPU, precision=precision, **settings)
    assert on_gpu[:-1] == pytest.approx(on_cpu[:-1], rel=tolerance)  # BLEU jumps where two subwords are nearly tied


def test_a_deterministic_training_resumes_to_the_same_bits(tmp_path):
    torch.use_deterministic_algorithms(True)
    try:
        ends = []
        for work, lengths in (("straight", [12]), ("resumed", [4, 8, 12])):
            for steps in lengths:
                trainer = tiny_trainer(tmp_path, World(device=GPU), max_steps=steps)
                observers = Observers(on_rows=lambda rows: None)
                state = train(trainer, CheckpointStore(tmp_path / work), observers=observers)
            ends.append((state.curve, state.files))
        assert ends[0] == ends[1]
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_gpu_finds_translations_scores_and_attention_of_a_cpu(beam_size):
    model = model64(1)
    config = SearchConfig(beam_size, extra_length=6)
    translations, scores, maps = [], [], []
    for device in (CPU, GPU):
        model.to(device)
        translations.append([[h.ids for h in line] for line in translate_ids([model], SOURCES, config)])
        scores.append(score_ids([model], SOURCES, SOURCES))
        maps.append(attention_maps(model, SOURCES[8], SOURCES[7]).cross.cpu())
    assert translations[0] == translations[1]
    assert scores[1] == [pytest.approx(line, rel=1e-9) for line in scores[0]]
    torch.testing.assert_close(maps[1], maps[0])
