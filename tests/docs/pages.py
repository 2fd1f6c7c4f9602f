"""The pages of the project, taken apart: their links, their blocks of shell and of Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.tiny import ROOT

NAMES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
SHELL, PYTHON, OUTPUT = ("sh", "indented"), ("python",), ("text",)


@dataclass(frozen=True)
class Block:
    """A block of code: `kind` is the word behind the fence, or `indented`; `line` is the number of its first line."""

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, text: str) -> Iterator[Block]:
    """The blocks of a page: fenced ones, and lines that are indented by four spaces after an empty line."""
    kind, start, found, before = "", 0, [], ""
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        if kind and kind != "indented":
            if line == "```":
                yield Block(page, start, kind, "\n".join(found))
                kind = ""
            else:
                found.append(line)
        elif line.startswith("```"):
            kind, start, found = line[3:] or "no language", number + 1, []
        elif line.startswith("    ") and (kind or not before):
            kind, start, found = "indented", start if kind else number, [*found, line[4:]] if kind else [line[4:]]
        elif kind:
            yield Block(page, start, kind, "\n".join(found))
            kind = ""
        before = line


def shell_lines(block: Block) -> Iterator[tuple[str, str]]:
    """The command lines of a block, without comments, each with its place (page:line)."""
    for number, line in enumerate(block.text.split("\n"), start=block.line):
        if command := re.sub(r"(^|\s+)#.*", "", line).strip():
            yield f"{block.page}:{number}", command


def without_blocks(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """A page without its blocks of code and without code in sentences."""
    return re.sub(r"`[^`\n]*`", "code", without_blocks(text))


def links(text: str) -> list[str]:
    """The targets of the links and pictures of a page."""
    plain = prose(text)
    return re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r'(?:src|href)="([^"]+)"', plain)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them, and those that HTML names."""
    found = set(re.findall(r' id="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = sum(1 for one in found if re.fullmatch(rf"{re.escape(name)}(-\d+)?", one))
        found.add(f"{name}-{count}" if count else name)
    return found


def read(name: str) -> str:
    """The text of a page."""
    return (ROOT / name).read_text(encoding="utf-8")


def folder_of(name: str) -> Path:
    """The folder that relative links of a page start from."""
    return (ROOT / name).parent
