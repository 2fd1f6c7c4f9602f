"""Stage compare_engines: measure whether CTranslate2 translates the validation set as torch does, by float32 and int8.

Reads   data/model, data/ct2, data/raw/valid.{src,tgt}
Writes  reports/engines.json: BLEU of each engine and percent of translations identical to torch's, at beam 1 and 4;
        engines_agree (float32 translates as torch), for the tag `engines` of the registered model; null: not
        measured, as of a model that is hardly trained
Params  target, length_penalty, extra_length; engine: with ctranslate2, the stage fails if float32 differs
"""

import json

from pipeline.workflow.gpus import hold_gpus
from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, require, run
from transformer.decoding.config import SearchConfig
from transformer.evaluation.bleu import bleu
from transformer.evaluation.scores import exact_match
from transformer.files import Mistake, read_lines, write_json
from transformer.inference.translator import Translator

IDENTICAL = {1: 99.5, 4: 99.0}  # beam size -> least percent for float32; near-ties may be decided differently
BLEU_LOSS = 0.5  # int8 may lose so much without a remark
Report = dict[str, float | bool | None]  # None: not measured
TRAINED = 5.0  # least BLEU on valid for a comparison: below it almost every choice is a near-tie


def main() -> None:
    paths = arguments(__doc__, model="data/model", ct2="data/ct2", raw="data/raw", engines="reports/engines.json")
    params = Params.load(paths.params)
    require(paths.model, paths.ct2, paths.raw)
    sources, references = (list(read_lines(paths.raw / f"valid.{side}")) for side in ("src", "tgt"))
    models = {
        "torch": (paths.model, "torch"),
        "float32": (paths.model, "ctranslate2"),
        "int8": (paths.ct2 / "int8", "ctranslate2"),
    }
    translators = {name: Translator.load(folder, engine=engine) for name, (folder, engine) in models.items()}
    report: Report = {}
    for beam_size in IDENTICAL:
        config = params.take(SearchConfig, beam_size=beam_size)
        translations = {name: translate(engine, sources, config) for name, engine in translators.items()}
        for name, lines in translations.items():
            scored = round(bleu(lines, references, params.target), 4) if lines else None
            report[f"{name}_bleu_beam_{beam_size}"] = scored
        torch = translations["torch"]
        for name in ("float32", "int8"):
            ours = translations[name]
            report[f"{name}_identical_beam_{beam_size}"] = exact_match(ours, torch) if ours and torch else None
    difference = float32_difference(report, len(sources))
    report["engines_agree"] = None if difference is None else not difference
    write_json(paths.engines, report)
    print(json.dumps(report, indent=1))
    if difference and params.engine == "ctranslate2":
        raise Mistake(f"engine=ctranslate2 is refused: {difference}. Set engine=torch.")
    if difference is None:
        print(f"The engines were not compared: torch has less than {TRAINED} BLEU on valid, or an engine failed.")
    elif difference:
        print(f"The engines differ: {difference}. Translate with engine=torch.")
    if loss := int8_loss(report):
        print(f"{loss}. Ship data/model, which computes in float32.")


def translate(translator: Translator, sources: list[str], config: SearchConfig) -> list[str] | None:
    """Translations of the sources; None if this engine cannot translate with this model."""
    try:
        return translator.translate(sources, split=False, config=config)
    except Mistake as error:
        print(f"An engine did not translate: {error}")
        return None


def float32_difference(report: Report, sentences: int) -> str | None:
    """How the float32 export in data/model differs from the torch model; empty if it does not, None if not measured.

    report: the contents of reports/engines.json. sentences: how many were translated; one of them may always differ.
    """
    for beam_size, least in IDENTICAL.items():
        identical = report[f"float32_identical_beam_{beam_size}"]
        if identical is None or not is_trained(report, beam_size):
            return None
        if identical < min(least, 100 * (1 - 1 / sentences)):
            return (
                f"at beam {beam_size}, {identical:.2f}% of the translations of valid by CTranslate2 in float32 equal "
                f"those by torch, and {least}% are required"
            )
    return ""


def int8_loss(report: Report) -> str:
    """How much BLEU data/ct2/int8 loses, if that is more than BLEU_LOSS, else empty. report: as above."""
    for beam_size in IDENTICAL:
        full, int8 = report[f"torch_bleu_beam_{beam_size}"], report[f"int8_bleu_beam_{beam_size}"]
        lost = (full or 0) - (int8 or 0)
        if is_trained(report, beam_size) and int8 is not None and lost > BLEU_LOSS:
            return f"at beam {beam_size}, data/ct2/int8 loses {lost:.2f} BLEU on valid, more than {BLEU_LOSS}"
    return ""


def is_trained(report: Report, beam_size: int) -> bool:
    """Whether the torch model translates, and is good enough for a comparison."""
    return (report[f"torch_bleu_beam_{beam_size}"] or 0) >= TRAINED


if __name__ == "__main__":
    run(hold_gpus(1, wait=False)(main))
