"""The commands beside the stages: python -m pipeline COMMAND [OPTIONS]. COMMAND --help lists the options."""

import signal
import sys
from difflib import get_close_matches
from importlib import import_module

from pipeline.workflow.params import read_values
from pipeline.workflow.stage import ROOT, run

COMMANDS = {  # name -> (module, purpose)
    "compare": (
        "pipeline.results.compare",
        "compare experiments on the test set, with p-values and the sentences that changed most",
    ),
    "summary": (
        "pipeline.results.summary",
        "show all experiments on one page: scores, and the effect of each knob",
    ),
    "search": (
        "pipeline.search.command",
        "search for better knobs by many trainings that are mostly stopped early",
    ),
    "ui": ("pipeline.results.ui", "start MLflow's server and print the address of the table of runs (make ui)"),
    "track": ("pipeline.results.track", "write the MLflow runs that are missing"),
    "serve": ("pipeline.results.serve", "serve models: a page to type into, and LibreTranslate's interface"),
    "clean": (
        "pipeline.results.clean",
        "remove caches, states of trainings and outs that nothing needs (make clean)",
    ),
    "manifest": (
        "pipeline.corpus.manifest",
        "complete the manifest of a corpus: sizes, checksums, line counts of files",
    ),
    "recipe": ("pipeline.corpus.recipe", "write a params.yaml for your own text, chosen by its size"),
    "versions": (
        "pipeline.workflow.versions",
        "record the installed versions of the packages that stages compute with",
    ),
    "docs": ("docs.make.tables", "write the tables of README.md and docs/ from measured scores"),
    "pictures": ("docs.make.pictures", "make the pictures in docs/images/, in Chromium"),
    "walkthrough": (
        "docs.make.walkthrough",
        "run docs/walkthrough.py; write a notebook, Markdown and a page of one file (make walkthrough)",
    ),
    "site": ("docs.make.site", "make a site of README.md and docs/ (make docs)"),
    "plots_template": ("docs.make.plots_template", "write the page that `dvc plots show` fills (make setup)"),
}


def main() -> None:
    """Run the command that the command line names, with the options after its name."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in COMMANDS:
        print(__doc__, *(f"  {command:<16}{purpose}" for command, (_, purpose) in COMMANDS.items()), sep="\n")
        sys.exit(0 if name in ("-h", "--help") else f"error: {explain(name)}")
    sys.argv = [f"python -m pipeline {name}", *sys.argv[2:]]
    stop_by_signal()
    run(import_module(COMMANDS[name][0]).main)


def explain(name: str) -> str:
    """The message for an unknown command. It names the stage or the command that the user probably meant."""
    if name in read_values(ROOT / "dvc.yaml")["stages"]:
        return f"{name} is a stage: python -m pipeline.{name}"
    near = get_close_matches(name, COMMANDS, n=1)
    return f"{name!r} is not one of these commands" + "".join(f". Did you mean {command}?" for command in near)


def stop_by_signal() -> None:
    """Let SIGTERM and a closed terminal end a command as Ctrl-C does: it ends what it started, and cleans up."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, lambda number, _: sys.exit(128 + number))


if __name__ == "__main__":
    main()
