"""One knob of params.yaml: its type and range, and the messages about it."""

from __future__ import annotations

import re
from dataclasses import field
from pathlib import Path
from typing import Any


def knob(
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    before: object = None,
    formerly: str = "",
) -> Any:
    """A required field with its range: least <= value <= most, above < value < below, or one of `choices`.

    before: for a knob that was added later, the value by which results from before it were computed. formerly: the
    older name of a knob. Results recorded without the knob, or under its older name, are then read as before.
    """
    return field(
        metadata={
            "least": least,
            "most": most,
            "below": below,
            "above": above,
            "choices": choices,
            "before": before,
            "formerly": formerly,
        }
    )


def restore(path: Path) -> str:
    """The remedy for a wrong params.yaml."""
    return f"Correct it, or run `git checkout {path}`, which discards all edits of the file."


def place_of(path: Path, text: str, name: str) -> str:
    """Where a key is, for error messages: `file:line`."""
    for number, line in enumerate(text.split("\n"), start=1):
        if re.match(rf"{re.escape(str(name))}\s*:", line):
            return f"{path}:{number}"
    return str(path)


def checked(path: Path, text: str, knob: Any, value: Any) -> Any:
    """The value in the type of its knob. Raises ValueError with file, line and remedy for a wrong type or range."""
    kind, limits = knob.type, knob.metadata
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    right_type = type(value).__name__ == kind
    in_range = (
        right_type
        and (limits["least"] is None or value >= limits["least"])
        and (limits["most"] is None or value <= limits["most"])
        and (limits["below"] is None or value < limits["below"])
        and (limits["above"] is None or value > limits["above"])
        and (kind != "float" or abs(value) != float("inf"))
        and (not limits["choices"] or value in limits["choices"])
        and (kind != "str" or value != "")
    )
    if not in_range:
        raise ValueError(
            f"{place_of(path, text, knob.name)}: {knob.name}={value!r} must be {wanted(kind, limits)}. {restore(path)}"
        )
    return value


def wanted(kind: str, limits: Any) -> str:
    """The values that a knob accepts, in words."""
    if limits["choices"]:
        return "one of " + ", ".join(limits["choices"])
    bounds = [
        f"{sign} {limits[key]:g}"
        for key, sign in (("least", ">="), ("above", ">"), ("most", "<="), ("below", "<"))
        if limits[key] is not None
    ]
    noun = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}[kind]
    return " and ".join([f"{noun} {bounds[0]}", *bounds[1:]]) if bounds else noun
