"""Stage score: BLEU, chrF, TER and exact match, and the MLflow row of this configuration.

Reads   data/valid.hyp, data/test.hyp, data/raw (references, labels); for the row also data/model and
        reports/training.csv
Writes  reports/scores.json, reports/signatures.json
Params  every one: the row is written for each configuration, also when the hypotheses come out the same
"""

import json

import pandas as pd

from pipeline.stage import arguments, keys, origin, project_root, require, run
from transformer.files import read_lines, whole_file
from transformer.params import Params
from transformer.scoring import corpus_scores, exact_match_by_label
from transformer.tracking import record_scores


def main() -> None:
    paths = arguments(
        __doc__, raw="data/raw", valid="data/valid.hyp", test="data/test.hyp", model="data/model",
        curve="reports/training.csv", scores="reports/scores.json",
        signatures="reports/signatures.json",
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.raw, paths.valid, paths.test, paths.model, paths.curve)
    found = {split: list(read_lines(path)) for split, path in (("valid", paths.valid), ("test", paths.test))}
    wanted = {split: list(read_lines(paths.raw / f"{split}.tgt")) for split in found}
    valid, _ = corpus_scores(found["valid"], wanted["valid"], params.target)
    test, signatures = corpus_scores(found["test"], wanted["test"], params.target)
    scores = {"valid_bleu": valid["bleu"], **test, "sentences": len(wanted["test"])}
    labels = paths.raw / "test.labels"
    if labels.exists():
        scores |= exact_match_by_label(found["test"], wanted["test"], list(read_lines(labels)))
    for path, record in ((paths.scores, scores), (paths.signatures, signatures)):
        with whole_file(path) as temporary:
            temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(pd.Series(scores, name="score").to_string())

    train_key, config_key = keys(params, paths.model, raw=paths.raw, valid=paths.valid, test=paths.test)
    curve = pd.read_csv(paths.curve).astype(object)
    record_scores(
        project_root(),
        vars(params),
        train_key,
        config_key,
        curve.where(curve.notna(), None).to_dict("records"),
        scores,
        {**{f"signature_{name}": signature for name, signature in signatures.items()}, **origin()},
        {"hypotheses": paths.test},
    )


if __name__ == "__main__":
    run(main)
