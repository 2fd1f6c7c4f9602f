"""Serve a page, to this machine only, that translates what you type: alternatives, subwords, alignment, attention.

    python -m pipeline demo                            # data/model
    python -m pipeline demo EXP1 EXP2                  # two experiments, commits, branches or tags side by side
    python -m pipeline demo models:/toy-de-en workspace
    python -m pipeline demo folder/model --port 5003

Reads   data/model, DVC's cache or MLflow's registry. Only text and weights are read; stored code is not executed
Writes  for models:/..., MLflow's store, if there is none yet; models that it fetches are in a temporary folder until it
        ends
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.results.servers import HOST, open_port

MOST_MODELS = 2  # beside each other on the page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models",
        nargs="*",
        default=["data/model"],
        metavar="MODEL",
        help="up to two: an experiment, commit, branch or tag; "
        "models:/NAME@ALIAS or models:/NAME/VERSION; a model folder (default: data/model)",
    )
    parser.add_argument("--port", type=int, default=5002, help="default: 5002")
    options = parser.parse_args()
    if len(options.models) > MOST_MODELS:
        parser.error(f"{len(options.models)} models were named; the page shows up to {MOST_MODELS} side by side")
    listener = open_port(HOST, options.port, shlex.join(["python", "-m", "pipeline", "demo", *options.models]))
    names = list(dict.fromkeys(options.models))
    print(f"Loading {' and '.join(names)} ...", file=sys.stderr, flush=True)
    with listener, TemporaryDirectory() as scratch:
        # Imported here, so that --help and a wrong option take no seconds; torch after the models were found.
        from pipeline.demo.models import find_model

        sources = [find_model(name, Path(scratch) / str(place)) for place, name in enumerate(names)]
        from pipeline.demo.answers import Model
        from pipeline.demo.server import serve

        models = [Model(source) for source in sources]
        print(f"http://{HOST}:{options.port}", flush=True)
        try:
            serve(models, listener)
        except KeyboardInterrupt:
            print()
