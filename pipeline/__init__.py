"""The stages of dvc.yaml, one script each. `python -m pipeline COMMAND` runs the other commands."""

from pathlib import Path

# `python -m pipeline.compare`, the form of version 0.1, finds commands/compare.py. Version 0.3 drops it.
__path__.append(str(Path(__file__).parent / "commands"))
