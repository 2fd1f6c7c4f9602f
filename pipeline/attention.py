"""Stage attention: compute the attention weights of the averaged model on a few test sentences.

By default: the longest sentence that is translated exactly right, and the worst one. For others:

    python -m pipeline.attention --sentences 3,17 && python -m pipeline.report

Reads   data/averaged, data/raw/<first test set>.{src,tgt}, data/hypotheses/<first test set>.hyp
Writes  data/attention.json: the weights of each layer and head, with the translation and with the reference as target;
        reports/attention.svg, reports/attention.png: those of the decoder over the source for the first sentence
Params  test_sets
"""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.workflow.gpus import hold_gpus
from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, require, run
from transformer.evaluation.scores import sentence_scores
from transformer.evaluation.texts import Texts
from transformer.files import Mistake, whole_file, write_json, write_text
from transformer.inference.translator import UNKNOWN, Translator
from transformer.reporting.attention import Sentence, Target, Text, choice, image, page_data, picture
from transformer.text.vocabulary import UNK
from transformer.text.words import Side

TARGETS = ("translation", "reference")


def main() -> None:
    paths = arguments(
        __doc__,
        {"--sentences": "lines of the test set, such as 3,17; default: the longest right one and the worst"},
        model="data/averaged",
        raw="data/raw",
        hypotheses="data/hypotheses",
        weights="data/attention.json",
        picture="reports/attention.svg",
        image="reports/attention.png",
    )
    params = Params.load(paths.params)
    first = params.test_sets.split()[0]
    require(paths.model)
    sources, references, hypotheses = Texts.read(paths.raw, paths.hypotheses, first)
    scores = sentence_scores(hypotheses, references)
    chosen = choice(scores, references, hypotheses)
    if paths.sentences is not None:
        numbers = line_numbers(paths.sentences, paths.raw / f"{first}.src", len(sources))
        chosen = dict.fromkeys(numbers, "chosen by --sentences")
    translator = Translator.load(paths.model)
    sentences = [
        show_attention(translator, sources[row], (hypotheses[row], references[row]), row + 1, why, scores[row])
        for row, why in chosen.items()
    ]
    drawn = picture(sentences[0], TARGETS[0])
    pixels = image(drawn)  # before anything is written
    write_json(paths.weights, page_data(sentences))
    write_text(paths.picture, drawn)
    with whole_file(paths.image) as temporary:
        temporary.write_bytes(pixels)
    chosen_lines = ", ".join(f"{sentence.number} ({sentence.why})" for sentence in sentences)
    print(f"attention on {chosen_lines} written to {paths.weights}")


def line_numbers(option: str, path: Path, lines: int) -> list[int]:
    """The option --sentences to indices of lines, from 0. Raises Mistake if `path` has no such line."""
    indices = []
    for part in option.split(","):
        if not (part.strip().isdecimal() and 1 <= int(part) <= lines):
            raise Mistake(
                f"--sentences {option}: {part.strip()!r} is not a line of {path}, which has {lines:,}. "
                f"Give numbers from 1 to {lines:,}, separated by commas."
            )
        indices.append(int(part) - 1)
    return indices


def show_attention(
    translator: Translator, source: str, targets: tuple[str, str], number: int, why: str, chrf: float
) -> Sentence:
    """The weights of the model on a source, with each of the targets. number, why, chrf: see Sentence."""
    maps = [translator.attention(source, target).maps for target in targets]
    numbered = [translator.source.protect_target(source, target) for target in targets]
    labelled = {
        name: Target(text(translator, translator.target, target), array(weights.decoder), array(weights.cross))
        for name, target, weights in zip(TARGETS, numbered, maps, strict=True)
    }
    source_text = text(translator, translator.source, translator.source.protect(source))
    return Sentence(number, why, chrf, source_text, array(maps[0].encoder), labelled)


def array(weights: Any) -> np.ndarray:
    """A tensor of any precision, bfloat16 too, as an array."""
    return weights.float().numpy()


def text(translator: Translator, side: Side, line: str) -> Text:
    """The subwords of a line and </s>, each with the number of its word; unknown ones are marked by `<unk>: `.

    line: its placeholders are numbers already.
    """
    words = [*translator.split_by_word(line, side), ["</s>"]]
    pairs = [(subword, number) for number, word in enumerate(words) for subword in word]
    unknown = [number == UNK for number in translator.vocabulary.ids(subword for subword, _ in pairs)]
    labels = [
        f"<unk>: {subword}" if mark and subword != UNKNOWN else subword
        for (subword, _), mark in zip(pairs, unknown, strict=True)
    ]
    return Text(labels, [number for _, number in pairs])


if __name__ == "__main__":
    run(hold_gpus(1, wait=False)(main))
