"""The md5s that dvc.lock names: of files and folders of a commit, and of those on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pipeline.experiments.revisions import members, project
from pipeline.git import content, dvc_files, files_of, git, resolve, tree, unknown
from pipeline.params import parse_yaml


def has_md5(commit: str, path: str, recorded: str) -> bool | None:
    """Whether a file or folder of a commit has an md5; None if git does not have the bytes that DVC reads."""
    if "" in files_of(commit, path) and Path(path).is_symlink():  # of which git has only where it leads
        path = os.path.relpath(os.path.realpath(path), os.path.realpath("."))
    md5 = md5_in_git(commit, path)
    if md5 is None or md5 == recorded:
        return None if md5 is None else True
    if unknown(Path(path)):  # files that only this clone has
        return None
    head = resolve("HEAD")
    names = [path, *dvc_files(path, {**tree(commit), **tree(head)})]
    if (
        all(files_of(commit, name) == files_of(head, name) for name in names)
        and not edited(path)
        and Path(path).exists()
    ):
        return md5_by_dvc(path) == recorded
    return None if is_converted(path) else False


@cache
def md5_in_git(commit: str, path: str) -> str | None:
    """The md5 of a file or folder of a commit, as in dvc.lock; None if git has neither it nor its .dvc file."""
    path = path.rstrip("/")
    files = {f"{path}/{name}".rstrip("/"): blob_md5(blob) for name, blob in files_of(commit, path).items()}
    for name in dvc_files(path, tree(commit)):
        outs = parse_yaml(content(tree(commit)[name]).decode(), name)["outs"]
        place, md5 = name.removesuffix(".dvc"), outs[0]["md5"]
        if place == path:
            return md5
        listing = members(md5)
        if md5.endswith(".dir") and not listing:
            return None  # DVC's cache does not have the folder
        files |= {f"{place}/{inner}": inner_md5 for inner, inner_md5 in listing.items()} or {place: md5}
    if path in files:
        return files[path]
    inside = {name[len(path) + 1 :]: md5 for name, md5 in files.items() if name.startswith(f"{path}/")}
    return folder_md5({name: md5 for name, md5 in inside.items() if not ignored(f"{path}/{name}")}) if inside else None


@cache
def blob_md5(blob: str) -> str:
    """The md5 of a file, from its hash in git."""
    data = content.__wrapped__(blob)  # not kept in memory: it may be a corpus
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@cache
def ignored(path: str) -> bool:
    """Whether .dvcignore names a file, so that DVC does not count it as part of its folder."""
    return project().dvcignore.is_ignored_file(str(Path(path).absolute()))


@cache
def edited_files() -> list[str]:
    """The files whose content in the work tree differs from HEAD."""
    return git("diff", "--name-only", "-z", "--relative", "HEAD").split("\0")[:-1]


def edited(path: str) -> bool:
    """Whether git reports an edit of a file or folder since HEAD."""
    return any(f"{name}/".startswith(f"{path.rstrip('/')}/") for name in edited_files())


@cache
def is_converted(path: str) -> bool:
    """Whether a file at a path has other bytes than git although git reports no edit.

    Causes are a link, git LFS and converted line ends.
    """
    files = {Path(path, name): blob for name, blob in files_of(resolve("HEAD"), path).items()}
    return any(
        file.exists() and not edited(file.as_posix()) and md5_on_disk(file) != blob_md5(blob)
        for file, blob in files.items()
    )


@cache
def md5_by_dvc(path: str) -> str:
    """The md5 of a file or folder on disk, without what .dvcignore names. DVC remembers those of large files."""
    from dvc_data.hashfile.build import build

    *_, data = build(project().cache.local, path, project().fs, "md5", ignore=project().dvcignore, dry_run=True)
    return str(data.hash_info.value)


def folder_md5(files: Mapping[str, str]) -> str:
    """The md5 of a folder, as in dvc.lock. files: path in the folder -> md5."""
    listing = [{"md5": files[name], "relpath": name} for name in sorted(files)]
    return hashlib.md5(json.dumps(listing, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


def md5_on_disk(path: Path) -> str:
    """The md5 of a file or folder on disk, as in dvc.lock."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
        return folder_md5({file.relative_to(path).as_posix(): md5_on_disk(file) for file in files})
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
