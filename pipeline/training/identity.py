"""Hashes that identify a computation by its code, settings and data."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

from transformer.files import sha256_text

# How the names of the modules begin that a training and its translations depend on. "model" also covers
# transformer.model_folder.
ROOMS = ("text", "model", "decoding", "evaluation.bleu", "training", "inference", "files")
CODE = (*(f"transformer.{room}" for room in ROOMS), "pipeline.training.job", "pipeline.training.back_translations")


def code_keys() -> dict[str, str]:
    """The modules of CODE that this process has loaded: name -> hash of the code (`code_key`)."""
    files = {name: module.__file__ for name, module in sys.modules.items() if name.startswith(CODE)}
    return {name: code_key(Path(str(files[name])).read_text(encoding="utf-8")) for name in sorted(files)}


def code_key(source: str) -> str:
    """A hash of Python code that comments, docstrings and layout do not change; of text that is no Python as it is."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return sha256_text(source)
    for node in ast.walk(tree):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return sha256_text(ast.unparse(tree))


def changed_since(folder: Path, identity: dict[str, dict[str, Any]]) -> str:
    """What else than knobs changed since the most similar training with the same knobs, for a message; "" if none has.

    folder: of the new training; those of other trainings, each with its identity.json, are beside it.
    """
    similar = []
    for path in sorted(folder.parent.glob("train-*/identity.json")):
        try:
            other = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:  # a power cut may leave an empty file
            continue
        if path.parent != folder and other["knobs"] == identity["knobs"]:
            names = [
                name
                for part in ("data", "code", "versions")
                for name in {**other[part], **identity[part]}
                if other[part].get(name) != identity[part].get(name)
            ]
            similar.append((len(names), f"{', '.join(names)} changed since {path.parent.name}"))
    return min(similar)[1] if similar else ""
