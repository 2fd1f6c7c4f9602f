"""The program that the blocks of docs/walkthrough.md make: run it, and keep what it prints and computes."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import torch

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FAST = "class _Softmax"  # the block that begins so is the first that replaces plain functions


def run_blocks(text: str, change: Callable[[str], str] = lambda code: code) -> tuple[dict[str, Any], list[str], dict]:
    """Run the blocks of Python of a text in order, in one namespace.

    Returns the namespace, what each block printed that printed something, and the plain functions of the namespace.
    change: what is done to a block before it runs.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    printed, plain = [], {}
    for code in BLOCK.findall(text):
        if code.startswith(FAST):
            plain = dict(names)
        output = io.StringIO()
        with redirect_stdout(output):
            exec(compile("from __future__ import annotations\n" + change(code), "docs/walkthrough.md", "exec"), names)
        if output.getvalue():
            printed.append(output.getvalue())
    return names, printed, plain


def measure(text: str) -> dict[str, Any]:
    """What the program of a text prints, its losses, and the attention of its model."""
    torch.set_num_threads(1)
    names, printed, plain = run_blocks(text)
    return {"printed": printed, "losses": names["losses"], "looked": names["looked"].tolist(), "speed": speed(plain)}


def speed(plain: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Milliseconds of a forward and a backward pass of functions in their plain and their fast form.

    plain: the plain functions by name.
    """
    from transformer.model import cpu
    from transformer.training.loss import smoothed_cross_entropy

    torch.set_num_threads(1)
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
