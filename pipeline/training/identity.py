"""Hashes that identify a computation by its code, settings and data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer.files import UnreadableInput, read_json, sha256_text
from transformer.training.replay import differences

ROOT = Path(__file__).parents[2]
CHANGES_NO_RESULT = ("transformer/cores.py", "pipeline/workflow/")  # how a stage runs, not what it computes


def code_keys(*paths: str, root: Path = ROOT) -> dict[str, str]:
    """The files of this project that some files import, directly or not: path -> hash of the code (`code_key`).

    paths: of these files, which are included. Files of CHANGES_NO_RESULT are left out, with what they alone import.
    """
    keys, waiting = dict[str, str](), [*paths]
    while waiting:
        path = waiting.pop()
        if path not in keys and not path.startswith(CHANGES_NO_RESULT) and (root / path).is_file():
            code = ast.parse((root / path).read_text(encoding="utf-8"))
            waiting += [f"{name.replace('.', '/')}.py" for name in modules_of(code)]
            keys[path] = code_key(code)
    return dict(sorted(keys.items()))


def modules_of(code: ast.Module) -> Iterator[str]:
    """The names of what Python code imports, modules and their members: a.b and a.b.c of `from a.b import c`."""
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def code_key(code: ast.Module) -> str:
    """A hash of Python code that comments, docstrings and layout do not change. The docstrings are removed."""
    for node in ast.walk(code):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return sha256_text(ast.unparse(code))


def changed_since(folder: Path, identity: dict[str, dict[str, Any]]) -> str:
    """What else than knobs changed since the most similar training with the same knobs, for a message; "" if none has.

    folder: of the new training; those of other trainings, each with its identity.json, are beside it.
    """
    similar = []
    for path in sorted(folder.parent.glob("train-*/identity.json")):
        try:
            other = read_json(path)
        except UnreadableInput:  # a power cut may leave an empty file
            continue
        if path.parent != folder and other["knobs"] == identity["knobs"]:
            names = differences(other, identity)
            similar.append((len(names), f"{', '.join(names)} changed since {path.parent.name}"))
    return min(similar)[1] if similar else ""
