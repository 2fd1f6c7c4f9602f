"""The commands by which a person chooses the champion of a registered model."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.tracking import champion
from pipeline.tracking.store import Store, connect, reason, store_errors
from pipeline.workflow.stage import project_root


def promote() -> None:
    """Make a version of a registered model the champion, as in `python -m pipeline promote toy-de-en 3`."""
    parser = name_parser(promote.__doc__)
    parser.add_argument("version", type=int, help="the number of the version")
    chosen = parser.parse_args()
    with open_store(chosen.name) as store:
        champion.check_name(store, chosen.name)
        champion.promote(store, chosen.name, str(chosen.version))
    print(f"Version {chosen.version} is the champion of {chosen.name}.")


def roll_back() -> None:
    """Make the version champion again that was champion before, as in `python -m pipeline rollback toy-de-en`.

    The stage record does not promote the replaced version again; `python -m pipeline promote` does.
    """
    name = name_parser(roll_back.__doc__).parse_args().name
    with open_store(name) as store:
        number, before = champion.roll_back(store, name)
    print(f"Version {before} is the champion of {name} again, in place of version {number}.")


def name_parser(description: str | None) -> argparse.ArgumentParser:
    """A command line with the name of a registered model."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("name", help="the registered model, as in toy-de-en")
    return parser


@contextmanager
def open_store(name: str) -> Iterator[Store]:
    """The store. In the block, store errors become a ValueError. name: of the model."""
    try:
        yield connect(project_root())
    except store_errors() as error:
        raise ValueError(f"{name} keeps its champion: {reason(error)}") from None
