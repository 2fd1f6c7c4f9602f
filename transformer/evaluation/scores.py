"""Scores of translations against references, and their signatures, by sacreBLEU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer.evaluation.bleu import TOKENIZERS, bleu_of, bleu_tokenizer
from transformer.files import Mistake
from transformer.text.forms import NO_MARK, without_mark
from transformer.text.languages import spacy_words, strip_region, tokenizer

SPLIT_BY_CHARACTER = ("zh", "ja")  # by TER, whose tokens are words with spaces between them otherwise


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str], language: str) -> tuple[dict, dict]:
    """Scores in percent by name, and sacreBLEU signatures by name.

    bleu, chrf, ter: on real text (cased, detokenised; bleu in the tokens of `bleu_tokenizer`). bleu_lc_tok: BLEU on
    lower-cased spaCy tokens of `language` (tokenize=none), as older papers report it; missing for a language that spaCy
    cannot split. Languages without spaces that neither TER nor spaCy splits have no ter and no bleu_lc_tok.
    exact_match: see `exact_match`; it has no signature.
    Raises Mistake if there is not one hypothesis for each reference.
    """
    scores, signatures = {}, {}
    for name, (metric, lines, stream) in metrics(hypotheses, references, language).items():
        scores[name] = round(metric.corpus_score(lines, [stream]).score, 4)
        signatures[name] = str(metric.get_signature())
    scores["exact_match"] = exact_match(hypotheses, references)
    return scores, signatures


def form_scores(
    forms: Mapping[str, list[str]], references: Sequence[str], hypotheses: Sequence[str], language: str
) -> list[dict[str, Any]]:
    """The BLEU of the first lines as they are and in each form of text/forms.py, and its share of the former (%).

    forms: name -> translations. Text of numbers has no forms, and so no rows. Case is folded, and where the final mark
    is missing in the source the reference has none: what is measured is whether the words are still right.
    """
    metric = BLEU(tokenize=bleu_tokenizer(language)[0], lowercase=True)
    if not forms:
        return []
    count, plain, rows = len(next(iter(forms.values()))), 0.0, list[dict[str, Any]]()
    for name, lines in {"as it is": hypotheses[:count], **forms}.items():
        wanted = [without_mark(line) if name == NO_MARK else line for line in references[:count]]
        bleu = metric.corpus_score(list(lines), [wanted]).score
        plain = plain or bleu
        rows.append({"form": name, "bleu": round(bleu, 2), "share": round(100 * bleu / plain, 1) if plain else 0.0})
    return rows


def metrics(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict[str, tuple[BLEU | CHRF | TER, list[str], list[str]]]:
    """Each score of `corpus_scores` that sacreBLEU computes -> its metric, and the hypotheses and references for it.

    Raises Mistake if there is not one hypothesis for each reference.
    """
    if len(hypotheses) != len(references):
        raise Mistake(f"{len(hypotheses)} hypotheses for {len(references)} references. Translate the test set again.")
    asian = strip_region(language) in SPLIT_BY_CHARACTER
    spaced = TOKENIZERS.get(strip_region(language)) != "flores200"  # words with spaces between them, or split by TER
    real = list(hypotheses), list(references)
    by_name: dict[str, tuple[BLEU | CHRF | TER, list[str], list[str]]] = {
        "bleu": (bleu_of(language), *real),
        "chrf": (CHRF(), *real),
    }
    if spaced:
        by_name["ter"] = (TER(normalized=asian, asian_support=asian), *real)
    if spaced and (words := lower_case_words(language)) is not None:
        plain = [words(line) for line in hypotheses], [words(line) for line in references]
        by_name["bleu_lc_tok"] = (BLEU(tokenize="none", force=True), *plain)
    return by_name


def lower_case_words(language: str) -> Callable[[str], str] | None:
    """The function that lower-cases a line and separates its spaCy tokens by spaces; None without a tokenizer."""
    try:
        nlp = tokenizer(language)
    except Mistake:
        return None
    return lambda line: " ".join(spacy_words(nlp, line.lower()))


def matches(hypotheses: Sequence[str], references: Sequence[str]) -> list[bool]:
    """Whether each hypothesis equals its reference in every character, without pairs that are blank on both sides."""
    return [ours == theirs for ours, theirs in zip(hypotheses, references, strict=True) if ours or theirs]


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Percent of `matches`; 0 if there are none."""
    equal = matches(hypotheses, references)
    return round(100 * sum(equal) / max(1, len(equal)), 4)


def exact_match_by_label(
    hypotheses: Sequence[str], references: Sequence[str], labels: Sequence[str]
) -> dict[str, float]:
    """exact_match_<label> over the sentences with each label. labels: the labels of each sentence, space-separated."""
    return {
        f"exact_match_{label}": exact_match([hypotheses[row] for row in rows], [references[row] for row in rows])
        for label, rows in rows_by_label(labels).items()
    }


def rows_by_label(labels: Sequence[str]) -> dict[str, list[int]]:
    """Label -> the numbers of the sentences that have it, from 0; in alphabetical order. labels: of each sentence."""
    rows: dict[str, list[int]] = {}
    for row, line in enumerate(labels):
        for label in dict.fromkeys(line.split()):
            rows.setdefault(label, []).append(row)
    return dict(sorted(rows.items()))


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Sentence-level chrF of each hypothesis against its reference."""
    metric = CHRF()
    return [metric.sentence_score(ours, [theirs]).score for ours, theirs in zip(hypotheses, references, strict=True)]
