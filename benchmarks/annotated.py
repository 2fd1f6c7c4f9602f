"""The Annotated Transformer (2022) as a program to measure: model, loss and batches of a user's copy of its script.

A batch has 32 sentences in random order, each padded to 72. The optimiser steps after every tenth batch.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.flops import DROPOUT, SMOOTHING
from benchmarks.programs import SEED, Program, Task
from benchmarks.stubs import stub_if_missing
from transformer.text.vocabulary import BOS, PAD
from transformer.training.schedule import learning_rate
from transformer.training.train_step import seed_everything

SENTENCES, LENGTH, ACCUMULATED, SCRIPT_WARMUP = 32, 72, 10, 3000
NAMES = ("make_model", "Batch", "LabelSmoothing", "SimpleLossCompute")


def load_script(path: Path) -> ModuleType:
    """Import the script. Its imports that are not installed, for plots and data sets, are replaced by stubs."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                stub_if_missing(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            stub_if_missing(node.module, *(alias.name for alias in node.names if alias.name != "*"))
    specification = importlib.util.spec_from_file_location("the_annotated_transformer", path)
    assert specification is not None
    assert specification.loader is not None
    script = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = script
    specification.loader.exec_module(script)
    missing = [name for name in NAMES if not hasattr(script, name)]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}. Use the_annotated_transformer.py of 2022.")
    return script


class Annotated(Program):
    """The training loop of the script, one batch per update."""

    def __init__(self, task: Task):
        super().__init__(task)
        assert task.script is not None
        self.script, size = load_script(task.script), task.size
        seed_everything(SEED)
        model = self.script.make_model(
            task.vocabulary,
            task.vocabulary,
            N=size.layers,
            d_model=size.d_model,
            d_ff=size.d_ff,
            h=size.heads,
            dropout=DROPOUT,
        )
        self.model = model.to(task.device).train()
        criterion = self.script.LabelSmoothing(task.vocabulary, PAD, SMOOTHING).to(task.device)
        self.loss = self.script.SimpleLossCompute(self.model.generator, criterion)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, lambda step: learning_rate(max(step, 1), size.d_model, SCRIPT_WARMUP, 1.0)
        )
        self.order = np.random.default_rng(SEED).permutation(len(task.pairs))

    def rows(self, step: int) -> np.ndarray:
        per_epoch = math.ceil(len(self.order) / SENTENCES)
        start = (step - 1) % per_epoch * SENTENCES
        return self.order[start : start + SENTENCES]

    def positions(self, rows: np.ndarray) -> int:
        return len(rows) * (LENGTH + LENGTH - 1)  # the last position of the target is only predicted

    def update(self, step: int) -> None:
        source, _, output = self.task.batch(self.rows(step))
        batch = self.script.Batch(self._framed(source), self._framed(output), PAD)
        states = self.model.forward(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        _, loss = self.loss(states, batch.tgt_y, batch.ntokens)
        loss.backward()
        if step % ACCUMULATED == 0:
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
        self.schedule.step()

    @staticmethod
    def _framed(ids: Tensor) -> Tensor:
        """Sequences with <s> added at the start, cut or padded to 72: (B, T) -> (B, 72)."""
        framed = F.pad(ids, (1, LENGTH - ids.shape[1] - 1), value=PAD)
        framed[:, 0] = BOS
        return framed
