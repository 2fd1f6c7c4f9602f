"""Write what the manifest of a corpus lacks: sizes, sha256 and numbers of lines of its files.

    python -m pipeline manifest corpora/multi30k.json

It fetches the files that have no sha256 or no number of lines yet, and reads those to count lines. A checksum that
nobody published is trusted on first use: look at what is printed, then commit the manifest. The stage download only
accepts files with these checksums, and never writes a manifest.

Reads   the manifest: addresses, and which text is in which file
Writes  the manifest; work/downloads
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.workflow.stage import bar, project_root
from transformer.corpora.fetching import fetch_all
from transformer.corpora.manifest import Manifest, lines
from transformer.files import Mistake, sha256, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path, metavar="MANIFEST", help="such as corpora/multi30k.json")
    options = parser.parse_args()
    manifest = Manifest.load(options.manifest)
    missing = [name for name in manifest.content["files"] if is_incomplete(manifest, name)]
    left = []
    for name in missing:
        if (path := fetch(manifest, name)) is None:
            left.append(name)
            continue
        complete(manifest, name, path)
        write_json(manifest.path, manifest.content)  # now, or an error in a later file would lose this sum
    files = manifest.content["files"]
    stand_ins = {entry.get("fallback") for entry in files.values() if entry["sha256"]} & set(left)
    left = [name for name in left if name not in stand_ins]
    if missing and left == missing:
        raise Mistake(f"{manifest.path} stays as it is: none of {', '.join(left)} can be fetched.")
    if stand_ins:
        print(f"Not needed: {', '.join(sorted(stand_ins))}, which would stand in for a file that the manifest has.")
    print(
        f"{manifest.path} is complete."
        if not left
        else f"{manifest.path} was written. It still lacks {', '.join(left)}."
    )


def parts_of(manifest: Manifest, name: str) -> list[dict[str, Any]]:
    """The parts of splits that are in a file, or in the file that it stands in for."""
    names = {name} | {other for other, entry in manifest.content["files"].items() if entry.get("fallback") == name}
    return [
        part
        for texts in manifest.content["splits"].values()
        for parts in texts.values()
        for part in parts
        if part["file"] in names
    ]


def is_incomplete(manifest: Manifest, name: str) -> bool:
    """Whether the manifest has no checksum of a file, or no number of lines of a part of it."""
    return not manifest.content["files"][name]["sha256"] or any(
        part["lines"] is None for part in parts_of(manifest, name)
    )


def fetch(manifest: Manifest, name: str) -> Path | None:
    """A file of the corpus; None, with a message, if it cannot be fetched."""
    download = replace(manifest.download(name), fallback=None)  # this file, not the one that may stand in for it
    try:
        with bar(download.size or 0, "B", f"download {name}") as progress:
            return fetch_all({name: download}, project_root() / "work/downloads", progress.update)[name]
    except Mistake as error:
        print(error, file=sys.stderr)
        return None


def complete(manifest: Manifest, name: str, path: Path) -> None:
    """Write size, checksum and numbers of lines of a fetched file into the manifest."""
    entry = manifest.content["files"][name]
    for part in parts_of(manifest, name):
        text = lines({**part, "lines": None}, path)
        for _ in text:
            pass
        if part["lines"] not in (None, text.count):
            raise Mistake(
                f"{text.name} has {text.count} lines, but {manifest.path} says {part['lines']}. "
                f"Write the right number into {manifest.path}."
            )
        part["lines"] = text.count
    if not entry["sha256"]:
        entry["size"], entry["sha256"] = path.stat().st_size, sha256(path)
        path.rename(manifest.download(name).path(path.parent))  # where the stage download looks for it
        basis = (
            "its published md5 is right" if entry.get("md5") else "nobody published a sum of it: trusted on first use"
        )
        print(f"{name}: {entry['size']:,} bytes, sha256 {entry['sha256']} ({basis})")
