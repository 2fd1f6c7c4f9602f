"""The results of a configuration as files: params, curve, scores, translations, and what they were made from."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.earlier_stages import lock_of, sources, stages_above
from pipeline.identity import code_key
from pipeline.params import Params
from pipeline.versions import RECORD, release
from transformer import files

if TYPE_CHECKING:
    from transformer.evaluation.comparison import System

WORKSPACE = "workspace"
LAST = "record"  # the stage that writes the run: no result depends on it
# Facts of reports/environment.json that change the order of sums.
PROCESSOR = ("machine", "cpu", "threads", "device", "devices", "instructions", "bfloat16", "sharding")


@cache
def sha256(path: Path) -> str:
    """sha256 of a file that does not change while this process runs."""
    return files.sha256(path)


class Results(ABC):
    """The results of one configuration: files that git holds and outs that DVC holds.

    name: of the experiment, commit, branch or tag, or `workspace`.
    """

    name: str

    @abstractmethod
    def text(self, path: str) -> str:
        """The text of a file that git holds: params, metrics, curves."""

    @abstractmethod
    def folder(self, path: str) -> dict[str, Path]:
        """The files of a folder that DVC holds: name -> a file with its content."""

    @abstractmethod
    def file(self, path: str) -> Path:
        """A file with the content of a file that DVC holds."""

    @abstractmethod
    def code(self, path: str) -> dict[str, str]:
        """The Python files at a path, which is a file or a folder: path -> code_key."""

    def lines(self, path: str) -> list[str]:
        """The lines of a text file that DVC holds."""
        return list(files.read_lines(self.file(path)))

    def sha256(self, path: str) -> str:
        """files.sha256 of a file that DVC holds, or of a folder if the path ends in /."""
        if not path.endswith("/"):
            return sha256(self.file(path))
        listing = sorted(self.folder(path[:-1]).items())
        return files.sha256_text("".join(f"{sha256(place)}  {name}\n" for name, place in listing))

    @cached_property
    def params(self) -> Params:
        """The params of this configuration. Raises ValueError if they are of another version of this project."""
        return Params.parse(self.text("params.yaml"), f"params.yaml of {self.name}", recorded=True)

    def hypotheses(self, split: str = "") -> str:
        """The path of the translations of valid or a test set; default: the first test set."""
        return f"data/hypotheses/{split or self.params.test_sets.split()[0]}.hyp"

    def raw(self, side: str, split: str = "") -> str:
        """The path of the text of valid or a test set; default: the first test set. side: src or tgt."""
        return f"data/raw/{split or self.params.test_sets.split()[0]}.{side}"

    def scores(self) -> dict[str, float]:
        """The scores: name -> value."""
        return json.loads(self.text("reports/scores.json"))

    def training(self) -> dict[str, float]:
        """The summary of the training: updates, tokens, losses."""
        return json.loads(self.text("reports/training.json"))

    def signatures(self) -> dict[str, str]:
        """sacreBLEU's signatures: name of a score -> how it was computed."""
        return json.loads(self.file("reports/signatures.json").read_text(encoding="utf-8"))

    def lock(self) -> dict[str, dict]:
        """The stages in dvc.lock; see `lock_of`."""
        return lock_of(self.text("dvc.lock"), self.text("dvc.yaml"))

    def outs(self) -> dict[str, str]:
        """The outs in dvc.lock: path -> md5."""
        return {out["path"]: out["md5"] for entry in self.lock().values() for out in entry.get("outs", [])}

    def engines_agree(self) -> bool | None:
        """Whether compare_engines found that the exports translate as this model; None: not measured on this model."""
        entry = self.lock().get("compare_engines", {})
        measured = {dep["path"]: dep["md5"] for dep in entry.get("deps", [])}
        if "data/model" not in measured or measured["data/model"] != self.outs().get("data/model"):
            return None
        return json.loads(self.text("reports/engines.json"))["engines_agree"]

    def system(self, translations: bool = True) -> System:
        """This configuration for a comparison. translations: with its signatures and translations of the test set."""
        from transformer.evaluation.comparison import System  # imported here, since it takes a second

        system = System(self.name, vars(self.params), self.scores(), made_from=self.made_from(), machine=self.machine())
        if not translations:
            return system
        return replace(system, signatures=self.signatures(), hypotheses=self.lines(self.hypotheses()))

    def made_from(self) -> dict[str, dict[str, str]]:
        """What the scores were made from, besides the knobs: data, code and versions, each name -> hash or version."""
        entries = list(stages_above(self.lock(), ["reports/scores.json"]).values())
        deps = {dep["path"]: dep["md5"] for entry in entries for dep in entry.get("deps", [])}
        data = {path: deps[path] for path in ("data/raw", self.params.init_from) if path in deps}
        code = {name: key for path in sources(entries) for name, key in self.code(path).items()}
        versions = {
            name: release(number)
            for entry in entries
            for name, number in entry.get("params", {}).get(RECORD, {}).items()
        }
        return {"data": data, "code": dict(sorted(code.items())), "versions": dict(sorted(versions.items()))}

    def environment(self) -> dict[str, str | int]:
        """reports/environment.json: what the training ran on; empty if that file is missing."""
        with suppress(ValueError, OSError):
            return json.loads(self.text("reports/environment.json"))
        return {}

    def machine(self) -> dict[str, str]:
        """The facts of the environment on which the rounding of sums depends."""
        return {name: str(value) for name, value in self.environment().items() if name in PROCESSOR}


class WorkTree(Results):
    """The results in a folder.

    places: path in the project -> another place for it. root: the folder of the project.
    """

    def __init__(self, places: Mapping[str, Path] | None = None, root: Path = Path()):
        self.name, self._places, self._root = WORKSPACE, dict(places or {}), root

    def text(self, path: str) -> str:
        return self.file(path).read_text(encoding="utf-8")

    def file(self, path: str) -> Path:
        above, _, name = path.rpartition("/")
        return self._places.get(path) or self._places.get(above, self._root / above) / name

    def folder(self, path: str) -> dict[str, Path]:
        return {file.name: file for file in self.file(path).iterdir()}

    def code(self, path: str) -> dict[str, str]:
        place = self._root / path
        paths = [place] if place.is_file() else sorted(place.rglob("*.py"))
        return {
            file.relative_to(self._root).as_posix(): code_key(file.read_text(encoding="utf-8"))
            for file in paths
            if file.suffix == ".py"
        }
