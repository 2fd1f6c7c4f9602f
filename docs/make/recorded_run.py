"""Store what the walkthrough shows of a training on Multi30k, from a project in which it was run.

    python -m docs.make.recorded_run

Reads   data/ and reports/ of the current folder, after `dvc repro` with a recipe of Multi30k
Writes  multi30k in docs/walkthrough.json, of which the walkthrough's part on real text is made; the commit and the
        command of the training stand in its sentences
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from docs.make.walkthrough import MEASURED, store
from pipeline.workflow.params import Params
from transformer import Translator
from transformer.decoding.beam_search import translate_ids
from transformer.decoding.config import SearchConfig
from transformer.evaluation.bleu import bleu
from transformer.files import read_lines
from transformer.model.averaging import mean_weights
from transformer.model.weights import load_model, read_weights
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary

MODEL, IDS = Path("data/model"), Path("data/ids")
BEAMS, PENALTIES = (1, 4, 8), (0.0, 0.6, 1.5)
UNSEEN = ["Regenschirmverkäufer", "Fahrradklingel", "Zuckerwattestand", "übermütigster"]
SENTENCES = {  # written for this page, in the world of the captions, with what they mean
    "Ein Mann mit einem Regenschirm wartet auf den Bus.": "A man with an umbrella is waiting for the bus.",
    "Zwei Kinder spielen mit einem roten Ball im Garten.": "Two children are playing with a red ball in the garden.",
    "Eine alte Frau verkauft Blumen auf dem Markt.": "An old woman sells flowers at the market.",
    "Der schwarze Hund springt über einen kleinen Bach.": "The black dog jumps over a small stream.",
    "Drei Musiker spielen auf der Straße, und niemand hört zu.": (
        "Three musicians are playing in the street, and nobody is listening."
    ),
}


def main() -> None:
    translator = Translator.load(MODEL)
    recorded = {
        **averaged(),
        "penalties": PENALTIES,
        "search": [(beams, searched(translator, beams)) for beams in BEAMS],
        "test": json.loads(Path("reports/scores.json").read_text(encoding="utf-8"))["bleu"],
        "unseen": [(word, " ".join(pieces)) for word, pieces in zip(UNSEEN, translator.subwords(UNSEEN), strict=True)],
        "translations": [
            (source, human, translator.translate([source], beam_size=4)[0]) for source, human in SENTENCES.items()
        ],
    }
    store("multi30k", recorded)
    print(MEASURED)


def searched(translator: Translator, beams: int) -> list[float]:
    """BLEU on valid with some beams, for each length penalty."""
    sources, references = (list(read_lines(Path(f"data/raw/valid.{side}"))) for side in ("src", "tgt"))
    return [
        bleu(translator.translate(sources, beam_size=beams, length_penalty=penalty), references, "en")
        for penalty in PENALTIES
    ]


def averaged() -> dict[str, float]:
    """Greedy BLEU on valid of the last checkpoint, and of the mean of the last `average_last` ones."""
    paths = sorted(Path("data/checkpoints").glob("[0-9]*.safetensors"))
    paths = paths[-Params.load(Path("params.yaml")).average_last :]
    return {"last": judged(read_weights(paths[-1])), "mean": judged(mean_weights(paths))}


def judged(weights: dict[str, torch.Tensor]) -> float:
    """Greedy BLEU on valid of some weights."""
    pairs, vocabulary = Pairs.load(IDS, "valid"), Vocabulary.load(MODEL / "vocab.txt")
    model = load_model(MODEL)
    model.load_state_dict(weights)
    sources = [ids[:-1].tolist() for ids in pairs.source]
    hypotheses_of_all = translate_ids([model.eval()], sources, SearchConfig(beam_size=1, length_penalty=0.0))
    lines = [vocabulary.text(hypotheses[0].ids) for hypotheses in hypotheses_of_all]
    return bleu(lines, list(read_lines(Path("data/raw/valid.tgt"))), "en")


if __name__ == "__main__":
    main()
