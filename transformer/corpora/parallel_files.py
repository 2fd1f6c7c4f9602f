"""Parallel text from files: the user's own, or a download that a lock file describes; both are checked."""

from __future__ import annotations

import gzip
import json
import os
import sys
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from transformer.credentials import mask_credentials, request
from transformer.files import sha256

SPLITS = ("train", "valid", "test")
SIDES = ("source", "target")
Corpus = dict[tuple[str, str], list[str]]  # (split, side) -> lines


def user_corpus(folder: Path, source: str, target: str) -> Corpus:
    """Read {train,valid,test}.{source,target} in a folder, source and target being language codes.

    Raises ValueError for a file that is missing or cannot be used.
    """
    languages = dict(zip(SIDES, (source, target), strict=True))
    paths = {(split, side): folder / f"{split}.{languages[side]}" for split in SPLITS for side in SIDES}
    for path in paths.values():
        if not path.is_file():
            raise ValueError(
                f"{path} is missing. The folder corpus_path must contain train, valid and test files that end in "
                f".{source} and .{target}. For the built-in corpus set corpus=toy."
            )
    return checked({key: decode(path.read_bytes(), str(path)) for key, path in paths.items()}, paths)


def locked_corpus(
    lock: Path, source: str, target: str, folder: Path, progress: Callable[[str, int], Callable]
) -> Corpus:
    """Download the files of a lock file into `folder` and read them, each one only after its sha256 is checked.

    progress: progress(name, bytes) starts a progress display and returns a function that takes the number of new bytes.
    The environment variable CORPUS_MIRROR, a folder or an address, replaces the base address of the lock file.
    """
    record = json.loads(lock.read_text(encoding="utf-8"))
    base = os.environ.get("CORPUS_MIRROR") or record["base"]
    base = base if "://" in base else Path(base).absolute().as_uri()
    languages = dict(zip(SIDES, (source, target), strict=True))
    corpus, places = {}, {}
    for split in SPLITS:
        for side in SIDES:
            entry = record["files"].get(f"{split}.{languages[side]}")
            if entry is None:
                offered = sorted({name.split(".")[1] for name in record["files"]})
                raise ValueError(f"{lock}: no language {languages[side]!r}; set source and target to {offered}.")
            path = folder / Path(entry["path"]).name
            fetch(f"{base.rstrip('/')}/{entry['path']}", path, entry, progress(path.name, entry["size"]))
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            corpus[split, side], places[split, side] = decode(data, path.name), path.name
            if len(corpus[split, side]) != entry["lines"]:
                found = f"{path.name} has {len(corpus[split, side])} lines, but {lock} says {entry['lines']}"
                raise ValueError(f"{found}. Correct the lock file.")
    return checked(corpus, places)


def fetch(address: str, path: Path, entry: dict, advance: Callable[[int], None]) -> None:
    """Download one file and compare its sha256 with its entry in the lock file.

    advance: takes the number of new bytes. Raises ValueError with the address and what to do.
    """
    try:
        with urllib.request.urlopen(request(address), timeout=60) as reply, open(path, "wb") as file:
            while block := reply.read(1 << 16):
                file.write(block)
                advance(len(block))
                if file.tell() > entry["size"]:
                    break  # longer than the lock file says, so the checksum below cannot match
    except (OSError, ValueError, HTTPException) as error:  # URLError is an OSError; a broken reply an HTTPException
        reason = getattr(error, "reason", None) or f"{error or type(error).__name__}"
        path.unlink(missing_ok=True)
        raise ValueError(
            mask_credentials(f"{address}: cannot download ({reason}). Set CORPUS_MIRROR to a folder or address that ")
            + "has this file."
        ) from None
    found = sha256(path)
    if found != entry["sha256"]:
        path.unlink()
        place = mask_credentials(address)
        raise ValueError(f"{place}: sha256 {found} is not the locked {entry['sha256']}. The download was deleted.")


def decode(data: bytes, name: str) -> list[str]:
    """The lines of UTF-8 data. Only \\n ends a line; other white space (\\r, \\x85, U+2028, ...) becomes a space.

    name: the file's name, for messages. A byte-order mark at the start is removed with a warning. Raises ValueError
    with file and line for a NUL character or invalid UTF-8.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        print(f"{name}: removed the byte-order mark at its start", file=sys.stderr)
        data = data[3:]
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}:{number}: invalid UTF-8 ({error.reason}). Convert the file to UTF-8.") from None
        if "\0" in text:
            raise ValueError(f"{name}:{number}: a NUL character. Remove it, or use a text file.")
        texts.append(" ".join(text.split()))
    return texts


def checked(corpus: Corpus, names: dict) -> Corpus:
    """The corpus, unchanged. Raises ValueError with files and counts if sides differ in length or a split is empty.

    names: the file of each split and side, for messages.
    """
    for split in SPLITS:
        counts = [len(corpus[split, side]) for side in SIDES]
        files = [names[split, side] for side in SIDES]
        if counts[0] != counts[1]:
            more, fewer = (0, 1) if counts[0] > counts[1] else (1, 0)
            raise ValueError(
                f"{files[more]} has {counts[more]} lines and {files[fewer]} {counts[fewer]}, "
                f"{counts[more] - counts[fewer]} fewer. Line n of one file must translate line n of the other."
            )
        if not counts[0]:
            raise ValueError(f"{files[0]} is empty. The {split} set needs at least one pair of lines.")
    return corpus
