"""Back-translations of a training text: made in parts by all processes, not lost by a kill; pairs with them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.training.identity import code_keys
from pipeline.training.job import TrainingJob
from pipeline.workflow.stage import bar
from pipeline.workflow.versions import installed
from transformer.corpora.filtering import Screen, mark_duplicates, rule_names
from transformer.corpora.overlap import TestText
from transformer.corpora.rules import FilterConfig
from transformer.corpora.text_files import lines_of
from transformer.files import chunks, content_key, read_lines, sha256, write_lines
from transformer.inference.torch_engine import TorchEngine
from transformer.inference.translator import Translator
from transformer.model.averaging import mean_weights
from transformer.model.transformer import Transformer
from transformer.text.blocks import blocks
from transformer.text.bpe import Merges
from transformer.text.pairs import IdPair, Pairs
from transformer.text.vocabulary import BOS, SPECIALS
from transformer.text.words import Side
from transformer.training.checkpoints import CheckpointStore, TrainingState
from transformer.training.distributed import World

PART_LINES = 2_000
# Before a translated source of text that has no source of its own, so that the model tells it from a real one (Caswell
# et al. 2019, "Tagged Back-Translation"). No other source has this subword.
TAG = SPECIALS[BOS]
NumberedPair = tuple[str, str, int]  # translation, line, and the number of the line


class TokenPair(NamedTuple):
    """A training pair: the tokens of both sides, and the line of its target in the text."""

    source: list[str]
    target: list[str]
    line: int


@dataclass(frozen=True)
class Translations:
    """The first lines of a text with their translations, in parts of PART_LINES lines in `folder`: N.tgt and N.src.

    The parts are the same for any number of processes. A part that is on the disk is not translated again.
    """

    folder: Path

    @classmethod
    def locate(cls, training: TrainingJob, text: Path, codes: Path) -> Translations:
        """The translations of the lines of `text` by the model of a finished training. codes: the merges.

        Call this after the modules that translate are imported: their code is part of the folder's name.
        """
        versions = {name: installed(name) for name in ("spacy", "subword-nmt")}
        key = content_key(
            train_key=training.train_key, text=sha256(text), codes=sha256(codes), code=code_keys(), versions=versions
        )
        return cls(training.folder / f"translations-{key[:16]}")

    def make(self, lines: Iterable[str], count: int, translator: Translator, world: World) -> None:
        """Translate what is missing of the first `count` lines, each part in one process. All processes call this.

        lines: an empty one is not translated. Parts that were made with other code, text or merges are removed first;
        these parts stay until `make clean`, so they are not lost if the stage is killed before DVC has stored its out.
        """
        missing: list[int] = []
        if world.is_leader:
            for older in self.folder.parent.glob("translations-*"):
                if older != self.folder:
                    shutil.rmtree(older)
            self.folder.mkdir(parents=True, exist_ok=True)
            missing = [part for part, (source, _) in enumerate(self.parts(count)) if not source.is_file()]
        own = set(world.broadcast(missing)[world.rank :: world.size])
        total = min(count, len(own) * PART_LINES)
        with bar(total, "sentence", "translate back", world.is_leader) as progress:
            parts = zip(self.parts(count), chunks(lines, PART_LINES), strict=False)  # a text may end before `count`
            for part, ((source, target), text) in enumerate(parts):
                if part in own:
                    translations = translator.translate(text, split=False, progress=progress.update)
                    write_lines(target, text)
                    write_lines(source, translations, durable=True)  # last: with it, the part is complete
        world.wait()

    def parts(self, count: int) -> list[tuple[Path, Path]]:
        """The files of the first `count` lines: of each part the translations and the lines."""
        names = (self.folder / f"{part:08d}" for part in range(-(-count // PART_LINES)))
        return [(name.with_suffix(".src"), name.with_suffix(".tgt")) for name in names]

    def pairs(self, count: int) -> Iterator[tuple[str, str]]:
        """The first `count` lines, or all if there are fewer, each after its translation."""
        for part in self.parts(count):
            if part[0].is_file():
                yield from zip(*map(read_lines, part), strict=True)

    def clean_pairs(self, count: int, config: FilterConfig, languages: tuple[str, str]) -> Iterator[NumberedPair]:
        """Those of `pairs` that the rules of the filter keep, each with the number of its line, from 1."""
        texts = (block for part in self.parts(count) if part[0].is_file() for block in blocks(*part))
        screened, before = map(Screen(config, *languages, TestText({})), texts), 0
        for block, reasons in mark_duplicates(screened, rule_names(config, *languages)):
            sources, targets = block.block.lines()
            for row in np.flatnonzero(reasons == 0).tolist():
                yield sources[row], targets[row], before + row + 1
            before += block.block.count


@dataclass(frozen=True)
class MonoText:
    """A text of the target side, of which as many lines are translated as give `wanted` pairs, or all.

    path: the text, plain or .gz. translator: from target to source. languages: source and target. A pair counts if the
    rules of the filter keep it and both sides fit max_length.
    """

    path: Path
    translator: Translator
    wanted: int
    config: FilterConfig
    languages: tuple[str, str]
    max_length: int

    def lines(self) -> Iterator[str]:
        """The lines; empty in place of those that do not fit max_length."""
        for line in lines_of(self.path):
            yield line if len(self.translator.subwords([line])[0]) <= self.max_length else ""

    def pairs(self, translated: Translations, count: int) -> Iterator[TokenPair]:
        """The tagged pairs of the first `count` lines."""
        clean = translated.clean_pairs(count, self.config, self.languages)
        return islice(added_pairs(clean, self.translator, self.max_length, [TAG]), self.wanted)

    def translate(self, translated: Translations, world: World) -> int:
        """Translate lines until they give `wanted` pairs. Returns how many were read. All processes call this."""
        count = read = kept = 0
        while kept < self.wanted and read == count:
            count += -(-(self.wanted - kept) // PART_LINES) * PART_LINES
            translated.make(self.lines(), count, self.translator, world)
            counted = [translated.pairs(count), self.pairs(translated, count)] if world.is_leader else []
            read, kept = world.broadcast([sum(1 for _ in pairs) for pairs in counted])
        return read


def back_translator(
    training: TrainingJob, store: CheckpointStore, state: TrainingState, codes: Path, world: World
) -> Translator:
    """The translator from target to source of a finished training, on the device of this process.

    Its weights are the mean of the kept checkpoints in the last third; the best checkpoints may be older.
    """
    steps = sorted(map(int, state.checkpoints))
    model = Transformer(training.model_config).to(world.device)
    model.load_state_dict(mean_weights([store.weights(step) for step in steps if 3 * step > 2 * steps[-1]]))
    source, target = Side.read_both(training.corpus)
    return Translator(TorchEngine([model.eval()]), Merges.load(codes), training.vocabulary, target, source)


def kept_lines(text: Path, pairs: Pairs) -> Iterator[str]:
    """The lines of a text file from which `pairs` were made, in order."""
    kept = iter(pairs.lines)
    next_kept = next(kept, None)
    for number, line in enumerate(read_lines(text), start=1):
        if number == next_kept:
            yield line
            next_kept = next(kept, None)


def added_pairs(
    pairs: Iterable[NumberedPair], translator: Translator, max_length: int, tag: Sequence[str] = ()
) -> Iterator[TokenPair]:
    """The tokens of pairs whose sides fit max_length. tag: tokens before each source.

    translator: made the sources of the targets. The placeholders of a pair get new numbers.
    """
    for translation, line, number in pairs:
        source, target = translator.target.numbered_pair(translation, line)
        pair = TokenPair([*tag, *translator.target.split(source)], translator.source.split(target), number)
        lengths = [len(translator.merges.subwords(side)) for side in (pair.source, pair.target)]
        if len(tag) < lengths[0] <= max_length and 1 <= lengths[1] <= max_length:
            yield pair


def write_tokens(pairs: Iterable[TokenPair], folder: Path, translator: Translator) -> Iterator[IdPair]:
    """Yield the ids of pairs, and write their tokens to added.src and added.tgt, as in data/tokens."""
    with ExitStack() as stack:
        files = [
            stack.enter_context(open(folder / f"added.{side}", "w", encoding="utf-8", newline="\n"))
            for side in ("src", "tgt")
        ]
        for pair in pairs:
            for file, tokens in zip(files, pair[:2], strict=True):
                file.write(f"{' '.join(tokens)}\n")
            source, target = (translator.vocabulary.ids(translator.merges.subwords(tokens)) for tokens in pair[:2])
            yield source, target, pair.line
