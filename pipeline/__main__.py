"""The door to every command that is no stage: python -m pipeline COMMAND [OPTIONS]; COMMAND --help has its options."""

import sys
from importlib import import_module

from pipeline.shared.stage import run

COMMANDS = {
    "compare": "two or more experiments on the test set, with p-values and what changed most",
    "summary": "all experiments on one page: scores, and what each knob does",
    "verify": "repeat a commit or experiment in a clean clone and compare every out",
    "ui": "MLflow's pages, opened at the table of runs (make ui)",
    "track": "rebuild the MLflow runs that are missing",
    "clean": "remove what no result needs any more (make clean)",
    "docs": "write the tables of README.md and docs/ from metrics and params.yaml",
    "pictures": "make the pictures in docs/images/, in Chromium",
    "plots_template": "write the page around `dvc plots show` (make setup)",
}


def main() -> None:
    """Run the command named first on the command line, with the options after it."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in COMMANDS:
        print(__doc__, *(f"  {command:<16}{purpose}" for command, purpose in COMMANDS.items()), sep="\n")
        sys.exit(0 if name in ("-h", "--help") else f"error: {name!r} is not one of these commands")
    sys.argv = [f"python -m pipeline {name}", *sys.argv[2:]]
    run(import_module(f"pipeline.commands.{name}").main)


if __name__ == "__main__":
    main()
