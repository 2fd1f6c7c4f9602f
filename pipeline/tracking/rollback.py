"""Give the alias champion back to the version that was champion before.

    python -m pipeline rollback toy-de-en

The stage record does not promote the version again that was rolled back; `python -m pipeline promote` does.
"""

from __future__ import annotations

import argparse

from pipeline.stage import project_root
from pipeline.tracking.champion import roll_back
from pipeline.tracking.store import connect, reason, store_errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the registered model, as in toy-de-en")
    name = parser.parse_args().name
    try:
        number, before = roll_back(connect(project_root()), name)
    except store_errors() as error:
        raise ValueError(f"{name} was not rolled back: {reason(error)}") from None
    print(f"Version {before} is the champion of {name} again, in place of version {number}.")
