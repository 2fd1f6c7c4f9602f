"""Whether dvc.lock belongs to the files beside it: no file, param or command was edited after the run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from pipeline.experiments.revisions import Experiment, members, project
from pipeline.git import content, dvc_files, files_of, git, resolve, tree, unknown
from pipeline.results import LAST, Results, parse_yaml
from pipeline.stage import params_of, path_of
from pipeline.tracking.finished_run import makers


def check_fresh(results: Results) -> None:
    """Raise ValueError if a stage other than `record` would run again: the scores are not those of these files."""
    if edits := stale(results):
        raise ValueError(
            f"The results of {results.name} are not those of its files. `dvc repro` would run again: {edits}. "
            "Run it (and commit what it writes), then repeat this."
        )


def stale(results: Results) -> str:
    """What was edited after the last run, or never run, as `stage (names), ...`; empty if nothing was.

    Prints a remark if git cannot say whether an input was edited.
    """
    edits = commit_changes(results) if isinstance(results, Experiment) else work_tree_changes()
    stages = [f"{name} ({', '.join(names[:3])}{', …' * bool(names[3:])})" for name, names in edits.items()]
    return ", ".join(stages[:3]) + (f" and {len(stages) - 3} more" if stages[3:] else "")


def work_tree_changes() -> dict[str, list[str]]:
    """The stale stages of the work tree: name -> the deps, params and outs that differ from dvc.lock.

    The stage that writes the run is left out.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        status = Repo().status()
    except DvcException as error:
        raise ValueError(str(error)) from None
    return {stage: list(changed_names(parts)) for stage, parts in status.items() if stage != LAST}


def check_unedited(results: Results) -> None:
    """Raise ValueError if params, code, data or outs were edited after a stage that made these results had run.

    `work_tree_changes` says the same, but not while DVC runs a stage.
    """
    outs = results.outs()
    for stage, entry in makers(results).items():
        files = project().stage.load_one(name=stage)
        statuses = [file.workspace_status() for file in (*files.deps, *files.outs)]
        names = list(changed_names([{"files": status} for status in statuses if status]))
        names += [dep["path"] for dep in entry.get("deps", []) if outs.get(dep["path"], dep["md5"]) != dep["md5"]]
        if names:
            raise ValueError(
                f"{', '.join(names)} changed while or after stage {stage} ran, so the scores are not those of these "
                "files. No run was written. Run `dvc repro`. If you undo the edit first, no training is repeated."
            )


def changed_names(parts: list) -> Iterator[str]:
    """The names of what changed in a stage, from its part of DVC's status."""
    for part in parts:
        for what, changed in part.items() if isinstance(part, dict) else [(part, {})]:
            for path, how in changed.items() or [(what, "")]:  # an edited command has no paths
                yield from how if isinstance(how, dict) else [path]


def commit_changes(results: Experiment) -> dict[str, list[str]]:
    """As `work_tree_changes`, of a commit; an edited command is `changed command`."""
    stages = stages_of(results.text("dvc.yaml"), parse_yaml(results.text("params.yaml")))
    lock = results.lock()
    outs = results.outs()

    def differing(stage: dict, entry: dict) -> Iterator[str]:
        if entry.get("cmd") != stage["cmd"].replace("\\${", "${"):  # as DVC hands it to the shell
            yield "changed command"
        recorded = {dep["path"]: dep["md5"] for dep in entry.get("deps", [])}
        deps = {path_of(dep) for dep in stage.get("deps", [])}
        yield from sorted(deps ^ recorded.keys())
        for path in sorted(deps & recorded.keys()):
            same = outs[path] == recorded[path] if path in outs else is_same(results.commit, path, recorded[path])
            if same is None:
                remark_not_compared(path)
            elif not same:
                yield path
        yield from (
            out["path"] for out in entry.get("outs", []) if is_same(results.commit, out["path"], out["md5"]) is False
        )
        for file, names in params_of(stage):
            values, used = parse_yaml(results.text(file)), entry.get("params", {}).get(file, {})
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
    return dict(parse_yaml(text)["stages"])


@cache
def remark_not_compared(path: str) -> None:
    """Print that an input was not compared, once for all results."""
    print(
        f"remark: git does not have {path} as DVC reads it, so it was not compared: results of commits may be of an "
        "other version of it.",
        file=sys.stderr,
    )


def is_same(commit: str, path: str, recorded: str) -> bool | None:
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
        place, md5 = name.removesuffix(".dvc"), parse_yaml(content(tree(commit)[name]).decode())["outs"][0]["md5"]
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
    """The files of HEAD that the work tree has otherwise."""
    return git("diff", "--name-only", "-z", "--relative", "HEAD").split("\0")[:-1]


def edited(path: str) -> bool:
    """Whether the work tree has a file or folder otherwise than HEAD, as far as git sees."""
    return any(f"{name}/".startswith(f"{path.rstrip('/')}/") for name in edited_files())


@cache
def is_converted(path: str) -> bool:
    """Whether a file at a path has other bytes than git, which sees no edit: a link, git LFS, converted line ends."""
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
