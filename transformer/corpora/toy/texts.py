"""The built-in corpus as parallel text, with the phenomena of each test pair."""

from __future__ import annotations

from transformer.corpora.parallel_text import Listed, ParallelText
from transformer.corpora.toy.grammar import toy_corpus

SPLITS = ("train", "valid", "test")


def toy_texts(source: str, target: str) -> tuple[dict[str, list[ParallelText]], list[str]]:
    """The texts of each split from `source` to `target`, and the labels of each test pair, separated by spaces.

    Raises ValueError for other languages than de and en.
    """
    if {source, target} != {"de", "en"}:
        raise ValueError(
            f"corpus=toy has German and English, not {source}-{target}. For your own text in corpus_path set "
            "corpus=files; else source=de and target=en."
        )
    pairs = toy_corpus()
    texts: dict[str, list[ParallelText]] = {}
    for split in SPLITS:
        both = [(pair.source, pair.target) for pair in pairs[split]]
        texts[split] = [Listed("toy", both if source == "de" else [(t, s) for s, t in both])]
    seen = {pair.frame for pair in pairs["train"]}
    labels = [
        " ".join(pair.phenomena + (("unseen_frame",) if pair.frame not in seen else ())) for pair in pairs["test"]
    ]
    return texts, labels
