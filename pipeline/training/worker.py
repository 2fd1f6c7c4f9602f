"""Let this machine take part in the distributed stages of another one, the leader's (docs/cluster.md).

    python -m pipeline worker --join 10.0.0.1          # the leader runs: NODES=2 dvc repro
    DEVICES=gpu python -m pipeline worker --join 10.0.0.1:29400

It takes part in each stage that the leader's machine opens, and waits for the next one, until Ctrl-C. If this machine
differs from the leader's in data, code or versions, both print what differs, and this command ends with status 1.

Reads   data/ as the stages do
Writes  no outs and no states: the leader's machine writes them
"""

from __future__ import annotations

import argparse
import os

from pipeline.stage import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", required=True, metavar="HOST[:PORT]", help="the leader's machine; it prints this")
    given = parser.parse_args().join
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch prints 20 lines when a connection ends
    # torch is imported here, so that --help and a wrong option take no seconds
    from pipeline.training.taking_part import work

    work(given)


if __name__ == "__main__":
    run(main)
