"""Scores of translations against references, and their signatures, by sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer.text.words import tokenizer


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """BLEU in percent of real text with one reference per hypothesis: cased, tokenised by sacreBLEU's 13a."""
    return BLEU().corpus_score(list(hypotheses), [list(references)]).score


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str], language: str) -> tuple[dict, dict]:
    """Scores in percent by name, and sacreBLEU signatures by name.

    bleu, chrf, ter: on real text (cased, 13a, detokenised). bleu_lc_tok: BLEU on lower-cased spaCy tokens of `language`
    (tokenize=none), as older papers report it. exact_match: see `exact_match`; it has no signature.
    Raises ValueError if there is not one hypothesis for each reference.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses for {len(references)} references. Run stage translate again.")
    nlp = tokenizer(language)

    def words(line: str) -> str:
        return " ".join(token.text for token in nlp.tokenizer(line.lower()))

    real = (list(hypotheses), [list(references)])
    plain = ([words(line) for line in hypotheses], [[words(line) for line in references]])
    metrics = {
        "bleu": (BLEU(), real),
        "chrf": (CHRF(), real),
        "ter": (TER(), real),
        "bleu_lc_tok": (BLEU(tokenize="none", force=True), plain),
    }
    scores, signatures = {}, {}
    for name, (metric, (lines, streams)) in metrics.items():
        scores[name] = round(metric.corpus_score(lines, streams).score, 4)
        signatures[name] = str(metric.get_signature())
    scores["exact_match"] = exact_match(hypotheses, references)
    return scores, signatures


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Percent of hypotheses that equal their reference in every character."""
    return round(100 * sum(map(str.__eq__, hypotheses, references)) / len(references), 4)


def exact_match_by_label(
    hypotheses: Sequence[str], references: Sequence[str], labels: Sequence[str]
) -> dict[str, float]:
    """exact_match_<label> over the sentences with each label. labels: the labels of each sentence, space-separated."""
    shares = {}
    for label in sorted({label for line in labels for label in line.split()}):
        rows = [row for row, line in enumerate(labels) if label in line.split()]
        shares[f"exact_match_{label}"] = exact_match([hypotheses[r] for r in rows], [references[r] for r in rows])
    return shares


def sentence_scores(references: Sequence[str], hypotheses: Sequence[str]) -> list[float]:
    """Sentence-level chrF of each hypothesis against its reference."""
    metric = CHRF()
    return [metric.sentence_score(ours, [theirs]).score for ours, theirs in zip(hypotheses, references, strict=True)]
