"""Hashes that identify a computation by its code, settings and data."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformer.files import sha256, sha256_text

CODE = ("transformer.", "pipeline.training.")
# Files and folders that cannot change a result, so that no stage but record depends on them.
CANNOT_CHANGE_A_RESULT = ("transformer/tracking/", "transformer/cores.py", "pipeline/shared/", "pipeline/commands/")


def code_key() -> str:
    """One hash of the modules that this process has loaded and that can change a result."""
    files = {name: module.__file__ for name, module in sys.modules.items() if name.startswith(CODE)}
    modules = tuple(path.removesuffix(".py").replace("/", ".") for path in CANNOT_CHANGE_A_RESULT)
    parts = sorted(name for name in files if not name.startswith(modules))
    return sha256_text("".join(f"{sha256(Path(str(files[name])))}  {name}\n" for name in parts))


def content_key(**parts: object) -> str:
    """One hash of named plain values. The order of the names does not matter."""
    return sha256_text(json.dumps(parts, sort_keys=True))
