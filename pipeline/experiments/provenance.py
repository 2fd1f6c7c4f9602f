"""What results were made from: whether dvc.lock belongs to the files beside it, and the data, code and versions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.git import content, git, resolved, tree
from pipeline.identity import code_key
from pipeline.versions import RECORD, ROOT, of_stage, release

# Facts of reports/environment.json that change the order of sums.
PROCESSOR = ("machine", "cpu", "threads", "device", "devices", "instructions", "bfloat16", "sharding")
LAST = ("record", "register")  # the stage that writes the run: today's name, and that of version 0.1


@cache
def parsed(text: str) -> Any:
    """The values of a YAML text; to be read only, since they are cached. Raises ValueError if it is not valid."""
    try:
        return YAML(typ="safe").load(text) or {}
    except YAMLError as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())[:150]}") from None


@cache
def blob_md5(blob: str) -> str:
    """The md5 of a file of a commit, as in dvc.lock."""
    return hashlib.md5(content(blob), usedforsecurity=False).hexdigest()


@cache
def blob_code_key(blob: str) -> str:
    """The code_key of a Python file of a commit."""
    return code_key(content(blob).decode())


def files_of(commit: str, path: str) -> dict[str, str]:
    """The files of a commit at a path, a file or a folder: name in the folder -> hash of the content in git."""
    files, path = tree(commit), path.rstrip("/")
    if path in files:
        return {"": files[path]}
    return {name.removeprefix(f"{path}/"): blob for name, blob in files.items() if name.startswith(f"{path}/")}


def md5(commit: str, path: str) -> str | None:
    """The md5 of a file or folder of a commit, as in dvc.lock; None if git has neither it nor its .dvc file."""
    if added := files_of(commit, f"{path.rstrip('/')}.dvc"):  # by `dvc add`
        return parsed(content(added[""]).decode())["outs"][0]["md5"]
    found = files_of(commit, path)
    if not found or "" in found:
        return blob_md5(found[""]) if found else None
    return folder_md5({name: blob_md5(blob) for name, blob in found.items()})


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


@cache
def checked_out_md5(commit: str, path: str) -> str | None:
    """The md5 of a path in the work tree, if that is as in the commit; else None.

    Git holds other bytes than DVC reads where a corpus has links, line ends that git converts, or ignored files.
    """
    head = resolved("HEAD")  # its hash, since files are cached by commit
    if files_of(commit, path) != files_of(head, path) or git("status", "--porcelain", "--", path):
        return None
    return md5_on_disk(Path(path)) if Path(path).exists() else None


def stages_of(dvc_yaml: str, params: Mapping[str, object]) -> dict[str, dict]:
    """The stages of a dvc.yaml with the values of params in place of ${name}."""
    return parsed(re.sub(r"(?<!\\)\$\{(\w+)\}", lambda found: str(params.get(found[1], found[0])), dvc_yaml))["stages"]


def path_of(entry: str | dict) -> str:
    """The path of a dep or out in dvc.yaml."""
    return entry if isinstance(entry, str) else next(iter(entry))


def params_of(stage: dict) -> Iterator[tuple[str, list[str]]]:
    """The params of a stage in dvc.yaml: each file and its names; no names stand for all of the file."""
    for one in stage.get("params", []):
        for file, names in (one if isinstance(one, dict) else {"params.yaml": [one]}).items():
            yield file, names or []


def changes(commit: str, text: Callable[[str], str]) -> dict[str, list[str]]:
    """For each stage whose entry in dvc.lock is not that of the commit's files: the deps, params and outs that differ,
    or `changed command`.

    text: path -> text of a file of the commit. What git does not have, such as a corpus outside of it, is not compared.
    The stage that writes the run is left out.
    """
    params = parsed(text("params.yaml"))
    stages, lock = stages_of(text("dvc.yaml"), params), parsed(text("dvc.lock")).get("stages", {})
    made = {out["path"]: out["md5"] for entry in lock.values() for out in entry.get("outs", [])}
    known = {dep["path"]: dep["md5"] for entry in lock.values() for dep in entry.get("deps", [])}

    def held(path: str) -> str | None:
        found = md5(commit, path)
        return found if not found or found == known.get(path, found) else checked_out_md5(commit, path) or found

    found: dict[str, list[str]] = {}
    for name, stage in stages.items():
        if name in LAST:
            continue
        if name not in lock:
            found[name] = ["never run"]
        elif differing := list(stage_changes(stage, lock[name], made, held, text)):
            found[name] = differing
    return found


def stage_changes(
    stage: dict, entry: dict, made: Mapping[str, str], held: Callable[[str], str | None], text: Callable[[str], str]
) -> Iterator[str]:
    """The deps, params and outs of a stage that differ from its entry in dvc.lock.

    made: out of any stage -> md5 in dvc.lock. held: path -> md5 of what git has, or None.
    """
    if entry.get("cmd") != stage["cmd"].replace("\\${", "${"):  # as DVC hands it to the shell
        yield "changed command"
    deps = {dep["path"]: dep["md5"] for dep in entry.get("deps", [])}
    wanted = {path_of(dep) for dep in stage.get("deps", [])}
    yield from sorted(wanted ^ deps.keys())
    for path in sorted(wanted & deps.keys()):
        if (made.get(path) or held(path) or deps[path]) != deps[path]:
            yield path
    for out in entry.get("outs", []):
        if (held(out["path"]) or out["md5"]) != out["md5"]:
            yield out["path"]
    for file, names in params_of(stage):
        values, used = parsed(text(file)), entry.get("params", {}).get(file, {})
        for name in names or sorted(values.keys() | used.keys()):
            if name not in used or name not in values or used[name] != values[name]:
                yield name


def names(parts: list) -> Iterator[str]:
    """The names of what changed in a stage, from its part of `dvc status --json`."""
    for part in parts:
        for what, changed in part.items() if isinstance(part, dict) else [(part, {})]:
            for path, how in changed.items() or [(what, "")]:  # an edited command has no paths
                yield from how if isinstance(how, dict) else [path]


def before_score(lock: Mapping[str, dict]) -> list[str]:
    """The stages of a dvc.lock on which the scores depend, `score` included."""
    makers = {out["path"]: name for name, entry in lock.items() for out in entry.get("outs", [])}
    found, waiting = set[str](), ["score"]
    while waiting:
        name = waiting.pop()
        if name not in found and name in lock:
            found.add(name)
            waiting += [makers[dep["path"]] for dep in lock[name].get("deps", []) if dep["path"] in makers]
    return [name for name in lock if name in found]


def origins(
    lock: Mapping[str, dict],
    init_from: str,
    text: Callable[[str], str],
    code: Callable[[str], Mapping[str, str]],
) -> dict[str, dict[str, str]]:
    """What the scores of a dvc.lock were made from, besides the knobs: data, code and versions, each name -> hash.

    text: path -> text of a file in git. code: dep -> its Python files, path -> code_key.
    """
    stages = [lock[name] for name in before_score(lock)]
    deps = {dep["path"]: dep["md5"] for entry in stages for dep in entry.get("deps", [])}
    data = {path: deps[path] for path in ("data/raw", init_from) if path in deps}
    made = {out["path"] for entry in stages for out in entry.get("outs", [])}
    sources = {name: key for path in deps if path not in made for name, key in code(path).items()}
    return {"data": data, "code": dict(sorted(sources.items())), "versions": versions(text)}


def versions(text: Callable[[str], str]) -> dict[str, str]:
    """The versions of the packages that this checkout's stages up to `score` compute with, where they are recorded.

    Results from before versions.yaml have those of requirements.lock.
    """
    stages = parsed((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    names = {
        package
        for name, stage in stages.items()
        if name not in ("attention", "report", "compare_engines", *LAST)
        for package in of_stage(stage)
    }
    try:
        known = parsed(text(RECORD))
    except (ValueError, OSError):
        known = pinned(text)
    return {name: release(known[name]) for name in sorted(names & known.keys(), key=str.lower)}


def pinned(text: Callable[[str], str]) -> dict[str, str]:
    """The versions in requirements.lock; empty without that file."""
    try:
        lines = text("requirements.lock").split("\n")
    except (ValueError, OSError):
        return {}
    return dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))


def code_of_commit(commit: str, path: str) -> dict[str, str]:
    """The Python files of a commit at a path: path -> code_key."""
    return {
        str(PurePosixPath(path, name)): blob_code_key(blob)
        for name, blob in files_of(commit, path).items()
        if PurePosixPath(path, name).suffix == ".py"
    }
