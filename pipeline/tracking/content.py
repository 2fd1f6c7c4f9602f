"""What the finished run of a configuration contains: a function of files that git and DVC hold."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from pipeline.tracking.live import SAMPLES, Row, user_tags
from pipeline.workflow.dvc_lock import RESULT, NoResult, Result
from pipeline.workflow.git import git
from pipeline.workflow.stage import corpus_name
from transformer.evaluation.comparison import System, compare_with_first
from transformer.files import content_key, read_lines, sha256, sha256_text

SPLITS = {"train": "training", "valid": "validation"}  # file name -> context, as MLflow shows it; else: test
VALID = "valid.hyp"  # the file of a run that has the translations of the validation set
MADE = (*RESULT, "reports/attention.svg")
BACK = "data/back"  # has the curve of the model that translates back, if there is one


@dataclass(frozen=True)
class FinishedRun:
    """What a run contains.

    curve: the rows of reports/training.csv. tags: with those of `origin`. datasets: see `datasets`. texts: name of a
    file of the run -> its content.
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


def config_key(result: Result) -> str:
    """One hash of a configuration: its params, data, model, translations and scores, as dvc.lock names them."""
    result.entries()
    outs = {path: result.outs[path] for path in ("data/raw", "data/model", "data/hypotheses", "reports/scores.json")}
    return content_key(params=vars(result.params), **outs)


def train_key(result: Result) -> str:
    """The hash by which the training of a result named itself in the model folder."""
    return json.loads(result.file("data/model/model.json").read_text(encoding="utf-8"))["train_key"]


def finished_run(result: Result, origin: Mapping[str, str]) -> FinishedRun:
    """What the run of a result contains.

    origin: tags that say where the result comes from. For an experiment, the scores contain the difference to the
    commit that it started from.
    """
    signatures = {f"signature_{name}": signature for name, signature in result.signatures().items()}
    environment = {f"env_{name}": str(value) for name, value in result.environment().items()}
    texts = {
        "report.html": result.text("reports/report.html"),
        "attention.svg": result.text("reports/attention.svg"),
        SAMPLES: result.text("reports/samples.csv"),
        "translations.csv": result.text("reports/translations.csv"),
        "as_people_type.csv": pd.DataFrame(json.loads(result.text("reports/forms.json"))).to_csv(index=False),
        VALID: "".join(f"{line}\n" for line in result.lines(result.hypotheses("valid"))),
    }
    commit = origin.get("DVC_EXP_BASELINE_REV")
    return FinishedRun(
        params=vars(result.params),
        train_key=train_key(result),
        config_key=config_key(result),
        curve=curve(result),
        scores={**result.scores(), **(compare_with_baseline(result, Result("baseline", commit)) if commit else {})},
        tags={**signatures, **environment, **user_tags(), **origin, **stage_hashes(result)},
        datasets=datasets(result),
        texts=texts,
    )


def curve(result: Result) -> list[Row]:
    """The rows of reports/training.csv, and those of the model that translates back, if there is one: back_METRIC."""
    rows = rows_of(result.text("reports/training.csv"))
    if back := result.folder(BACK).get("training.csv"):
        rows += [
            {name if name == "step" else f"back_{name}": value for name, value in row.items()}
            for row in rows_of(back.read_text(encoding="utf-8"))
        ]
    return rows


def rows_of(text: str) -> list[Row]:
    """The rows of a curve in CSV, with the numbers that the training sent; an empty field is None."""
    table = pd.read_csv(io.StringIO(text)).astype(object)
    return list(table.where(table.notna(), None).to_dict("records"))


def origin() -> dict[str, str]:
    """Tags of the result in the work tree: the commit beside which it is recorded, and the DVC experiment if any.

    The code of the result may be another: the tags dvc_STAGE have the hashes of what made it.
    """
    names = ("DVC_EXP_NAME", "DVC_EXP_BASELINE_REV")
    known = {name: os.environ[name] for name in names if os.environ.get(name)}
    return {"recorded_at": git("rev-parse", "HEAD").strip(), **known}


def datasets(result: Result) -> list[dict[str, str | int]]:
    """Each text of the corpus: name, path, sha256, number of lines, and context (training, validation, test)."""
    corpus = corpus_name(vars(result.params))
    return [
        {
            "name": f"{corpus} {name}",
            "path": f"data/raw/{name}",
            "sha256": sha256(path),
            "lines": sum(1 for _ in read_lines(path)),
            "context": SPLITS.get(name.split(".")[0], "test"),
        }
        for name, path in sorted(result.folder("data/raw").items())
        if name.endswith((".src", ".tgt"))
    ]


def stage_hashes(result: Result) -> dict[str, str]:
    """For each stage that made a result: dvc_<stage> -> hash of its command, deps, params and outs in dvc.lock."""
    return {
        f"dvc_{stage}": sha256_text(json.dumps(entry, sort_keys=True, default=str))
        for stage, entry in result.entries(*MADE).items()
    }


def compare_with_baseline(result: Result, baseline: Result) -> dict[str, float]:
    """Test BLEU minus that of the baseline, with its p-values; empty if the two cannot be compared.

    Two results cannot be compared if their test references or signatures differ, if they have the same params, or if
    the baseline was never run or is not in DVC's cache.
    """
    references = result.lines(result.raw("tgt"))
    try:
        if baseline.params == result.params or baseline.lines(baseline.raw("tgt")) != references:
            return {}
        if baseline.signatures() != result.signatures():
            return {}
        former = baseline.lines(baseline.hypotheses())
    except NoResult:
        return {}
    return compare_bleu(former, result.lines(result.hypotheses()), references, result.params.target)


def compare_bleu(
    former: Sequence[str], lines: Sequence[str], references: Sequence[str], target: str
) -> dict[str, float]:
    """BLEU of translations minus that of former ones, and its p-values. target: the language, whose tokens count."""
    systems = [System(name, {"target": target}, {}, hypotheses=text) for name, text in (("a", former), ("b", lines))]
    row = compare_with_first(systems, references)[1]
    return {"delta_bleu": row["delta"], **{name: row[name] for name in row if name.startswith("p_")}}
