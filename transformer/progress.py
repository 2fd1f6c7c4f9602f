"""What a training shows while it runs: one line with step, loss, rate, speed and time left."""

from __future__ import annotations

import time

from tqdm import tqdm

from transformer.checkpoint import Row


class Progress:
    """A bar on a terminal; elsewhere (logs, CI) one line per validation."""

    def __init__(self, max_steps: int, visible: bool):
        self._bar = tqdm(total=max_steps, unit="step", desc="train", disable=None if visible else True, leave=False)
        self._visible, self._max_steps = visible, max_steps
        self._tokens, self._since = 0, time.perf_counter()
        self.tokens_per_second = 0.0  # target tokens, since the last row

    def updated(self, step: int, tokens: int) -> None:
        """Count an update of `tokens` target tokens."""
        self._tokens += tokens
        self._bar.update(step - self._bar.n)

    def show(self, rows: list[Row]) -> None:
        """Show the last of some new rows of the curve."""
        if not self._tokens:  # the curve that a resumed training starts from
            if rows and self._visible:
                print(f"going on after update {rows[-1]['step']}", flush=True)
            return
        row, now = rows[-1], time.perf_counter()
        self.tokens_per_second = self._tokens / (now - self._since)
        self._tokens, self._since = 0, now
        line = (
            f"loss {row['train_loss']:.3f} · rate {row['learning_rate']:.2e} · {self.tokens_per_second:,.0f} tokens/s"
        )
        if row["valid_loss"] is not None:
            line += f" · valid {row['valid_loss']:.4f}"
        self._bar.set_postfix_str(line)
        if self._visible and self._bar.disable and row["valid_loss"] is not None:
            print(f"update {row['step']} of {self._max_steps} · {line}", flush=True)

    def close(self) -> None:
        """End the line."""
        self._bar.close()
