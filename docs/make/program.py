"""The program that the blocks of docs/walkthrough.md make: run it, as it is or changed, and keep what it computes."""

from __future__ import annotations

import io
import multiprocessing
import re
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import torch

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROOT = (" / math.sqrt(queries.shape[-1])", "")
ONE_HEAD = ("heads=4, layers=2", "heads=1, layers=2")
EXERCISES = {  # name -> what is replaced by what in the program
    "undivided": (ROOT,),
    "one head": (ONE_HEAD,),
    "one head, undivided": (ROOT, ONE_HEAD),
    "no warm-up": (("WARMUP, LABEL_SMOOTHING = 100, 0.1", "WARMUP, LABEL_SMOOTHING = 1, 0.1"),),
    "unsmoothed": (("WARMUP, LABEL_SMOOTHING = 100, 0.1", "WARMUP, LABEL_SMOOTHING = 100, 0.0"),),
    "one part": (("DEVICE_TOKENS = 1, 300, 1024, 512", "DEVICE_TOKENS = 1, 300, 1024, 1024"),),
}


def run_blocks(text: str) -> tuple[dict[str, Any], list[str]]:
    """Run the blocks of Python of a text in order, in one namespace, on one core.

    Returns the namespace, and what each block printed that printed something.
    """
    torch.set_num_threads(1)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for code in BLOCK.findall(text):
        output = io.StringIO()
        with redirect_stdout(output):
            exec(compile("from __future__ import annotations\n" + code, "docs/walkthrough.md", "exec"), names)
        if output.getvalue():
            printed.append(output.getvalue())
    return names, printed


def changed(text: str, replacements: tuple[tuple[str, str], ...]) -> str:
    """A text with replacements, each of which must occur once."""
    for old, new in replacements:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} occurs {text.count(old)} times in the program of the walkthrough, not once.")
        text = text.replace(old, new)
    return text


def measured_program(text: str) -> dict[str, Any]:
    """What the program of a text prints, its losses, and the attention of its model."""
    names, printed = run_blocks(text)
    return {"printed": printed, "losses": names["losses"], "looked": names["looked"].tolist(), "speed": speed(names)}


def exercise(text: str, name: str) -> dict[str, Any]:
    """The losses of a changed program, and log P of the best hypothesis of its search."""
    names, _ = run_blocks(changed(text, EXERCISES[name]))
    return {"losses": names["losses"], "log P": names["hypotheses"][0].log_probability}


def exercises(text: str) -> dict[str, Any]:
    """The results of all exercises by name."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        return dict(zip(EXERCISES, pool.map(partial(exercise, text), EXERCISES), strict=True))


MEASURES: dict[str, Callable[[str], dict[str, Any]]] = {"program": measured_program, "exercises": exercises}


def speed(plain: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Milliseconds of a forward and a backward pass of functions in their plain and their fast form.

    plain: the plain functions by name.
    """
    from transformer.model import cpu
    from transformer.training.loss import smoothed_cross_entropy

    torch.manual_seed(1)
    B, T, D, F, H, V = 64, 32, 128, 512, 4, 4000
    queries, keys = (torch.randn(B, H, T, D // H, requires_grad=True) for _ in range(2))
    hidden, states = torch.randn(B, T, F, requires_grad=True), torch.randn(B * T, D, requires_grad=True)
    matrix, targets = torch.randn(V, D, requires_grad=True), torch.randint(4, V, (B * T,))
    calls = {
        "attention_weights": (cpu.attention_weights, (queries, keys, None, True)),
        "dropout": (cpu.dropout, (hidden, 0.1)),
        "relu_dropout": (cpu.relu_dropout, (hidden, 0.1)),
        "smoothed_cross_entropy": (smoothed_cross_entropy, (states, matrix, targets, 0.1)),
    }
    return {
        name: {"plain": milliseconds(plain[name], *inputs), "fast": milliseconds(function, *inputs)}
        for name, (function, inputs) in calls.items()
    }


def milliseconds(function: Callable[..., torch.Tensor], *inputs: Any) -> float:
    """The shortest processor time of a forward and a backward pass."""
    times = []
    for _ in range(10):
        start = time.process_time()
        function(*inputs).sum().backward()
        times.append(time.process_time() - start)
    return 1000 * min(times)
