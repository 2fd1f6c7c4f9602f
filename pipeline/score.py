"""Stage score: compute BLEU, chrF and TER of the translations, by sacreBLEU, and exact match.

Reads   data/hypotheses; data/raw: the references, and the labels of the first test set if it has some
Writes  reports/scores.json: valid_bleu; the scores of the first test set; bleu_<name> of each test set;
        reports/signatures.json: how sacreBLEU computed each score; reports/forms.json: the scores of lines as people
        type them
Params  test_sets; target: the language of the references; it chooses how sacreBLEU splits them into tokens
"""

import pandas as pd

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, run
from transformer.evaluation.bleu import bleu, bleu_tokenizer
from transformer.evaluation.scores import corpus_scores, exact_match_by_label, form_scores
from transformer.evaluation.texts import Texts
from transformer.files import read_json, read_lines, write_json


def main() -> None:
    paths = arguments(
        __doc__,
        raw="data/raw",
        hypotheses="data/hypotheses",
        scores="reports/scores.json",
        signatures="reports/signatures.json",
        forms="reports/forms.json",
    )
    params = Params.load(paths.params)
    first, *rest = params.test_sets.split()
    texts = {name: Texts.read(paths.raw, paths.hypotheses, name) for name in ("valid", first, *rest)}
    bleus = {name: round(bleu(text.hypotheses, text.references, params.target), 4) for name, text in texts.items()}
    test = texts[first]
    values, signatures = corpus_scores(test.hypotheses, test.references, params.target)
    scores = {
        "valid_bleu": bleus["valid"],
        **values,
        "sentences": len(test.references),
        **{f"bleu_{name}": bleus[name] for name in (first, *rest)},
    }
    labels = paths.raw / f"{first}.labels"
    if labels.exists():
        scores |= exact_match_by_label(test.hypotheses, test.references, list(read_lines(labels)))
    write_json(paths.scores, scores)
    write_json(paths.signatures, signatures)
    write_json(paths.forms, form_scores(read_json(paths.hypotheses / "forms.json"), *test[1:], params.target))
    if remark := bleu_tokenizer(params.target)[1]:
        print(remark)
    print(pd.Series(scores, name="score").to_string())


if __name__ == "__main__":
    run(main)
