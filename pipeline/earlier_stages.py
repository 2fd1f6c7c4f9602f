"""What a stage reads of earlier ones: their texts and tables, and the params that they ran with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.params import parse_yaml
from pipeline.stage import read_values, require
from transformer.files import read_lines


class Texts(NamedTuple):
    """The lines of a split, one per sentence. Each list has the same length."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]

    @classmethod
    def read(cls, raw: Path, hypotheses: Path, split: str) -> Texts:
        """Read a split (valid or a test set) from the folders of the corpus and of the translations.

        Raises ValueError if a file is missing or not UTF-8, or if their numbers of lines differ.
        """
        files = raw / f"{split}.src", raw / f"{split}.tgt", hypotheses / f"{split}.hyp"
        texts = cls(*(read(path, lambda path: list(read_lines(path))) for path in files))
        for path, lines in zip(files, texts, strict=True):
            if len(lines) != len(texts.references):
                counts = f"{len(lines):,} lines, but {files[1]} has {len(texts.references):,}"
                raise ValueError(f"{path} has {counts}. Nothing was written. Run `dvc repro`.")
        return texts


def read(path: Path, reader: Callable[[Path], Any]) -> Any:
    """The result of `reader` for a file. Raises ValueError, one line with the file and the remedy."""
    require(path)
    try:
        return reader(path)
    except ValueError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}; delete it and run `dvc repro`") from None


def read_table(path: Path) -> dict[str, Any]:
    """The names and values in a JSON file. Raises ValueError if it has no JSON object."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError(f"must be an object of names and values, not {type(values).__name__}")
    return values


def check_params(params: Path, *inputs: Path) -> None:
    """Raise ValueError if a param was edited after a stage that made one of the inputs, directly or not, had run.

    params: params.yaml. A stage that a person starts may read other files, so it is not checked.
    """
    if "DVC_STAGE" not in os.environ or not Path("dvc.lock").exists():
        return
    values = read_values(params)
    lock = lock_of(*(Path(name).read_text(encoding="utf-8") for name in ("dvc.lock", "dvc.yaml")))
    for stage, entry in stages_above(lock, map(str, inputs)).items():
        for name, value in entry.get("params", {}).get("params.yaml", {}).items():
            if values.get(name) != value:
                raise ValueError(
                    f"{name} was changed from {value} to {values.get(name)} after stage {stage} had run with {value}. "
                    "Nothing was written. Run `dvc repro`."
                )


def lock_of(dvc_lock: str, dvc_yaml: str) -> dict[str, dict]:
    """The stages in the text of a dvc.lock, without those that dvc.yaml lacks: name -> command, deps, params, outs."""
    if re.match(r"schema: '2.0'\nstages:\n  \w", dvc_lock):
        _, *texts = re.split(r"\n(?=  \w)", dvc_lock)  # each by itself, since most are as in other commits
        entries = {name: entry for text in texts for name, entry in parse_yaml(text, "dvc.lock").items()}
    else:  # not as DVC writes it
        entries = parse_yaml(dvc_lock, "dvc.lock").get("stages", {})
    stages = parse_yaml(dvc_yaml, "dvc.yaml")["stages"]
    return {name: entry for name, entry in entries.items() if name in stages}


def stages_above(lock: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The stages in dvc.lock that made these paths, directly or not: name -> entry. lock: its stages.

    The entries of other stages may be of an earlier run.
    """
    stage_of = {out["path"]: stage for stage, entry in lock.items() for out in entry.get("outs", [])}
    waiting, stages = list(paths), set[str]()
    while waiting:
        path = waiting.pop()
        for folder in (path, *map(str, Path(path).parents)):
            stage = stage_of.get(folder)
            if stage and stage not in stages:
                stages.add(stage)
                waiting += [dep["path"] for dep in lock[stage].get("deps", [])]
    return {stage: entry for stage, entry in lock.items() if stage in stages}


def sources(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The deps of stages that none of them makes: path -> md5. entries: of the stages in dvc.lock."""
    entries = list(entries)
    outs = {out["path"] for entry in entries for out in entry.get("outs", [])}
    deps = {dep["path"]: dep["md5"] for entry in entries for dep in entry.get("deps", [])}
    return {path: md5 for path, md5 in deps.items() if outs.isdisjoint(map(str, (path, *Path(path).parents)))}
