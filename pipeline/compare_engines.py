"""Stage compare_engines: measure whether the exported models translate the validation set as the model does.

Reads   data/model, data/ct2, data/raw/valid.{src,tgt}
Writes  reports/engines.json: BLEU of each engine and percent of translations identical to torch's, at beam 1 and 4;
        engines_agree, which `engine: ctranslate2` and the alias champion need
Params  length_penalty, extra_length, engine (ctranslate2 is refused where the engines differ)
"""

import json
from dataclasses import asdict

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.decoding.config import SearchConfig
from transformer.evaluation.scores import bleu, exact_match
from transformer.files import read_lines, whole_file
from transformer.inference.translator import Translator

IDENTICAL = {1: 99.5, 4: 99.0}  # percent of float32's translations, by beam size; near-ties may fall either way
BLEU_LOSS = 0.5  # of int8
TRAINED = 5.0  # BLEU of valid: a model below it is unsure of every subword, so its near-ties are not counted


def main() -> None:
    paths = arguments(__doc__, model="data/model", ct2="data/ct2", raw="data/raw", engines="reports/engines.json")
    params = Params.load(paths.params)
    require(paths.model, paths.ct2, paths.raw)
    sources, references = (list(read_lines(paths.raw / f"valid.{side}")) for side in ("src", "tgt"))
    folders = {"torch": paths.model, "float32": paths.ct2 / "float32", "int8": paths.ct2 / "int8"}
    translators = {name: Translator.load(folder) for name, folder in folders.items()}
    record: dict[str, float | bool] = {}
    for beam_size in IDENTICAL:
        settings = asdict(params.take(SearchConfig, beam_size=beam_size, replace_unk=False))
        found = {name: translated(one, sources, settings) for name, one in translators.items()}
        for name, lines in found.items():
            record[f"{name}_bleu_beam_{beam_size}"] = round(bleu(lines, references), 4)
        for name in ("float32", "int8"):
            record[f"{name}_identical_beam_{beam_size}"] = exact_match(found[name], found["torch"])
    trouble = difference(record, len(sources))
    record["engines_agree"] = not trouble
    with whole_file(paths.engines) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))
    if trouble and params.engine == "ctranslate2":
        raise ValueError(f"engine=ctranslate2 is refused: {trouble}; set engine=torch")
    if trouble:
        print(f"the engines differ: {trouble}; engine=ctranslate2 is refused, and this model is not made champion")


def translated(translator: Translator, sources: list[str], settings: dict) -> list[str]:
    """The translations; empty lines where the engine refuses a source, since this stage measures and stops nothing."""
    try:
        return translator.translate(sources, **settings)
    except ValueError as error:
        print(f"an engine translates nothing: {error}")
        return [""] * len(sources)


def difference(record: dict[str, float | bool], sentences: int) -> str:
    """How an exported model differs from the model it was made from, in one line; empty where it does not.

    record: as in reports/engines.json, measured on so many sentences, of which one may always differ.
    """
    for beam_size, least in IDENTICAL.items():
        if record[f"torch_bleu_beam_{beam_size}"] < TRAINED:
            continue
        identical = record[f"float32_identical_beam_{beam_size}"]
        if identical < min(least, 100 * (1 - 1 / sentences)):
            return (
                f"data/ct2/float32 translates {identical:.2f}% of valid as data/model at beam {beam_size}, less than "
                f"{least}%"
            )
        lost = record[f"torch_bleu_beam_{beam_size}"] - record[f"int8_bleu_beam_{beam_size}"]
        if lost > BLEU_LOSS:
            return f"data/ct2/int8 loses {lost:.2f} BLEU of valid at beam {beam_size}, more than {BLEU_LOSS}"
    return ""


if __name__ == "__main__":
    run(main)
