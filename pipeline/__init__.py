"""The stages of dvc.yaml, one script each; every other command is behind `python -m pipeline COMMAND`."""

from pathlib import Path

# Until version 0.3 `python -m pipeline compare`, as version 0.1 had it, finds its file in commands/.
__path__.append(str(Path(__file__).parent / "commands"))
