"""Make a version of a registered model the champion.

python -m pipeline promote toy-de-en 3
"""

from __future__ import annotations

import argparse

from pipeline.stage import project_root
from pipeline.tracking.champion import check_name, promote
from pipeline.tracking.store import connect, reason, store_errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the registered model, as in toy-de-en")
    parser.add_argument("version", type=int, help="the number of the version")
    chosen = parser.parse_args()
    try:
        store = connect(project_root())
        check_name(store, chosen.name)
        promote(store, chosen.name, str(chosen.version))
    except store_errors() as error:
        raise ValueError(f"{chosen.name} {chosen.version} was not promoted: {reason(error)}") from None
    print(f"Version {chosen.version} is the champion of {chosen.name}.")
