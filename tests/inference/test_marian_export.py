"""A model exported for Hugging Face's transformers has the same logits. Skipped where transformers is not installed."""

from __future__ import annotations

import re

import pytest
import torch
from support.tiny import tiny_model

from transformer.inference.marian_export import export_marian

SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]])
TARGET = torch.tensor([[2, 11, 12, 13], [2, 14, 0, 0]])


@pytest.mark.parametrize("sizes", [{}, {"encoder_layers": 3, "decoder_layers": 1, "heads": 4}])
def test_marian_has_the_logits_of_the_model(sizes, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = tiny_model(norm="post", **sizes)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    export_marian(model, tmp_path / "marian")
    marian = transformers.MarianMTModel.from_pretrained(tmp_path / "marian").eval()
    logits = marian(input_ids=SOURCE, attention_mask=SOURCE != 0, decoder_input_ids=TARGET).logits
    torch.testing.assert_close(logits[TARGET != 0], model.predict(SOURCE, TARGET)[TARGET != 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"norm": "pre"}, "norm='pre' does not exist in Marian. Nothing was exported. Train a model with norm='post'."),
        ({"positions": "learned"}, "positions='learned' does not exist"),
        ({"tie_embeddings": False}, "tie_embeddings=False does not exist"),
        ({"key_size": 3}, "key_size=3 does not exist in Marian. Nothing was exported. Train a model with key_size=8."),
    ],
)
def test_a_model_that_marian_cannot_compute_is_refused(sizes, message, tmp_path):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        export_marian(tiny_model(**{"norm": "post", **sizes}), tmp_path / "marian")
    assert not list(tmp_path.iterdir())
