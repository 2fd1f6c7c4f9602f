"""Stage compare_engines: is the exported model the same translator? Validation by torch and by CTranslate2.

Reads   data/model, data/ct2, data/raw/valid.{src,tgt}
Writes  reports/engines.json: BLEU of each engine and percent of translations identical to torch's, at beam 1 and 4
Params  length_penalty, extra_length
"""

import json

from sacrebleu.metrics.bleu import BLEU

from pipeline.stage import arguments, require, run
from transformer.files import read_lines, whole_file
from transformer.params import Params
from transformer.scoring import exact_match
from transformer.translator import Translator

IDENTICAL = {1: 99.5, 4: 99.0}  # percent of float32's translations, by beam size; near-ties may fall either way
BLEU_LOSS = 0.5  # of int8
TRAINED = 5.0  # BLEU of valid: below, the model says next to nothing for sure, and its near-ties fall anywhere


def main() -> None:
    paths = arguments(__doc__, model="data/model", ct2="data/ct2", raw="data/raw", engines="reports/engines.json")
    params = Params.load(paths.params)
    require(paths.model, paths.ct2, paths.raw)
    sources, references = (list(read_lines(paths.raw / f"valid.{side}")) for side in ("src", "tgt"))
    folders = {"torch": paths.model, "float32": paths.ct2 / "float32", "int8": paths.ct2 / "int8"}
    translators = {name: Translator.load(folder) for name, folder in folders.items()}
    options = params.only("length_penalty", "extra_length")
    record: dict[str, float] = {}
    for beam_size in IDENTICAL:
        found = {name: one.translate(sources, beam_size, **options) for name, one in translators.items()}
        for name, lines in found.items():
            record[f"{name}_bleu_beam_{beam_size}"] = round(BLEU().corpus_score(lines, [references]).score, 4)
        for name in ("float32", "int8"):
            record[f"{name}_identical_beam_{beam_size}"] = exact_match(found[name], found["torch"])
    refuse(record, len(sources))
    with whole_file(paths.engines) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))


def refuse(record: dict[str, float], sentences: int) -> None:
    """Raise ValueError where an engine is not the translator that it was made from. One sentence may always differ.

    A model that is hardly trained (the first of a sweep, say) is let through: it is no translator yet.
    """
    for beam_size, least in IDENTICAL.items():
        if record[f"torch_bleu_beam_{beam_size}"] < TRAINED:
            continue
        identical = record[f"float32_identical_beam_{beam_size}"]
        if identical < min(least, 100 * (1 - 1 / sentences)):
            raise ValueError(
                f"data/ct2/float32 translates {identical:.2f}% of valid as data/model at beam {beam_size}, less than "
                f"{least}%; is max_length or extra_length beyond the model? engine: torch is the one to trust"
            )
        scores = {name: record[f"{name}_bleu_beam_{beam_size}"] for name in ("torch", "int8")}
        if scores["torch"] - scores["int8"] > BLEU_LOSS:
            raise ValueError(
                f"data/ct2/int8 loses {scores['torch'] - scores['int8']:.2f} BLEU of valid at beam {beam_size}, over "
                f"{BLEU_LOSS}; ship data/ct2/float32"
            )


if __name__ == "__main__":
    run(main)
