"""Store what the walkthrough shows of a training on Multi30k, from a project in which it was run.

    python -m docs.make.recorded_run COMMIT "COMMAND"    # how the training was started

Reads   data/ and reports/ of the current folder, after `dvc repro` with a recipe of Multi30k
Writes  docs/multi30k.json, which the walkthrough's part on a real translator is made of
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import torch

from docs.make.walkthrough import as_json
from pipeline.workflow.params import Params
from transformer import Translator
from transformer.decoding.beam_search import translate_ids
from transformer.decoding.config import SearchConfig
from transformer.evaluation.bleu import bleu
from transformer.files import read_lines, write_text
from transformer.model.averaging import mean_weights
from transformer.model.weights import load_model, read_weights
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import Vocabulary
from transformer.training.config import TrainConfig
from transformer.training.train_step import Trainer
from transformer.training.validation import valid_loss

RECORDED = Path("docs/multi30k.json")
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
SHOWN = "Zwei Kinder spielen mit einem roten Ball im Garten."


def main() -> None:
    commit, command = sys.argv[1:]
    translator = Translator.load(MODEL)
    averaging, reported = averaged(), json.loads(Path("reports/scores.json").read_text(encoding="utf-8"))
    translations = translator.translate(list(SENTENCES), beam_size=4)
    params = Params.load(Path("params.yaml"))
    write_text(
        RECORDED,
        as_json(
            {
                "commit": commit,
                "command": command,
                "pairs": len(Pairs.load(IDS, "train")),
                "sentences": len(Pairs.load(IDS, "valid")),
                "scores": {name: reported[name] for name in ("bleu", "chrf", "valid_bleu")},
                "searched_with": {"beam_size": params.beam_size, "length_penalty": params.length_penalty},
                "curve": curve(),
                "schedule": {"d_model": params.d_model, "warmup": params.warmup, "factor": params.lr_factor},
                "averaging": averaging,
                "search": {"penalties": PENALTIES, "bleu": [(beams, searched(translator, beams)) for beams in BEAMS]},
                "unseen": [(word, pieces) for word, pieces in zip(UNSEEN, translator.subwords(UNSEEN), strict=True)],
                "translations": list(zip(SENTENCES, SENTENCES.values(), translations, strict=True)),
                "attention": maps(translator),
            }
        ),
    )
    print(RECORDED)


def curve() -> list[tuple[int, float]]:
    """Step and loss of the validations."""
    with open("reports/training.csv", encoding="utf-8") as file:
        return [(int(row["step"]), float(row["valid_loss"])) for row in csv.DictReader(file) if row["valid_loss"]]


def searched(translator: Translator, beams: int) -> list[float]:
    """BLEU on valid with some beams, for each length penalty."""
    sources, references = (list(read_lines(Path(f"data/raw/valid.{side}"))) for side in ("src", "tgt"))
    return [
        bleu(translator.translate(sources, beam_size=beams, length_penalty=penalty), references, "en")
        for penalty in PENALTIES
    ]


def averaged() -> dict[str, Any]:
    """Loss and greedy BLEU on valid of the last checkpoint, and of the mean of the last `average_last` ones.

    chosen: how many of the last checkpoints are in the model, which the stage average wrote.
    """
    count = Params.load(Path("params.yaml")).average_last
    paths = sorted(Path("data/checkpoints").glob("[0-9]*.safetensors"))[-count:]
    weights = {"last": read_weights(paths[-1]), "mean": mean_weights(paths)}
    result = {name: judged(tensors) for name, tensors in weights.items()}
    chosen = json.loads(Path("reports/average.json").read_text(encoding="utf-8"))["averaged"]
    return {**result, "count": len(paths), "steps": [int(path.stem) for path in paths], "chosen": chosen}


def judged(weights: dict[str, torch.Tensor]) -> dict[str, float]:
    """Loss and greedy BLEU on valid of some weights."""
    pairs, vocabulary = Pairs.load(IDS, "valid"), Vocabulary.load(MODEL / "vocab.txt")
    model = load_model(MODEL)
    model.load_state_dict(weights)
    loss = valid_loss(Trainer(model, pairs, pairs, config=TrainConfig()))
    sources = [ids[:-1].tolist() for ids in pairs.source]
    hypotheses_of_all = translate_ids([model.eval()], sources, SearchConfig(beam_size=1, length_penalty=0.0))
    lines = [vocabulary.text(hypotheses[0].ids) for hypotheses in hypotheses_of_all]
    return {"loss": loss, "bleu": bleu(lines, list(read_lines(Path("data/raw/valid.tgt"))), "en")}


def maps(translator: Translator) -> dict[str, Any]:
    """The attention of all layers and heads on a sentence and its translation."""
    translation = translator.translate([SHOWN], beam_size=4)[0]
    weights, source, target = translator.attention(SHOWN, translation)
    kinds = {
        name: getattr(weights, name).mul(100).round().div(100).tolist() for name in ("encoder", "decoder", "cross")
    }
    return {"source_text": SHOWN, "target_text": translation, "source": source, "target": target, **kinds}


if __name__ == "__main__":
    main()
