"""The model is the paper's: its equations, what each position attends to, embeddings, rates and precision."""

import json
import math
import re
from dataclasses import asdict
from typing import get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import ROOT, SIZES, tiny_model

from pipeline.workflow.params import Params
from transformer.decoding.config import SamplingConfig, SearchConfig
from transformer.model.attention import Attention
from transformer.model.config import TransformerConfig
from transformer.model.transformer import sinusoids
from transformer.training.config import TrainConfig

SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]])
TARGET = torch.tensor([[2, 11, 12, 13], [2, 14, 0, 0]])


@given(heads=st.integers(1, 4), width=st.integers(1, 5), key_size=st.integers(0, 7), training=st.booleans())
@settings(deadline=None, max_examples=30)
def test_attention_is_equation_1_with_any_key_size(heads, width, key_size, training):
    attention = Attention(heads * width, heads, dropout=0.0, key_size=key_size).double().train(training)
    x, keys = torch.randn(1, 3, heads * width, dtype=torch.float64), key_size or width
    parts = attention.project(x[0]).split((heads * keys, heads * keys, heads * width), dim=-1)
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(0, 1) for part in parts)
    mixed = [torch.softmax(q[h] @ k[h].T / math.sqrt(keys), dim=-1) @ v[h] for h in range(heads)]
    expected = attention.output(torch.cat(mixed, dim=-1))
    torch.testing.assert_close(attention(x)[0], expected)


def test_no_position_sees_the_future():
    model = tiny_model()
    changed = TARGET.clone()
    changed[0, 2] = 20
    before, after = model(SOURCE, TARGET), model(SOURCE, changed)
    torch.testing.assert_close(before[0, :2], after[0, :2], rtol=0, atol=0)
    assert not torch.allclose(before[0, 2], after[0, 2])


def test_a_source_that_is_all_padding_is_an_error():
    with pytest.raises(ValueError, match=r"^Source 1 is all padding \(id 0\)\. Leave it out, or .*\.$"):
        tiny_model()(SOURCE * torch.tensor([[1], [0]]), TARGET)


def test_padding_does_not_change_the_states():
    model = tiny_model().double()
    alone = model(SOURCE[1:, :3], TARGET[1:, :2])
    torch.testing.assert_close(model(SOURCE, TARGET)[1:, :2], alone)
    assert model.source_bias(torch.tensor([[1, 2, 3, 4, 0]])).tolist() == [[[[0, 0, 0, 0, -math.inf]]]]


def test_initial_weights_have_the_deviations_of_their_layers():
    model = tiny_model(vocabulary=500, key_size=3, tie_embeddings=False, positions="learned", max_positions=500)
    for name, weight in model.state_dict().items():
        if name.startswith("position"):
            torch.testing.assert_close(weight, sinusoids(500, 16).float())
        elif name.startswith(("source", "target", "projection")):
            assert float(weight.std()) == pytest.approx(16**-0.5, rel=0.05), name
        elif name.endswith("bias"):
            assert not weight.any()
        elif weight.ndim == 2:  # uniform up to sqrt(6 / (rows + columns)), for each projection by itself
            for part in weight.split((6, 6, 16)) if name.endswith("project.weight") else [weight]:
                assert float(part.abs().max()) == pytest.approx(math.sqrt(6 / sum(part.shape)), rel=0.05), name


@pytest.mark.parametrize(("start", "length"), [(0, 90), (60, 1), (4, 1), (3, 5)])
def test_sinusoids_are_those_of_section_3_5_at_any_position(start, length):
    rows = tiny_model(max_positions=4).position_encodings(start, length)
    assert rows.shape == (length, 16)
    for position, row in enumerate(rows, start):
        assert row[4] == pytest.approx(math.sin(position / 10000 ** (4 / 16)), abs=1e-6)
        assert row[5] == pytest.approx(math.cos(position / 10000 ** (4 / 16)), abs=1e-6)


def test_positions_beyond_a_learned_table_use_its_last_row():
    rows = tiny_model(positions="learned", max_positions=6).position_encodings(0, 9)
    assert torch.equal(rows[5], rows[8])
    assert not torch.equal(rows[4], rows[5])


def test_embeddings_are_multiplied_by_the_square_root_of_d_model():
    model = tiny_model()
    rows = model.embed(model.source_embedding, SOURCE) - model.position_encodings(0, SOURCE.shape[1])
    torch.testing.assert_close(rows, model.source_embedding.weight[SOURCE] * 4.0)


def test_tied_embeddings_are_stored_once():
    tied, separate = tiny_model(), tiny_model(tie_embeddings=False)
    matrices = [name for name, value in tied.state_dict().items() if value.shape[0] == SIZES["vocabulary"]]
    assert matrices == ["source_embedding.weight"]
    assert tied.output_weight is tied.source_embedding.weight
    assert len([v for v in separate.state_dict().values() if v.shape[0] == SIZES["vocabulary"]]) == 3


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_weight_gets_a_gradient(norm):
    model = tiny_model(norm=norm, tie_embeddings=False, positions="learned")
    model.predict(SOURCE, TARGET).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())


def test_post_norm_ends_in_a_norm_and_pre_norm_starts_with_one():
    post, pre = tiny_model(norm="post"), tiny_model(norm="pre")
    assert isinstance(post.decoder_norm, torch.nn.Identity)
    assert isinstance(pre.decoder_norm, torch.nn.LayerNorm)
    x = torch.randn(1, 2, 16)
    for model in (post, pre):  # dropout falls on the output of the sub-layer, not on its input
        residual = model.train().encoder[0].residuals[0]
        residual.dropout = 0.999999
        kept = residual(x, torch.zeros_like)
        torch.testing.assert_close(kept, x if residual.pre else residual.norm(x))
    states = post.eval()(SOURCE, TARGET)
    torch.testing.assert_close(states.mean(-1), torch.zeros(2, 4), atol=1e-5, rtol=0)


def test_a_size_of_0_stands_for_the_common_size():
    explicit = tiny_model(key_size=SIZES["d_model"] // SIZES["heads"], encoder_layers=2, decoder_layers=2)
    for weight, other in zip(explicit.state_dict().values(), tiny_model().state_dict().values(), strict=True):
        assert torch.equal(weight, other)
    deep = tiny_model(encoder_layers=3, decoder_layers=1)
    assert [len(part) for part in (deep.encoder, deep.decoder)] == [3, 1]


@pytest.mark.parametrize("knob", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_rate_acts_at_its_own_places(knob):
    model = tiny_model(**{knob: 0.5})
    assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    model.train()
    x = torch.randn(2, 5, 16)
    for layer in (*model.encoder, *model.decoder):
        attentions = [part for part in layer.children() if isinstance(part, Attention)]
        places = [(residual, "dropout", (x, torch.tanh)) for residual in layer.residuals]
        places += [(attention, "attention_dropout", (x,)) for attention in attentions]
        for part, own, inputs in [*places, (layer.feed_forward, "activation_dropout", (x,))]:
            assert torch.equal(part(*inputs), part(*inputs)) == (own != knob)
    embedded = [model.embed(model.source_embedding, SOURCE) for _ in range(2)]
    assert torch.equal(*embedded) == (knob != "dropout")


def test_a_bfloat16_model_keeps_its_weights_in_float32():
    model = tiny_model()
    exact = model(SOURCE, TARGET)
    model.compute = torch.bfloat16
    rough = model(SOURCE, TARGET)
    assert rough.dtype is torch.bfloat16
    torch.testing.assert_close(rough.float(), exact, rtol=0.05, atol=0.05)
    rough.float().square().sum().backward()
    assert {(p.dtype, p.grad.dtype) for p in model.parameters() if p.grad is not None} == {(torch.float32,) * 2}


@pytest.mark.parametrize(
    ("config", "values", "message"),
    [
        (TransformerConfig, {"norm": "Pre"}, "norm='Pre' must be 'pre' or 'post'."),
        (TransformerConfig, {"heads": 0}, "heads=0 must be a whole number, at least 1, at most 1,000,000,000."),
        (TransformerConfig, {"layers": 2.0}, "layers=2.0 must be a whole number, at least 1, at most 1,000."),
        (
            TransformerConfig,
            {"d_model": 9},
            "d_model=9 must be a whole number, at least 2, at most 1,000,000,000, a multiple of 2.",
        ),
        (
            TransformerConfig,
            {"d_model": 10, "heads": 4},
            "d_model=10 does not divide into heads=4. Change one of them.",
        ),
        (TransformerConfig, {"tie_embeddings": 1}, "tie_embeddings=1 must be True or False."),
        (TrainConfig, {"label_smoothing": 1.5}, "label_smoothing=1.5 must be a finite number, at least 0, below 1."),
        (TrainConfig, {"seed": True}, "seed=True must be a whole number, at least 0, at most 1,000,000,000."),
        (
            TrainConfig,
            {"max_steps": 8, "save_every": 3, "log_every": 3},
            "save_every=3 does not divide max_steps=8. Change one of them, for example max_steps=6 or 9.",
        ),
        (TrainConfig, {"lr_factor": 10**400}, f"lr_factor=1{'0' * 17}...{'0' * 19} must be a finite number, above 0."),
        (SamplingConfig, {"top_p": 1.1}, "top_p=1.1 must be a finite number, at least 1e-09, at most 1."),
    ],
)
def test_a_setting_that_its_type_does_not_allow_is_an_error(config, values, message):
    with pytest.raises(ValueError, match=rf"^{re.escape(message)}$"):
        config(**({"vocabulary": 9} if config is TransformerConfig else {}) | values)


def test_numbers_of_numpy_become_those_of_python():
    """So that model.json can be written."""
    config = TransformerConfig(np.int64(23), d_model=np.int32(16), heads=2, dropout=np.float32(0.5))
    assert json.loads(json.dumps(asdict(config))) == asdict(TransformerConfig(23, d_model=16, heads=2, dropout=0.5))


def test_the_defaults_are_the_base_model_of_the_paper():
    """Table 3 and sections 5.1 to 5.4, 6.1; numbers of NumPy are numbers."""
    params = Params.load(ROOT / "recipes/wmt14_base.yaml")
    assert TransformerConfig(np.int64(37_000)) == params.take(TransformerConfig, vocabulary=37_000, max_positions=512)
    assert TrainConfig() == params.take(TrainConfig, precision="float32")
    assert SearchConfig() == params.take(SearchConfig)


@pytest.mark.parametrize("config", [TransformerConfig, TrainConfig, SearchConfig])
def test_a_knob_has_the_type_of_its_setting(config):
    """So params.yaml and the library allow the same values."""
    knobs = get_type_hints(Params, include_extras=True)
    types = get_type_hints(config, include_extras=True)
    assert {name: knobs[name] for name in types.keys() & knobs.keys()} == {
        name: kind for name, kind in types.items() if name not in ("vocabulary", "max_positions")
    }
