"""Stage score: compute BLEU, chrF and TER of the translations, by sacreBLEU, and exact match.

Reads   data/valid.hyp, data/test.hyp, data/raw: the references and, for toy, the labels of each test sentence
Writes  reports/scores.json; reports/signatures.json: how sacreBLEU computed each score
Params  target: the language of the references; it chooses how sacreBLEU splits them into tokens
"""

import pandas as pd

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.evaluation.scores import bleu_tokenizer, corpus_scores, exact_match_by_label
from transformer.files import read_lines, write_json


def main() -> None:
    paths = arguments(
        __doc__, raw="data/raw", valid="data/valid.hyp", test="data/test.hyp", scores="reports/scores.json",
        signatures="reports/signatures.json",
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.raw, paths.valid, paths.test)
    hypotheses = {split: list(read_lines(path)) for split, path in (("valid", paths.valid), ("test", paths.test))}
    references = {split: list(read_lines(paths.raw / f"{split}.tgt")) for split in hypotheses}
    valid, _ = corpus_scores(hypotheses["valid"], references["valid"], params.target)
    test, signatures = corpus_scores(hypotheses["test"], references["test"], params.target)
    scores = {"valid_bleu": valid["bleu"], **test, "sentences": len(references["test"])}
    labels = paths.raw / "test.labels"
    if labels.exists():
        scores |= exact_match_by_label(hypotheses["test"], references["test"], list(read_lines(labels)))
    write_json(paths.scores, scores)
    write_json(paths.signatures, signatures)
    if remark := bleu_tokenizer(params.target)[1]:
        print(remark)
    print(pd.Series(scores, name="score").to_string())


if __name__ == "__main__":
    run(main)
