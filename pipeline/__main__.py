"""The commands beside the stages: python -m pipeline COMMAND [OPTIONS]. COMMAND --help lists the options."""

import sys
from importlib import import_module

from pipeline.shared.stage import run

COMMANDS = {
    "compare": "compare experiments on the test set, with p-values and the sentences that changed most",
    "table3": "queue the paper's Table 3 as experiments around params.yaml, or print it with p-values",
    "summary": "show all experiments on one page: scores, and the effect of each knob",
    "search": "search for better knobs by many trainings that are mostly stopped early",
    "verify": "repeat a commit or experiment in a clean clone and compare each out",
    "experiment": "run one line of a list of experiments, as a task of a cluster does",
    "ui": "start MLflow's server and print the address of the table of runs (make ui)",
    "track": "write the MLflow runs that are missing",
    "serve": "serve a registered model after checking its weights and code",
    "demo": "translate what you type, on a local page, with one model or two side by side",
    "promote": "make a version of a registered model the champion",
    "rollback": "make the former champion of a registered model champion again",
    "worker": "let this machine take part in the training stages of another one",
    "clean": "remove caches, states of trainings and outs that nothing needs (make clean)",
    "lock": "write the lock file of a corpus: sizes, checksums and line counts of its files",
    "versions": "record the installed versions of the packages that stages compute with",
    "docs": "write the tables of README.md and docs/ from metrics and params.yaml",
    "pictures": "make the pictures in docs/images/, in Chromium",
    "walkthrough": "run docs/walkthrough.py and make a page of it, or a notebook (make walkthrough, make notebook)",
    "plots_template": "write the page that `dvc plots show` fills (make setup)",
}


def main() -> None:
    """Run the command that the command line names, with the options after its name."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in COMMANDS:
        print(__doc__, *(f"  {command:<16}{purpose}" for command, purpose in COMMANDS.items()), sep="\n")
        sys.exit(0 if name in ("-h", "--help") else f"error: {name!r} is not one of these commands")
    sys.argv = [f"python -m pipeline {name}", *sys.argv[2:]]
    run(import_module(f"pipeline.commands.{name}").main)


if __name__ == "__main__":
    main()
