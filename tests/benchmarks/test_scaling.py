"""The roofline keeps its laws, agrees with what others published, and docs/scaling.md shows what it computes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import ROOT

from benchmarks import scaling
from benchmarks.flops import SIZES
from benchmarks.scaling import GPUS, PUBLISHED, compute_seconds, model, published_error, sum_seconds
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer

BIG = model(SIZES["big"], 37_000)
gpus = st.sampled_from(list(GPUS.values()))


@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
def test_parameters_are_those_of_the_model_but_biases_and_norms(size):
    config = TransformerConfig(
        **vars(size),
        vocabulary=97,
        max_positions=9,
        dropout=0.0,
        norm="pre",
        positions="sinusoidal",
        tie_embeddings=True,
    )
    matrices = [weight.numel() for weight in Transformer(config).parameters() if weight.dim() == 2]
    assert model(size, 97).parameters == sum(matrices)


@settings(max_examples=50, deadline=None)
@given(gpus, st.floats(100, 1e6), st.integers(1, 9))
def test_more_tokens_or_passes_never_take_less_time(gpu, tokens, passes):
    seconds = compute_seconds(gpu, BIG, tokens, passes)
    assert seconds <= compute_seconds(gpu, BIG, 2 * tokens, passes)
    assert seconds <= compute_seconds(gpu, BIG, tokens, 2 * passes)
    assert seconds >= tokens * BIG.flop / gpu.rate


@settings(max_examples=50, deadline=None)
@given(gpus, st.floats(1e6, 1e9), st.floats(1e9, 1e11))
def test_a_sum_takes_longer_on_more_gpus_and_machines(gpu, nbytes, network):
    seconds = [sum_seconds(gpu, nbytes, count, network) for count in (1, 2, 8, 16, 64)]
    assert seconds == sorted(seconds)
    assert seconds[0] == 0
    assert seconds[2] == pytest.approx(1.75 * nbytes / gpu.bandwidth)


@pytest.mark.parametrize("name", GPUS)
def test_published_speeds_are_met_within_a_quarter(name):
    errors = sorted(abs(published_error(row)) for row in PUBLISHED if row.gpu == name)
    assert errors[len(errors) // 2] < 0.04
    assert errors[-1] < 0.25


def test_the_page_has_the_tables_that_the_command_prints(capsys):
    scaling.main()
    page = (ROOT / "docs/scaling.md").read_text(encoding="utf-8").split("\n")
    missing = [line for line in capsys.readouterr().out.split("\n") if line not in page]
    assert missing == [], "copy the output of `python -m benchmarks.scaling` into docs/scaling.md"
