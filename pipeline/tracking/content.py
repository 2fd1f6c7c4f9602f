"""What the MLflow run of a configuration contains, from its results."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import pandas as pd

from pipeline.experiments.revisions import Experiment
from pipeline.git import difference, git
from pipeline.identity import content_key
from pipeline.params import Params
from pipeline.tracking.champion import VALID
from pipeline.tracking.recorder import PATCH, SAMPLES, Configuration
from pipeline.tracking.results import LAST, Results
from pipeline.tracking.run import who
from transformer.evaluation.comparison import TESTS, against_the_first
from transformer.evaluation.scores import sentence_scores
from transformer.files import sha256_text

CODE = ("transformer", "pipeline", "dvc.yaml", "versions.yaml", "requirements.lock")  # params and data are in the run
SPLITS = {"train": "training", "valid": "validation"}  # file name -> context, as MLflow shows it; others: test


def run_keys(results: Results) -> tuple[str, str]:
    """train_key, which identifies the training, and config_key, a hash of params, corpus, train_key, translations."""
    train_key = json.loads(results.file("data/model/model.json").read_text(encoding="utf-8"))["train_key"]
    paths = {"raw": "data/raw/", "valid": results.hypotheses("valid"), "test": results.hypotheses()}
    paths |= {f"test {name}": results.hypotheses(name) for name in results.params.test_sets.split()[1:]}
    hashes = {name: results.sha256(path) for name, path in paths.items()}
    return train_key, content_key(params=Params.for_keys(vars(results.params)), train_key=train_key, **hashes)


def configuration_of(results: Results, origin: Mapping[str, str]) -> Configuration:
    """What the run of these results contains.

    origin: tags that say where the results come from (`origin`, `kept`). If they name a baseline commit, the scores
    contain the difference to it.
    """
    train_key, config_key = run_keys(results)
    others = {name: value for name, value in Params.for_keys(vars(results.params)).items() if name != "seed"}
    curve = pd.read_csv(io.StringIO(results.text("reports/training.csv"))).astype(object)
    signatures = {f"signature_{name}": signature for name, signature in results.signatures().items()}
    environment = {f"env_{name}": str(value) for name, value in results.environment().items()}
    baseline = origin.get("DVC_EXP_BASELINE_REV")
    page = results.file("reports/report.html").read_text(encoding="utf-8")
    return Configuration(
        params=vars(results.params),
        train_key=train_key,
        config_key=config_key,
        seeds_key=content_key(params=others, **results.scored().origins),
        curve=curve.where(curve.notna(), None).to_dict("records"),
        scores={**results.scores(), **(against(results, baseline) if baseline else {})},
        target_tokens=int(results.training()["target_tokens"]),
        tags={**signatures, **environment, **origin, **stage_hashes(results)},
        datasets=datasets(results),
        texts={
            "translations.csv": translations(results),
            "report.html": page,
            **attention(results),
            **patch(origin),
            **samples(results),
            VALID: "".join(f"{line}\n" for line in results.lines(results.hypotheses("valid"))),
        },
    )


def origin() -> dict[str, str]:
    """Tags that say where the results of this process come from: the git commit, and the DVC experiment if any."""
    tags = who()
    with suppress(ValueError):  # without git, or in a folder that it does not know
        tags["git_commit"] = tags["mlflow.source.git.commit"] = git("rev-parse", "HEAD").strip()
        if uncommitted():
            tags["git_dirty"] = "true"
    names = ("DVC_EXP_NAME", "DVC_EXP_BASELINE_REV")
    return tags | {name: os.environ[name] for name in names if os.environ.get(name)}


def attention(results: Results) -> dict[str, str]:
    """The file of the run that shows attention weights; empty for results from before the stage attention."""
    if "attention" not in results.lock():
        return {}
    return {"attention.svg": results.file("reports/attention.svg").read_text(encoding="utf-8")}


def patch(origin: Mapping[str, str]) -> dict[str, str]:
    """The file of the run that has the edits in no commit; empty if there are none."""
    return {PATCH: uncommitted()} if "git_dirty" in origin else {}


@cache
def uncommitted() -> str:
    """The edits of code that are in no commit, new files too, for `git apply`. Raises ValueError without git."""
    new = git("ls-files", "--others", "--exclude-standard", "-z", "--", *CODE).split("\0")[:-1]
    patches = [difference("HEAD", "--", *CODE), *(difference("--no-index", os.devnull, path) for path in new)]
    return b"".join(patches).decode(errors="replace")


def datasets(results: Results) -> list[dict[str, str | int]]:
    """Each file of the corpus: name, sha256, number of lines, and context (training, validation, test)."""
    corpus = results.params.corpus
    return [
        {
            "name": f"{corpus} {name}",
            "sha256": results.sha256(f"data/raw/{name}"),
            "lines": count_lines(place),
            "context": SPLITS.get(name.split(".")[0], "test"),
        }
        for name, place in sorted(results.folder("data/raw").items())
    ]


def count_lines(place: Any) -> int:
    """The number of line feeds in a file."""
    with open(place, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def stage_hashes(results: Results) -> dict[str, str]:
    """For each stage in dvc.lock: dvc_<stage> -> hash of its command, deps, params and outs."""
    return {
        f"dvc_{stage}": sha256_text(json.dumps(entry, sort_keys=True, default=str))
        for stage, entry in results.lock().items()
        if stage != LAST
    }


def against(results: Results, baseline: str) -> dict[str, float]:
    """Test BLEU minus that of the baseline commit, with p-values; empty if the two cannot be compared.

    They cannot if test references or signatures differ, or if the baseline was never run or is not in DVC's cache. A
    baseline with the same params is the same configuration, and gives nothing either.
    """
    try:
        first = Experiment("baseline", baseline)
        if first.params == results.params:
            return {}
        references = results.lines(results.raw("tgt"))
        if first.lines(first.raw("tgt")) != references or first.signatures() != results.signatures():
            return {}
        found = against_the_first([first.system(), results.system()], references)[1]
    except (ValueError, KeyError):
        return {}
    return {"delta_bleu": found["delta"], **{name: found[name] for name in TESTS.values()}}


def samples(results: Results) -> dict[str, str]:
    """The file of the run with the samples of the training; empty for results from before there were samples."""
    with suppress(ValueError, OSError):
        return {SAMPLES: results.file("reports/samples.csv").read_text(encoding="utf-8")}
    return {}


def translations(results: Results) -> str:
    """The test set as CSV: line, chrF, reference, translation, source."""
    names = {"reference": results.raw("tgt"), "translation": results.hypotheses(), "source": results.raw("src")}
    table = pd.DataFrame({name: results.lines(path) for name, path in names.items()})
    scores = sentence_scores(list(table["translation"]), list(table["reference"]))
    table.insert(0, "line", range(1, len(table) + 1))
    table.insert(1, "chrf", [round(score, 1) for score in scores])
    return table.to_csv(index=False, lineterminator="\n")
