"""What the finished run of a configuration contains: a function of files that git and DVC hold."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.tracking.store import SAMPLES, VALID, Row, who
from pipeline.workflow.dvc_lock import RESULT, Result, stages_above
from pipeline.workflow.git import difference, git
from pipeline.workflow.stage import corpus_name
from transformer.evaluation.comparison import TESTS, compare_with_first
from transformer.evaluation.scores import sentence_scores
from transformer.files import content_key, sha256, sha256_text

CODE = ("transformer", "pipeline", "dvc.yaml", "versions.yaml", "requirements.lock")  # params and data are in the run
SPLITS = {"train": "training", "valid": "validation"}  # file name -> context, as MLflow shows it; else: test
PATCH = "uncommitted.patch"  # the file of a run with the edits that were in no commit
COMPARED = ("delta_bleu", *TESTS.values())  # the scores that compare a run with a baseline
MADE = ("data/model", "data/hypotheses", "reports/scores.json", "reports/report.html", "reports/attention.svg")
BACK = "data/back/training.csv"  # the curve of the model that translates back, if there is one


@dataclass(frozen=True)
class FinishedRun:
    """What a run contains.

    curve: the rows of reports/training.csv. tags: with those of `origin`. datasets: name, sha256, lines and context
    (training, validation, test) of each file. texts: name of a file of the run -> its content.
    """

    params: Mapping[str, str | int | float | bool]
    train_key: str
    config_key: str
    curve: Iterable[Row]
    scores: Mapping[str, float]
    tags: Mapping[str, str]
    datasets: Iterable[Mapping[str, str | int]] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.tags.get("DVC_EXP_NAME") or f"{corpus_name(self.params)} {self.config_key[:7]}"


def run_keys(results: Result) -> tuple[str, str]:
    """Two hashes: train_key names the training, config_key its params, corpus and translations too."""
    train_key = json.loads(results.file("data/model/model.json").read_text(encoding="utf-8"))["train_key"]
    made = {path: results.outs[path] for path in ("data/raw", *RESULT[:3])}
    return train_key, content_key(params=recorded_params(results), **made)


def makers(results: Result) -> dict[str, Any]:
    """The stages in dvc.lock that made what a run contains, directly or not: name -> entry."""
    return stages_above(results.lock, MADE)


def recorded_params(results: Result) -> dict[str, Any]:
    """The params of these results: as dvc.lock has them for the stages that made them, else as in params.yaml."""
    params = vars(results.params)
    locked: dict[str, Any] = {}
    for entry in makers(results).values():
        locked |= entry.get("params", {}).get("params.yaml", {})
    edited = {name: value for name, value in locked.items() if name in params and value != params[name]}
    return dict(vars(results.params.changed(**edited)) if edited else params)


def finished_run(results: Result, origin: Mapping[str, str], baseline: Result | None = None) -> FinishedRun:
    """What the run of these results contains.

    origin: tags that say where the results come from. baseline: the results of the commit that the experiment started
    from; the scores contain the difference to it.
    """
    train_key, config_key = run_keys(results)
    signatures = {f"signature_{name}": signature for name, signature in results.signatures().items()}
    environment = {f"env_{name}": str(value) for name, value in results.environment().items()}
    pages = {"report.html": "reports/report.html", "attention.svg": "reports/attention.svg"}
    pages[SAMPLES] = "reports/samples.csv"
    texts = {name: results.file(path).read_text(encoding="utf-8") for name, path in pages.items()}
    texts["translations.csv"] = translations(results)
    texts[VALID] = "".join(f"{line}\n" for line in results.lines(results.hypotheses("valid")))
    return FinishedRun(
        params=recorded_params(results),
        train_key=train_key,
        config_key=config_key,
        curve=curve(results),
        scores={**results.scores(), **(compare_with_baseline(results, baseline) if baseline else {})},
        tags={**signatures, **environment, **origin, **stage_hashes(results)},
        datasets=datasets(results),
        texts=texts | ({PATCH: uncommitted()} if "git_dirty" in origin else {}),
    )


def curve(results: Result) -> list[Row]:
    """The rows of reports/training.csv, and those of BACK with the prefix back_ before the names of metrics."""
    rows = rows_of(results.text("reports/training.csv"))
    with suppress(ValueError, KeyError, OSError):  # no model translates back
        text = results.file(BACK).read_text(encoding="utf-8")
        rows += [
            {name if name == "step" else f"back_{name}": value for name, value in row.items()} for row in rows_of(text)
        ]
    return rows


def rows_of(text: str) -> list[Row]:
    """The rows of a curve in CSV; an empty field is None."""
    table = pd.read_csv(io.StringIO(text)).astype(object)
    return list(table.where(table.notna(), None).to_dict("records"))


def origin() -> dict[str, str]:
    """Tags that say where the results of this process come from: the git commit, and the DVC experiment if any."""
    tags = who()
    with suppress(ValueError):  # without git, or in a folder that it does not know
        tags["git_commit"] = tags["mlflow.source.git.commit"] = git("rev-parse", "HEAD").strip()
        if uncommitted():
            tags["git_dirty"] = "true"
    names = ("DVC_EXP_NAME", "DVC_EXP_BASELINE_REV")
    return tags | {name: os.environ[name] for name in names if os.environ.get(name)}


@cache
def uncommitted() -> str:
    """The edits of code that are in no commit, new files too, for `git apply`. Raises ValueError without git."""
    new = git("ls-files", "--others", "--exclude-standard", "-z", "--", *CODE).split("\0")[:-1]
    patches = [difference("HEAD", "--", *CODE), *(difference("--no-index", os.devnull, path) for path in new)]
    return b"".join(patches).decode(errors="replace")


def datasets(results: Result) -> list[dict[str, str | int]]:
    """Each file of the corpus: name, sha256, number of lines, and context (training, validation, test)."""
    corpus = corpus_name(vars(results.params))
    return [
        {
            "name": f"{corpus} {name}",
            "sha256": sha256(place),
            "lines": count_lines(place),
            "context": SPLITS.get(name.split(".")[0], "test"),
        }
        for name, place in sorted(results.folder("data/raw").items())
    ]


def count_lines(place: Path) -> int:
    """The number of line feeds in a file."""
    with place.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def stage_hashes(results: Result) -> dict[str, str]:
    """For each stage that made these results: dvc_<stage> -> hash of its command, deps, params and outs in dvc.lock."""
    return {
        f"dvc_{stage}": sha256_text(json.dumps(entry, sort_keys=True, default=str))
        for stage, entry in makers(results).items()
    }


def compare_with_baseline(results: Result, baseline: Result) -> dict[str, float]:
    """Test BLEU minus that of the baseline, with p-values; empty if the two cannot be compared.

    They cannot if test references or signatures differ, or if the baseline was never run or is not in DVC's cache. A
    baseline with the same params is the same configuration, and gives nothing either.
    """
    try:
        if baseline.params == results.params:
            return {}
        references = results.lines(results.raw("tgt"))
        if baseline.lines(baseline.raw("tgt")) != references or baseline.signatures() != results.signatures():
            return {}
        row = compare_with_first([baseline.system(), results.system()], references)[1]
    except (ValueError, KeyError):
        return {}
    return {"delta_bleu": row["delta"], **{name: row[name] for name in TESTS.values()}}


def translations(results: Result) -> str:
    """The test set as CSV: line, chrF, reference, translation, source."""
    names = {"reference": results.raw("tgt"), "translation": results.hypotheses(), "source": results.raw("src")}
    table = pd.DataFrame({name: results.lines(path) for name, path in names.items()})
    scores = sentence_scores(list(table["translation"]), list(table["reference"]))
    table.insert(0, "line", range(1, len(table) + 1))
    table.insert(1, "chrf", [round(score, 1) for score in scores])
    return table.to_csv(index=False, lineterminator="\n")
