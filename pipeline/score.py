"""Stage score: compute BLEU, chrF and TER of the translations, by sacreBLEU, and exact match.

Reads   data/hypotheses, data/raw: the references and, for toy, the labels of each test sentence
Writes  reports/scores.json: valid_bleu; the scores of the first test set; bleu_<name> of each test set;
        reports/signatures.json: how sacreBLEU computed each score
Params  test_sets; target: the language of the references; it chooses how sacreBLEU splits them into tokens
"""

from typing import Any

import pandas as pd

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.evaluation.scores import bleu_tokenizer, corpus_scores, exact_match_by_label
from transformer.files import read_lines, write_json


def main() -> None:
    paths = arguments(
        __doc__, raw="data/raw", hypotheses="data/hypotheses", scores="reports/scores.json",
        signatures="reports/signatures.json",
    )  # fmt: skip
    params = Params.load(paths.params)
    first, *others = params.sets()
    files = {split: (paths.hypotheses / f"{split}.hyp", paths.raw / f"{split}.tgt")
             for split in ("valid", first, *others)}  # fmt: skip
    require(*(path for pair in files.values() for path in pair))
    texts: dict[str, Any] = {split: [list(read_lines(path)) for path in pair] for split, pair in files.items()}
    bleus = {split: corpus_scores(*texts[split], params.target)[0]["bleu"] for split in ("valid", *others)}
    test, signatures = corpus_scores(*texts[first], params.target)
    scores = {"valid_bleu": bleus.pop("valid"), **test, "sentences": len(texts[first][1]),
              **{f"bleu_{split}": score for split, score in ({first: test["bleu"]} | bleus).items()}}  # fmt: skip
    labels = paths.raw / f"{first}.labels"
    if labels.exists():
        scores |= exact_match_by_label(*texts[first], list(read_lines(labels)))
    write_json(paths.scores, scores)
    write_json(paths.signatures, signatures)
    if remark := bleu_tokenizer(params.target)[1]:
        print(remark)
    print(pd.Series(scores, name="score").to_string())


if __name__ == "__main__":
    run(main)
