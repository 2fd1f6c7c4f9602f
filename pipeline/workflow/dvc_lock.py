"""What a result is: params, data, code, versions, outs and scores, as its dvc.lock names them.

One reader for the work tree, commits and experiments. A dvc.lock is accepted if the stages that made the result agree:
a path has one md5, as dep and as out, and a param has one value. A file is read if it has the md5 in
dvc.lock: metrics from git (of a commit) or from the folder (of the work tree); all else, and metrics that were edited,
from DVC's cache. `dvc commit -f` writes what a person says into dvc.lock, and is believed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pipeline.workflow.git import blob_of, experiments, git, resolve
from pipeline.workflow.params import Params, parse_yaml
from pipeline.workflow.versions import VERSIONS, release
from transformer import files
from transformer.files import Mistake

if TYPE_CHECKING:
    from transformer.evaluation.comparison import System

WORKSPACE = "workspace"
LAST = "record"  # the stage that writes the run: no result depends on it
RESULT = ("data/model", "data/hypotheses", "reports/scores.json", "reports/report.html")  # all params stand in report
# Facts of reports/environment.json that change the order of sums.
PROCESSOR = ("machine", "cpu", "threads", "device", "devices", "instructions", "bfloat16")
COMMIT_IT = 'git add dvc.lock reports && git commit -m "First result"'


class NoResult(Mistake):
    """There is no such result, its dvc.lock disagrees with itself, or nothing here has a file that the lock names."""


class Result:
    """The result of the work tree, or of a commit: one line of `dvc exp show`.

    name: what a person calls it. commit: its hash; None: the work tree. root: the folder of the project.
    """

    def __init__(self, name: str = WORKSPACE, commit: str | None = None, root: Path | None = None):
        self.name, self.commit, self.root = name, commit, root or Path()

    def source(self, path: str) -> bytes | None:
        """The content of a file that git has (of the commit) or that lies in the folder (of the work tree), if any."""
        if self.commit is not None:
            return blob_of(self.commit, path)
        return (self.root / path).read_bytes() if (self.root / path).is_file() else None

    @cached_property
    def stages(self) -> dict[str, Any]:
        """The stages in dvc.lock: name -> cmd, deps, params, outs. Raises NoResult if there is no dvc.lock."""
        text = self.source("dvc.lock")
        if text is None:
            remedy = (
                "Run `dvc repro`" if self.commit is None else f"Run `dvc repro` and commit what it writes: {COMMIT_IT}"
            )
            raise NoResult(f"{self.name} has no dvc.lock, so no result. {remedy}.")
        try:
            return parse_yaml(text.decode("utf-8"), f"dvc.lock of {self.name}").get("stages") or {}
        except Mistake as error:
            raise NoResult(str(error)) from None

    def entries(self, *paths: str) -> dict[str, Any]:
        """The stages in dvc.lock that made these outs, directly or not: name -> entry; default: those of RESULT.

        Raises NoResult if an out is not in dvc.lock, or if the stages disagree.
        """
        paths = paths or RESULT
        stages = stages_above(self.stages, paths)
        outs = {out["path"]: out["md5"] for entry in stages.values() for out in entry.get("outs", [])}
        if missing := [path for path in paths if path not in outs]:
            raise NoResult(f"dvc.lock of {self.name} has no {missing[0]}. Run `dvc repro`.")
        seen: dict[tuple[str, str], tuple[str, Any]] = {}
        read = dict(outs)
        for stage, entry in stages.items():
            for dep in entry.get("deps", []):
                if read.setdefault(dep["path"], dep["md5"]) != dep["md5"]:
                    raise self._disagreement(
                        f"stage {stage} read another {dep['path']} than other stages read or wrote"
                    )
            for file, values in entry.get("params", {}).items():
                for knob, value in values.items():
                    other, before = seen.setdefault((file, knob), (stage, value))
                    if before != value:
                        raise self._disagreement(f"{knob} was {before} in stage {other} and {value} in stage {stage}")
        return stages

    def _disagreement(self, how: str) -> NoResult:
        return NoResult(f"dvc.lock of {self.name} is of several runs: {how}. Run `dvc repro`.")

    @cached_property
    def outs(self) -> dict[str, str]:
        """The outs in dvc.lock: path -> md5."""
        return {out["path"]: out["md5"] for entry in self.stages.values() for out in entry.get("outs", [])}

    @cached_property
    def params(self) -> Params:
        """The params of the result, from dvc.lock. Raises NoResult, also if this version has other knobs."""
        values = self.entries()["report"]["params"]["params.yaml"]
        try:
            return Params.parse(json.dumps(values), f"dvc.lock of {self.name}")  # JSON is YAML
        except Mistake as error:
            raise NoResult(f"{self.name} is a result of another version of this project: {error}") from None

    def file(self, path: str) -> Path:
        """A file with the content that dvc.lock says a path has: an out, or a file in an out that is a folder."""
        md5, above = self.outs.get(path), PurePosixPath(path).parent.as_posix()
        if md5 is None and above in self.outs:
            folder = self.folder(above)
            if (file := folder.get(PurePosixPath(path).name)) is None:
                raise NoResult(f"{above} of {self.name} has no file {PurePosixPath(path).name}.")
            return file
        if md5 is None:
            raise NoResult(f"dvc.lock of {self.name} has no {path}. Run `dvc repro`.")
        return self.stored_file(path, md5)

    def folder(self, path: str) -> dict[str, Path]:
        """The files of an out that is a folder: name in the folder -> a file with its content."""
        entries = json.loads(self.stored_file(path, self.outs.get(path, "")).read_text(encoding="utf-8"))
        return {entry["relpath"]: self.stored_file(f"{path}/{entry['relpath']}", entry["md5"]) for entry in entries}

    def stored_file(self, path: str, md5: str) -> Path:
        """A file that has an md5: in DVC's cache or, of the work tree, in the folder."""
        if (cached := cache_file(md5, self.root)).is_file():
            return cached
        here = self.root / path
        if self.commit is None and here.is_file() and hashlib.md5(here.read_bytes()).hexdigest() == md5:
            return here
        raise NoResult(
            f"{path} of {self.name} is not in DVC's cache. `dvc pull`, `dvc exp pull` or `dvc fetch --all-commits` "
            "fetches it, `dvc repro` computes it again; after `--no-commit`, `dvc commit` stores it."
        )

    def text(self, path: str) -> str:
        """The text of an out that is a file. It has the md5 that dvc.lock names."""
        data = self.source(path)
        if data is None or hashlib.md5(data).hexdigest() != self.outs.get(path):
            return self.file(path).read_text(encoding="utf-8")
        return data.decode("utf-8")

    def lines(self, path: str) -> list[str]:
        """The lines of a text in an out."""
        return list(files.read_lines(self.file(path)))

    def hypotheses(self, split: str = "") -> str:
        """The path of the translations of valid or a test set; default: the first test set."""
        return f"data/hypotheses/{split or self.params.test_sets.split()[0]}.hyp"

    def raw(self, side: str, split: str = "") -> str:
        """The path of the text of valid or a test set; default: the first test set. side: src or tgt."""
        return f"data/raw/{split or self.params.test_sets.split()[0]}.{side}"

    def scores(self) -> dict[str, float]:
        """The scores: name -> value. Raises NoResult."""
        self.entries()
        return json.loads(self.text("reports/scores.json"))

    def signatures(self) -> dict[str, str]:
        """sacreBLEU's signatures: name of a score -> how it was computed."""
        return json.loads(self.text("reports/signatures.json"))

    def environment(self) -> dict[str, str | int]:
        """reports/environment.json: what the training ran on."""
        return json.loads(self.text("reports/environment.json"))

    def engines_agree(self) -> bool | None:
        """Whether compare_engines found that the exports translate as this model; None: not measured on this model."""
        deps = {dep["path"]: dep["md5"] for dep in self.stages.get("compare_engines", {}).get("deps", [])}
        if "data/model" not in deps or deps["data/model"] != self.outs.get("data/model"):
            return None
        return json.loads(self.text("reports/engines.json"))["engines_agree"]

    def inputs(self) -> dict[str, str]:
        """The deps of the stages that made the result which no stage writes, code and data: path -> md5."""
        deps = [dep for entry in self.entries().values() for dep in entry.get("deps", [])]
        return {dep["path"]: dep["md5"] for dep in deps if dep["path"] not in self.outs}

    def made_from(self) -> dict[str, dict[str, str]]:
        """What the scores were made from beside the knobs: data, versions and code, each name -> md5 or version."""
        inputs = self.inputs()
        known = {**inputs, **self.outs}
        listed = [entry.get("params", {}).get(VERSIONS, {}) for entry in self.entries().values()]
        return {
            "data": {path: known[path] for path in ("data/raw", self.params.init_from) if path in known},
            "versions": {name: release(number) for names in listed for name, number in sorted(names.items())},
            "code": {
                path: md5 for path, md5 in sorted(inputs.items()) if path.startswith(("pipeline/", "transformer"))
            },
        }

    def system(self, translations: bool = True) -> System:
        """This result for a comparison. translations: with its signatures and translations of the test set."""
        from transformer.evaluation.comparison import System  # imported here, since it takes a second

        machine = {}
        with suppress(NoResult):  # scores can be shown without DVC's cache
            machine = {name: str(value) for name, value in self.environment().items() if name in PROCESSOR}
        texts: dict[str, Any] = {}
        if translations:
            texts = {"signatures": self.signatures(), "hypotheses": self.lines(self.hypotheses())}
        return System(self.name, vars(self.params), self.scores(), made_from=self.made_from(), machine=machine, **texts)

    def remark_edits(self) -> None:
        """Print one remark if the files beside dvc.lock are not those that it names: params of a commit, else all."""
        if self.commit is not None:
            text = self.source("params.yaml") or b""
            now, then = parse_yaml(text.decode("utf-8"), "params.yaml"), vars(self.params)
            edits = [name for name in then if name in now and now[name] != then[name]]
        else:
            repo = project(self.root.absolute())
            from dvc.lock import LockError  # imported here, as its package takes a second

            try:
                status = repo.status()
            except LockError as error:
                raise Mistake(f"{self.name} is changing: DVC runs here. Try again when it has ended.") from error
            edits = [stage for stage, changes in status.items() if stage != LAST and not is_only_absent(changes)]
        if edits:
            what = "params.yaml beside it has other values of" if self.commit else "`dvc repro` would run again:"
            print(f"remark: {self.name} is shown as its dvc.lock says; {what} {', '.join(edits)}.", file=sys.stderr)


def is_only_absent(changes: Iterable[Mapping[str, Any] | str]) -> bool:
    """Whether outs of a stage are absent, as after a partial pull, and nothing else changed. changes: of dvc status."""
    parts = [part for change in changes for part in (change.items() if isinstance(change, Mapping) else [(change, {})])]
    return all(kind == "changed outs" and set(paths.values()) == {"deleted"} for kind, paths in parts)


def stages_above(stages: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The stages in a dvc.lock that made these outs, directly or not: name -> entry. stages: all of it."""
    makers = {out["path"]: stage for stage, entry in stages.items() for out in entry.get("outs", [])}
    waiting, above = list(paths), set[str]()
    while waiting:
        stage = makers.get(waiting.pop())
        if stage and stage not in above:
            above.add(stage)
            waiting += [dep["path"] for dep in stages[stage].get("deps", [])]
    return {stage: entry for stage, entry in stages.items() if stage in above}


@cache
def project(root: Path) -> Any:
    """DVC's view of a project. root: its absolute folder. Raises Mistake without a git repository."""
    git("rev-parse", "--git-dir")  # its message says what to type without a repository
    from dvc.repo import Repo  # imported here, since it takes a second

    return Repo(str(root))


def queue_entries() -> list[dict[str, Any]]:
    """The experiments of DVC's queue in the current folder: the name and the status of each."""
    return project(Path.cwd()).experiments.celery_queue.status()


def cache_file(md5: str, root: Path | None = None) -> Path:
    """The file in DVC's cache that has the content with an md5; it need not exist. root: folder of the project."""
    return Path(project((root or Path()).absolute()).cache.local.oid_to_path(md5))


def result_of(name: str) -> Result:
    """The result of `workspace`, or of an experiment, commit, branch or tag. Raises Mistake for an unknown name."""
    return Result() if name == WORKSPACE else Result(name, resolve(name))


def stored_results(history: bool = True) -> Iterator[tuple[Result, dict[str, str]]]:
    """The results of HEAD and of each DVC experiment, with the tags that say where they come from.

    history: also each other commit that changed dvc.lock. Order: HEAD and experiments by date, then the others by date.
    """
    tags = {
        experiment.commit: {
            "recorded_at": experiment.baseline,
            "DVC_EXP_NAME": experiment.name,
            "DVC_EXP_BASELINE_REV": experiment.baseline,
        }
        for experiment in experiments()
    }
    every = ("--exclude=refs/exps/*", "--exclude=refs/stash", "--all")
    commits = git("rev-list", "--topo-order", "--full-history", *every, "--", "dvc.lock").split()
    if not commits and not tags:
        return
    head = resolve("HEAD")
    dates = git("log", "--no-walk=unsorted", "--format=%ct %H", head, *tags, *(commits if history else ())).split("\n")
    dated = {commit: int(date) for date, commit in (line.split() for line in dates if line)}
    after = {commit: -number for number, commit in enumerate(commits)}  # of commits in one second, parents come first
    order = {commit: (dated[commit], after.get(commit, 0), commit) for commit in dated}
    for commit in sorted(dated, key=lambda commit: (commit != head and commit not in tags, order[commit])):
        origin = tags.get(commit, {"recorded_at": commit})
        yield Result(origin.get("DVC_EXP_NAME", commit[:10]), commit), origin


def link_folder(files: Mapping[str, Path], folder: Path) -> None:
    """Make a folder of links to files. files: name -> file; see `Result.folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        (folder / name).symlink_to(file.resolve())
