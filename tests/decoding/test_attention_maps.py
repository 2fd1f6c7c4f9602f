"""An attention map is the attention that the model computes with, and its axes are the subwords that label them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import SIZES, UPDATE, model_folder, tiny_model

from transformer.decoding.attention_maps import attention_maps
from transformer.inference.translator import Translator
from transformer.model import cpu
from transformer.model.cpu import split_heads
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import BOS, EOS, UNK
from transformer.training.config import TrainConfig
from transformer.training.distributed import World
from transformer.training.train_step import Trainer

SOURCE, TARGET = [7, 5, 19, 11], [5, 9, 11]


def recomputed(model: Transformer, source: list[int], target: list[int]) -> dict[str, list[torch.Tensor]]:
    """The weights of each layer by equation 1, from what a forward hook sees each attention called with."""
    called: dict[str, list] = {"encoder": [], "decoder": [], "cross": []}
    places = [("encoder", layer.attention) for layer in model.encoder]
    places += [("decoder", layer.attention) for layer in model.decoder]
    places += [("cross", layer.cross) for layer in model.decoder]
    handles = [
        part.register_forward_hook(
            lambda part, given, named, out, kind=kind: called[kind].append((part, given[0], [*given, None][1])),
            with_kwargs=True,
        )
        for kind, part in places
    ]
    model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
    for handle in handles:
        handle.remove()

    def weights(kind: str, part, x: torch.Tensor, memory: torch.Tensor | None) -> torch.Tensor:
        width = part.heads * (model.config.key_size or x.shape[-1] // part.heads)
        matrix, shift = part.project.weight, part.project.bias
        queries = x @ matrix[:width].T + shift[:width]
        keys = (x if memory is None else memory) @ matrix[width : 2 * width].T + shift[width : 2 * width]
        queries, keys = (split_heads(one, [width], part.heads)[0][0] for one in (queries, keys))  # (H, T, K)
        scores = torch.einsum("htk,hsk->hts", queries, keys) / math.sqrt(width // part.heads)
        if kind == "decoder":
            later = torch.ones(scores.shape[-2:]).triu(1).bool()
            scores = scores.masked_fill(later, -math.inf)
        return scores.exp() / scores.exp().sum(-1, keepdim=True)

    return {kind: [weights(kind, *call) for call in calls] for kind, calls in called.items()}


@torch.no_grad()
@pytest.mark.parametrize("sizes", [{}, {"norm": "post"}, {"key_size": 3, "encoder_layers": 3, "decoder_layers": 1}])
@pytest.mark.parametrize("fused_above", [64, 0])
def test_a_map_equals_the_weights_recomputed_from_what_a_forward_hook_sees(sizes, fused_above, monkeypatch):
    monkeypatch.setattr(cpu, "FUSED_ABOVE", fused_above)  # 0: torch's fused attention, which has no map
    model = tiny_model(**sizes).double()
    maps, wanted = attention_maps(model, SOURCE, TARGET), recomputed(model, SOURCE, TARGET)
    for kind, layers in wanted.items():
        torch.testing.assert_close(getattr(maps, kind), torch.stack(layers), rtol=1e-12, atol=1e-14)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_output_of_an_attention_follows_from_its_map_and_its_values(norm):
    model, seen = tiny_model(norm=norm).double(), {}
    attention = model.decoder[-1].cross
    handle = attention.register_forward_hook(lambda module, given, out: seen.update(memory=given[1], out=out))
    maps = attention_maps(model, SOURCE, TARGET)
    handle.remove()
    values = attention.keys_values(seen["memory"])[1]  # (1, H, S, D/H)
    mixed = (maps.cross[-1][None] @ values).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attention.output(mixed), seen["out"], rtol=1e-12, atol=1e-14)


@given(st.lists(st.integers(4, 22), max_size=9), st.lists(st.integers(4, 22), max_size=9))
@settings(deadline=None, max_examples=20)
def test_each_row_sums_to_1_and_no_target_attends_to_a_later_one(source, target):
    maps = attention_maps(tiny_model().double(), source, target)
    assert maps.cross.shape == (2, 2, len(target) + 1, len(source) + 1)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        assert weights.sum(-1).allclose(torch.ones((), dtype=torch.float64), rtol=1e-12)
    assert not maps.decoder.triu(1).any()


def test_maps_are_those_of_inference_where_the_model_has_dropout():
    model = tiny_model(dropout=0.5, attention_dropout=0.5, activation_dropout=0.5)
    first, second = (attention_maps(model, SOURCE, TARGET) for _ in range(2))
    assert torch.equal(first.cross, second.cross)
    assert torch.equal(first.cross, attention_maps(tiny_model(), SOURCE, TARGET).cross)


@pytest.mark.parametrize("place", range(4))
def test_masking_a_source_subword_empties_its_column_and_changes_the_others(place):
    model = tiny_model().double()
    masked = [0 if position == place else number for position, number in enumerate(SOURCE)]  # 0: <pad>
    maps, whole = attention_maps(model, masked, TARGET), attention_maps(model, SOURCE, TARGET)
    for weights, before in ((maps.encoder, whole.encoder), (maps.cross, whole.cross)):
        assert not weights[..., place].any()
        assert before[..., place].all()
        assert weights.sum(-1).allclose(torch.ones((), dtype=torch.float64))


def test_labels_have_the_lengths_of_the_axes_and_end_in_the_end(tmp_path):
    translator = Translator.load(model_folder(tmp_path / "model"))
    for source, target in (("Ein Hund rennt im Gras .", "Zwei Männer spielen"), ("", "Ein"), ("Ein", ""), ("", "")):
        maps, rows, columns = translator.attention(source, target)
        assert maps.encoder.shape[2:] == (len(rows), len(rows))
        assert maps.decoder.shape[2:] == (len(columns), len(columns))
        assert maps.cross.shape[2:] == (len(columns), len(rows))
        assert (rows[-1], columns[-1]) == ("</s>", "</s>")


def test_the_map_of_a_translation_with_an_unknown_subword_is_that_of_the_ids_that_spell_it(tmp_path):
    translator = Translator.load(model_folder(tmp_path / "model"))
    vocabulary = translator.vocabulary
    for ids in (vocabulary.ids(["▁Ein", "<unk>", "▁Hun", "d", "<unk>", "d"]), [UNK, UNK], [UNK]):
        maps, source, target = translator.attention("<unk> Hund", vocabulary.text(ids))
        assert ids.count(UNK) == target.count("▁<unk>")
        assert vocabulary.ids(target[:-1]) == ids
        assert "▁<unk>" not in source  # in a source it is text
        assert torch.equal(
            maps.cross, attention_maps(translator.engine.models[0], vocabulary.ids(source[:-1]), ids).cross
        )


def test_the_map_of_the_decoder_over_the_source_of_a_model_that_copies_is_the_diagonal(tmp_path):
    chance, vocabulary = np.random.default_rng(0), SIZES["vocabulary"]
    lines = [chance.integers(4, vocabulary, chance.integers(4, 11)).tolist() for _ in range(3000)]
    Pairs.save_rows(tmp_path, "train", ((line, line, number) for number, line in enumerate(lines, 1)), vocabulary)
    pairs = Pairs.load(tmp_path, "train")
    model = tiny_model(d_model=32, d_ff=64, heads=1, layers=1)
    changes = {"batch_tokens": 500, "device_tokens": 500, "warmup": 100, "optimiser": "muon", "label_smoothing": 0.0}
    trainer = Trainer(model, pairs, pairs, World(), TrainConfig(**{**UPDATE, **changes, "max_steps": 400}))
    for step in range(1, 401):
        trainer.update(step)
    new = [chance.integers(4, vocabulary, length).tolist() for length in range(4, 11) for _ in range(5)]
    for line in new:
        (weights,) = attention_maps(model.eval(), line, line).cross[:, 0]  # (T, S)
        assert weights.diagonal().mean() > 0.9
        off_diagonal = (weights.argmax(-1) != torch.arange(len(line) + 1)).sum()
        assert off_diagonal <= 1, weights
