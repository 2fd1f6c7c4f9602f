"""Stage score: BLEU, chrF, TER and exact match, and the MLflow row of this configuration.

Reads   data/valid.hyp, data/test.hyp, data/raw (references, labels); for the row also data/model,
        reports/training.csv, reports/training.json and reports/environment.json
Writes  reports/scores.json, reports/signatures.json
Params  every one: the row is written for each configuration, also when the hypotheses come out the same
"""

import json

import pandas as pd

from pipeline.shared.params import Params
from pipeline.shared.results import WorkTree
from pipeline.shared.run_record import origin, row
from pipeline.shared.stage import arguments, project_root, require, run
from transformer.evaluation.scores import corpus_scores, exact_match_by_label
from transformer.files import read_lines, whole_file
from transformer.tracking.recorder import record_configuration


def main() -> None:
    paths = arguments(
        __doc__, raw="data/raw", valid="data/valid.hyp", test="data/test.hyp", model="data/model",
        curve="reports/training.csv", summary="reports/training.json", scores="reports/scores.json",
        signatures="reports/signatures.json", environment="reports/environment.json",
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.raw, paths.valid, paths.test, paths.model, paths.curve, paths.summary)
    found = {split: list(read_lines(path)) for split, path in (("valid", paths.valid), ("test", paths.test))}
    wanted = {split: list(read_lines(paths.raw / f"{split}.tgt")) for split in found}
    valid, _ = corpus_scores(found["valid"], wanted["valid"], params.target)
    test, signatures = corpus_scores(found["test"], wanted["test"], params.target)
    scores = {"valid_bleu": valid["bleu"], **test, "sentences": len(wanted["test"])}
    labels = paths.raw / "test.labels"
    if labels.exists():
        scores |= exact_match_by_label(found["test"], wanted["test"], list(read_lines(labels)))
    for path, table in ((paths.scores, scores), (paths.signatures, signatures)):
        with whole_file(path) as temporary:
            temporary.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(pd.Series(scores, name="score").to_string())

    record_configuration(project_root(), row(WorkTree.of_stage(paths), origin()))


if __name__ == "__main__":
    run(main)
