"""model.json, the card of a model folder: format, sizes, languages, and what it was trained from."""

from __future__ import annotations

import json
from pathlib import Path

FORMAT = 1


def read_card(path: Path) -> dict:
    """The JSON that describes a model (sizes, languages). Raises ValueError for a missing file or an unknown format."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; a model folder holds model.json, weights, vocabulary and merges")
    card = json.loads(path.read_text(encoding="utf-8"))
    if card.get("format") != FORMAT:
        raise ValueError(f"{path}: format {card.get('format')!r} is not {FORMAT}; it was written by another version")
    return card


def starting_model(init_from: str) -> Path | None:
    """The model folder that `init_from` names, or None for a file: recipes/random, which says to start from none.

    Raises ValueError for anything else.
    """
    path = Path(init_from)
    if path.is_file():
        return None
    if not (path / "model.json").is_file():
        raise ValueError(
            f"init_from={init_from} is no model folder (it has no model.json); recipes/random starts afresh"
        )
    return path
