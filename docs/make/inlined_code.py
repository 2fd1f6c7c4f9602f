"""The code of the package as the walkthrough shows it: whole objects, in narrower columns."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

COLUMNS = 88  # of inlined code, which then fits a code host's page without scrolling
CUT = "# the next block"


def code_of(name: str, drop: tuple[str, ...] = ()) -> str:
    """The code of an object, as its file has it.

    name: `text.pairs:Batch`, the object Batch of transformer/text/pairs.py. drop: methods that are not shown.
    """
    module, _, path = name.partition(":")
    thing: Any = import_module(f"transformer.{module}")
    for part in path.split("."):
        thing = inspect.getattr_static(thing, part)
    lines = textwrap.dedent(inspect.getsource(inspect.unwrap(thing))).rstrip().split("\n")
    if drop:
        definition = ast.parse("\n".join(lines)).body[0]
        assert isinstance(definition, ast.ClassDef)
        for node in reversed(definition.body):
            if isinstance(node, ast.FunctionDef) and node.name in drop:
                start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                del lines[start - 1 : node.end_lineno]
    return "\n".join(lines).rstrip() + "\n"


def narrow(codes: list[str]) -> list[str]:
    """The same code in COLUMNS columns: docstrings and comments wrapped anew, long remarks above their line."""
    command = [sys.executable, "-m", "ruff", "format", "--line-length", str(COLUMNS), "-"]
    code = "\n".join(with_remarks_above(f"\n{CUT}\n".join(codes).split("\n")))
    code = subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout
    return ["\n".join(narrow_lines(part.strip("\n").split("\n"))) for part in code.split(CUT)]


def with_remarks_above(lines: list[str]) -> Iterator[str]:
    """Lines of code; a remark behind code that makes its line too long stands above it."""
    for line in lines:
        code, mark, remark = line.partition("  # ")
        if mark and len(line) > COLUMNS and code.strip():
            yield f"{code[: len(code) - len(code.lstrip())]}# {remark}"
            line = code
        yield line


def narrow_lines(lines: list[str]) -> Iterator[str]:
    """Lines whose docstrings and comments are wrapped to COLUMNS columns, paragraph by paragraph."""
    paragraph, inside = list[str](), False
    for line in lines:
        text = line.strip()
        opens = text.startswith('"""')
        prose = text.startswith("# ") or opens or (inside and text not in ("", '"""'))
        if paragraph and (not prose or opens or (text[0] == "#") != (paragraph[0].lstrip()[0] == "#")):
            yield from wrapped(paragraph)
            paragraph = []
        if prose:
            paragraph.append(line)
        else:
            yield line
        if text.count('"""') == 1:
            inside = not inside
    yield from wrapped(paragraph) if paragraph else ()


def wrapped(paragraph: list[str]) -> list[str]:
    """A paragraph of a docstring or comment, wrapped anew if a line of it is too long."""
    if max(map(len, paragraph)) <= COLUMNS:
        return paragraph
    mark = "# " if paragraph[0].lstrip().startswith("# ") else ""
    margin = paragraph[0][: len(paragraph[0]) - len(paragraph[0].lstrip())] + mark
    text = " ".join(line.strip().removeprefix(mark) for line in paragraph)
    text = re.sub(r"\([^()]{1,30}\)", lambda shape: shape[0].replace(" ", "\0"), text)  # shapes stay on a line
    lines = textwrap.wrap(text, COLUMNS, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]
