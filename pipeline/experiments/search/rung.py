"""How far a search lets a training go: to a rung, an update after which it stops and can be resumed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pipeline.tracking.recorder import TrainingRun
from pipeline.tracking.run import Curve
from transformer.files import write_json

UPDATES, FILE = "RUNG_UPDATES", "RUNG_FILE"  # environment variables by which a search starts the stage train


def environment(updates: int, file: Path) -> dict[str, str]:
    """The variables that stop the stage train after an update. file: gets the curve up to there (see TrialRun)."""
    return {UPDATES: str(updates), FILE: str(file)}


def run_type() -> type[TrainingRun]:
    """The type of the run of this process: TrialRun if a search has started the training."""
    return TrialRun if os.environ.get(FILE) else TrainingRun


class TrialRun(TrainingRun):
    """The run of a training that a search lets go as far as a rung.

    The run has the params of the whole training; it is KILLED where the training stops, and continued by the next rung.
    The file that the environment names gets {"curve": rows up to the rung}, or {"diverged": reason}. A training that
    has gone further already, or has ended, writes the same.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.updates, self.file = int(os.environ[UPDATES]), Path(os.environ[FILE])
        self.rows = list[dict]()

    def log_curve(self, rows: Curve) -> None:
        """Log rows of the curve. At the rung, write the file and stop the training as SIGTERM does."""
        rows = list(rows)
        super().log_curve(rows)
        self.rows += [dict(row) for row in rows if int(row["step"] or 0) <= self.updates]
        validated = [row["step"] for row in rows if row.get("valid_loss") is not None]
        if validated and int(validated[-1] or 0) >= self.updates and not self.file.exists():
            write_json(self.file, {"curve": self.rows})
            if self.updates < int(self.params["max_steps"]):
                signal.raise_signal(signal.SIGTERM)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from transformer.training.loop import Diverged

        if isinstance(error, Diverged):
            write_json(self.file, {"diverged": str(error)})
        elif error is None and not self.file.exists():  # the training ended before the rung, by `patience`
            write_json(self.file, {"curve": self.rows})
        super().__exit__(kind, error, trace)
