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
