"""Whether dvc.lock of a commit belongs to the commit's files: no file, param or command was edited after the run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from pipeline.git import content, files_of, git, resolved
from pipeline.stage import params_of, path_of
from pipeline.tracking.results import LAST, parsed


def changes(commit: str, text: Callable[[str], str]) -> dict[str, list[str]]:
    """The stale stages of a commit: name -> the deps, params and outs that differ from dvc.lock, or `changed command`.

    text: path -> text of a file of the commit. What git does not have, such as a corpus outside of it, is not compared.
    The stage that writes the run is left out.
    """
    stages = stages_of(text("dvc.yaml"), parsed(text("params.yaml")))
    lock = parsed(text("dvc.lock")).get("stages", {})
    outs = {out["path"]: out["md5"] for entry in lock.values() for out in entry.get("outs", [])}

    def unlike(path: str, recorded: str) -> bool:
        """Whether git has a file or folder with another md5 than the recorded one."""
        md5 = md5_in_git(commit, path)
        return bool(md5) and md5 != recorded and (checked_out_md5(commit, path) or md5) != recorded

    def differing(stage: dict, entry: dict) -> Iterator[str]:
        if entry.get("cmd") != stage["cmd"].replace("\\${", "${"):  # as DVC hands it to the shell
            yield "changed command"
        recorded = {dep["path"]: dep["md5"] for dep in entry.get("deps", [])}
        deps = {path_of(dep) for dep in stage.get("deps", [])}
        yield from sorted(deps ^ recorded.keys())
        for path in sorted(deps & recorded.keys()):
            if outs[path] != recorded[path] if path in outs else unlike(path, recorded[path]):
                yield path
        yield from (out["path"] for out in entry.get("outs", []) if unlike(out["path"], out["md5"]))
        for file, names in params_of(stage):
            values, used = parsed(text(file)), entry.get("params", {}).get(file, {})
            for name in names or sorted(values.keys() | used.keys()):
                if name not in used or name not in values or used[name] != values[name]:
                    yield name

    stages.pop(LAST, None)
    edits = {
        name: list(differing(stage, lock[name])) if name in lock else ["never run"] for name, stage in stages.items()
    }
    return {name: names for name, names in edits.items() if names}


def stages_of(dvc_yaml: str, params: Mapping[str, object]) -> dict[str, dict]:
    """The stages of a dvc.yaml with the values of params in place of ${name}."""
    text = re.sub(r"(?<!\\)\$\{(\w+)\}", lambda match: str(params.get(match[1], match[0])), dvc_yaml)
    return dict(parsed(text)["stages"])


def md5_in_git(commit: str, path: str) -> str | None:
    """The md5 of a file or folder of a commit, as in dvc.lock; None if git has neither it nor its .dvc file."""
    if added := files_of(commit, f"{path.rstrip('/')}.dvc"):  # by `dvc add`
        return parsed(content(added[""]).decode())["outs"][0]["md5"]
    blobs = files_of(commit, path)
    if not blobs or "" in blobs:
        return blob_md5(blobs[""]) if blobs else None
    return folder_md5({name: blob_md5(blob) for name, blob in blobs.items()})


@cache
def blob_md5(blob: str) -> str:
    """The md5 of a file, from its hash in git."""
    return hashlib.md5(content(blob), usedforsecurity=False).hexdigest()


@cache
def checked_out_md5(commit: str, path: str) -> str | None:
    """The md5 of a path in the work tree, if that is as in the commit; else None.

    Git holds other bytes than DVC reads where a corpus has links, line ends that git converts, or ignored files.
    """
    head = resolved("HEAD")  # its hash, since files are cached by commit
    if files_of(commit, path) != files_of(head, path) or git("status", "--porcelain", "--", path):
        return None
    return md5_on_disk(Path(path)) if Path(path).exists() else None


def folder_md5(files: Mapping[str, str]) -> str:
    """The md5 of a folder, as in dvc.lock. files: path in the folder -> md5."""
    listing = [{"md5": files[name], "relpath": name} for name in sorted(files, key=lambda name: name.split("/"))]
    return hashlib.md5(json.dumps(listing, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


def md5_on_disk(path: Path) -> str:
    """The md5 of a file or folder on disk, as in dvc.lock."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
        return folder_md5({file.relative_to(path).as_posix(): md5_on_disk(file) for file in files})
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
