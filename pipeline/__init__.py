"""The stages of dvc.yaml, one script each. `python -m pipeline COMMAND` runs the other commands."""

import os
import sys
from pathlib import Path
from types import TracebackType

# `python -m pipeline.compare`, the form of version 0.1, finds commands/compare.py. Version 0.3 drops it.
__path__.append(str(Path(__file__).parent / "commands"))


def show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the process: Ctrl-C in one line, also while modules are imported."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    elif os.environ.get("RANK", "0") == "0":
        print("Interrupted. Run the same command again.", file=sys.stderr)


sys.excepthook = show_error
