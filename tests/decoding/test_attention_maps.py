"""An attention map is the attention that the model computes with, and its axes are the subwords that label them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import model_folder, tiny_model

from transformer.decoding.attention_maps import attention_maps
from transformer.inference.translator import Translator
from transformer.model.attention import merge_heads
from transformer.text.vocabulary import BOS, EOS, UNK

SOURCE, TARGET = [7, 5, 19, 11], [5, 9, 11]


@torch.no_grad()
@pytest.mark.parametrize("sizes", [{}, {"norm": "post"}, {"key_size": 3, "encoder_layers": 3, "decoder_layers": 1}])
@pytest.mark.parametrize("fused_above", [64, 0])
def test_the_output_of_each_attention_follows_from_its_map(sizes, fused_above, monkeypatch):
    """The output is the values, weighted by the map. There are fewer values than their width, so no other map fits."""
    monkeypatch.setattr("transformer.model.cpu.FUSED_ABOVE", fused_above)  # 0: torch's fused one, which has no map
    model = tiny_model(**sizes).double()
    maps = attention_maps(model, SOURCE, TARGET)
    pairs = list(zip((layer.attention for layer in model.encoder), maps.encoder, strict=True))
    pairs += zip((layer.attention for layer in model.decoder), maps.decoder, strict=True)
    pairs += zip((layer.cross for layer in model.decoder), maps.cross, strict=True)
    calls = {}
    for attention, _ in pairs:
        attention.register_forward_hook(lambda part, inputs, output: calls.update({part: (inputs[:2][-1], output)}))
    model(torch.tensor([[*SOURCE, EOS]]), torch.tensor([[BOS, *TARGET]]))
    for attention, weights in pairs:
        memory, output = calls[attention]  # of the first two inputs the last: the memory, or x in self-attention
        mixed = merge_heads(weights[None] @ attention.keys_values(memory)[1])
        torch.testing.assert_close(attention.output(mixed), output, rtol=1e-12, atol=1e-14)


@given(st.lists(st.integers(4, 22), max_size=9), st.lists(st.integers(4, 22), max_size=9))
@settings(deadline=None, max_examples=20)
def test_each_row_sums_to_1_and_no_target_attends_to_a_later_one(source, target):
    maps = attention_maps(tiny_model().double(), source, target)
    assert maps.cross.shape == (2, 2, len(target) + 1, len(source) + 1)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        assert weights.sum(-1).allclose(torch.ones((), dtype=torch.float64), rtol=1e-12)
    assert not maps.decoder.triu(1).any()


def test_the_column_of_a_masked_source_subword_is_empty():
    model, place = tiny_model().double(), 2
    masked = [0 if position == place else number for position, number in enumerate(SOURCE)]  # 0: <pad>
    maps, unmasked = attention_maps(model, masked, TARGET), attention_maps(model, SOURCE, TARGET)
    for weights, before in ((maps.encoder, unmasked.encoder), (maps.cross, unmasked.cross)):
        assert not weights[..., place].any()
        assert before[..., place].all()
        assert weights.sum(-1).allclose(torch.ones((), dtype=torch.float64))


def test_labels_have_the_lengths_of_the_axes(tmp_path):
    translator = Translator.load(model_folder(tmp_path / "model"))
    for source, target in (("Ein Hund rennt im Gras .", "Zwei Männer spielen"), ("", "Ein"), ("Ein", ""), ("", "")):
        maps, rows, columns = translator.attention(source, target)
        assert maps.encoder.shape[2:] == (len(rows), len(rows))
        assert maps.decoder.shape[2:] == (len(columns), len(columns))
        assert maps.cross.shape[2:] == (len(columns), len(rows))
        assert (rows[-1], columns[-1]) == ("</s>", "</s>")


def test_an_unknown_subword_of_a_translation_has_its_own_row(tmp_path):
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
