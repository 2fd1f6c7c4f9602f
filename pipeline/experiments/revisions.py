"""The results of experiments and commits, read from git and DVC's cache without a checkout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.git import content, experiments, files_of, git, resolve, tree
from pipeline.identity import code_key
from pipeline.tracking.results import WORKSPACE, Results, WorkTree


class Experiment(Results):
    """The results of one experiment, commit, branch or tag.

    name: what a person calls it. commit: its hash; resolved from the name if it is not given.
    """

    def __init__(self, name: str, commit: str = ""):
        self.name, self.commit = name, commit or resolve(name)

    def text(self, path: str) -> str:
        try:
            return content(tree(self.commit)[path]).decode("utf-8")
        except KeyError:
            raise ValueError(f"{self.name} has no {path} in git. Run `dvc exp run`, or commit the file.") from None

    def code(self, path: str) -> dict[str, str]:
        files = {PurePosixPath(path, name): blob for name, blob in files_of(self.commit, path).items()}
        return {str(file): blob_code_key(blob) for file, blob in files.items() if file.suffix == ".py"}

    def file(self, path: str) -> Path:
        if path in self._md5s:
            return self._in_cache(path, self._md5s[path])
        above, _, name = path.rpartition("/")
        return self.folder(above)[name]

    def folder(self, path: str) -> dict[str, Path]:
        md5 = self._md5s.get(path, "")
        self._in_cache(path, md5)
        return {name: self._in_cache(f"{path}/{name}", inner) for name, inner in members(md5).items()}

    @cached_property
    def _md5s(self) -> dict[str, str]:
        return self.outs()

    def _in_cache(self, path: str, md5: str) -> Path:
        if not md5 or not (place := cache_file(md5)).is_file():
            raise ValueError(
                f"{path} of {self.name} is not in DVC's cache. `dvc exp pull` or `dvc fetch --all-commits` fetches it, "
                "`dvc exp run` computes it again."
            )
        return place


@cache
def blob_code_key(blob: str) -> str:
    """The code_key of a Python file, from its hash in git."""
    return code_key(content(blob).decode())


def project(root: Path | None = None) -> Any:
    """DVC's view of a project; root: default: the current folder. Raises ValueError without a git repository.

    DVCFileSystem(rev=...) gives the same files, and takes 0.5 s a commit, as it reads all of the commit's pipeline.
    """
    return open_project(root or Path.cwd())


@cache
def open_project(root: Path) -> Any:
    """See `project`."""
    git("rev-parse", "--git-dir")  # its message says what to type without a repository
    from dvc.repo import Repo  # imported here, since it takes a second

    return Repo(str(root))


def cache_file(md5: str) -> Path:
    """The file in DVC's cache that has the content with an md5; it need not exist."""
    return Path(project().cache.local.oid_to_path(md5))


@cache
def members(md5: str) -> dict[str, str]:
    """The files of a folder in DVC's cache, by its md5: name in the folder -> md5; none for a file."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree

    if not md5.endswith(".dir") or not cache_file(md5).is_file():
        return {}
    listing = Tree.load(project().cache.local, HashInfo("md5", md5))
    return {"/".join(key): info.value for key, _, info in listing if info and info.value}


def results(name: str) -> Results:
    """The results of `workspace`, or of an experiment, commit, branch or tag. Raises ValueError for an unknown name."""
    return WorkTree() if name == WORKSPACE else Experiment(name)


def stored_results(history: bool = True) -> list[tuple[Experiment, dict[str, str]]]:
    """HEAD and each DVC experiment, with the tags that say where it comes from.

    history: also each other commit that changed dvc.lock, which a clone has without having run it. Order: HEAD and the
    experiments by date, then the other commits by date.
    """
    tags = {
        experiment.commit: {
            "git_commit": experiment.baseline,
            "DVC_EXP_NAME": experiment.name,
            "DVC_EXP_BASELINE_REV": experiment.baseline,
        }
        for experiment in experiments()
    }
    # --all is each reference and HEAD, which no branch may have.
    commits = git("rev-list", "--exclude=refs/exps/*", "--exclude=refs/stash", "--all", "--", "dvc.lock").split()
    if not commits and not tags:
        return []
    head = resolve("HEAD")
    dates = git("log", "--no-walk=unsorted", "--format=%ct %H", head, *tags, *(commits if history else ())).split("\n")
    dated = {commit: int(date) for date, commit in (line.split() for line in dates if line)}
    order = sorted(dated, key=lambda commit: (commit != head and commit not in tags, dated[commit], commit))
    origins = [(commit, tags.get(commit, {"git_commit": commit})) for commit in order]
    return [(Experiment(origin.get("DVC_EXP_NAME", commit[:10]), commit), origin) for commit, origin in origins]


def link_folder(files: Mapping[str, Path], place: Path) -> None:
    """Make a folder `place` of links to files. files: name -> file; see `Results.folder`."""
    place.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        (place / name).symlink_to(file.resolve())
