"""The walkthrough's translator in its page of one file: weights of a byte each, and the controls."""

from __future__ import annotations

import copy
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import torch

from transformer.files import write_text

WEIGHTS = Path("docs/translator.json")


def write_weights(names: dict[str, Any]) -> None:
    """Write WEIGHTS: whole numbers from -127 to 127, and a scale for each row. names: what the walkthrough defined."""
    model, weights = names["translator"].eval(), dict[str, Any]()
    small = copy.deepcopy(model)
    for name, weight in small.state_dict().items():
        rows = torch.atleast_2d(weight)
        scales = [float(f"{largest:.4g}") for largest in (rows.abs().amax(1) / 127).clamp_min(1e-9).tolist()]
        steps = (rows / torch.tensor(scales)[:, None]).round()
        weights[name] = {"scales": scales, "int8": b64encode(steps.to(torch.int8).numpy().tobytes()).decode()}
        rows.copy_(steps * torch.tensor(scales)[:, None])
    found = [
        (source, ids)
        for source, _ in names["valid"][:30]
        for _, _, ids in names["beam_search"](names["model_logs"](model, source), len(source) + 50)
    ]
    batch = names["make_batch"](found)
    moved = (log_probabilities(small, *batch) - log_probabilities(model, *batch)).abs().max()
    examples = [*names["QUESTIONS"], *(german for german, _ in names["valid_text"][:30])]
    stored = {**names["SIZES"], "moved": round(moved.item(), 2), "examples": examples}
    stored |= {"subwords": names["subwords"], "merges": names["merges"], "weights": weights}
    lines = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in stored.items()]
    write_text(WEIGHTS, "{\n" + ",\n".join(lines) + "\n}\n")


@torch.no_grad()
def log_probabilities(model: Any, source: torch.Tensor, target: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The log P of each target of a batch: (B,), in nats."""
    logs = model(source, target).log_softmax(-1).gather(2, wanted[..., None])[..., 0]
    return logs.masked_fill(wanted == 0, 0.0).sum(1)
