"""The scores of a test set to words: what translations of such scores can be used for.

The bands of BLEU, ten points each, are those of the table "Interpretation" in Google's documentation of AutoML
Translation, after Lavie, "Evaluating the Output of Machine Translation Systems" (AMTA 2010). The bands of chrF follow
the models of docs/results.md between BLEU 20 and 43, and are extended beyond them. BLEU is strict with languages of
many word forms, and chrF with Chinese characters, so the better of the two bands counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BANDS = (  # from which BLEU and chrF, in percent; what it means
    (50, 70, "its translations of such text are close to those of a person. Read them before you publish them"),
    (40, 60, "its translations of such text are good drafts with a few errors"),
    (30, 50, "its translations of such text can be understood. Correct each before you use it"),
    (20, 40, "its translations tell what a text is about, with many errors"),
    (10, 30, "its translations only hint at what a text is about"),
    (0, 0, "its translations are not usable"),
)


def shipped_scores(test_set: str, scores: Mapping[str, float], signatures: Mapping[str, str]) -> dict[str, Any]:
    """The scores that a model folder carries. BLEU over characters says little, so it is left out.

    scores, signatures: as in reports/scores.json and reports/signatures.json, of the test set.
    """
    names = ["chrf", "sentences"] if "tok:char" in signatures["bleu"] else ["bleu", "chrf", "sentences"]
    return {"test_set": test_set, **{name: scores[name] for name in names}}


def verdict(scores: Any) -> str:
    """What scores mean, as a sentence; empty for what is not of the form of `shipped_scores`."""
    numbers = {"bleu": 0.0, **scores} if isinstance(scores, Mapping) else {}
    bleu, chrf, sentences = (numbers.get(name, "") for name in ("bleu", "chrf", "sentences"))
    if not (isinstance(bleu, (int, float)) and isinstance(chrf, (int, float)) and isinstance(sentences, int)):
        return ""
    if not max(bleu, chrf) <= 100.01:  # sacreBLEU's 100 may be a little more; a larger number is no score
        return ""
    bleu, chrf = round(bleu, 1), round(chrf, 1)  # so that the words go with the numbers that are shown
    words = next((words for least, least_chrf, words in BANDS if bleu >= least or chrf >= least_chrf), BANDS[-1][2])
    measured = f"BLEU {bleu:.1f}, chrF {chrf:.1f}" if "bleu" in scores else f"chrF {chrf:.1f}"
    return f"{measured} on {sentences:,} sentences of {scores.get('test_set', 'test')}: {words}."
