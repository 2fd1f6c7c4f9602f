"""Back-translations of a training text: made in parts by all processes, not lost by a kill; pairs with them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.training.identity import code_keys
from pipeline.training.job import CODE as TRAINING
from pipeline.training.job import TrainingJob
from pipeline.workflow.stage import bar
from pipeline.workflow.versions import installed_version
from transformer.files import chunks, content_key, read_lines, sha256, write_lines
from transformer.inference.torch_engine import TorchEngine
from transformer.inference.translator import Translator
from transformer.model.averaging import mean_weights
from transformer.model.transformer import Transformer
from transformer.text.bpe import Merges
from transformer.text.pairs import IdPair, Pairs
from transformer.text.words import Side
from transformer.training.checkpoints import CheckpointStore, TrainingState
from transformer.training.distributed import World

PART_LINES = 2_000
CODE = (*TRAINING, "pipeline/training/back_translations.py")  # with all that they import


NumberedPair = tuple[str, str, int]  # translation, line, and the number of the line


@dataclass(frozen=True)
class Translations:
    """The translations of some lines, in files of PART_LINES lines in `folder`.

    The parts are the same for any number of processes. A part that is on the disk is not translated again.
    """

    folder: Path

    @classmethod
    def locate(cls, training: TrainingJob, text: Path, count: int, codes: Path) -> Translations:
        """The translations of `count` lines of `text` by the model of a finished training. codes: the merges."""
        versions = {name: installed_version(name) for name in ("spacy", "subword-nmt")}
        made_of = {"text": sha256(text), "count": count, "codes": sha256(codes)}
        key = content_key(train_key=training.train_key, **made_of, code=code_keys(*CODE), versions=versions)
        return cls(training.folder / f"translations-{key[:16]}")

    def make(self, lines: Iterable[str], count: int, translator: Translator, world: World) -> None:
        """Translate the parts that are missing, each in one of the processes. All processes call this.

        count: the number of lines. Parts that were made with other code, text or merges are removed first; the new
        parts stay until `make clean`, so they are not lost if the stage is killed before DVC has stored its out.
        """
        missing: list[int] = []
        if world.is_leader:
            for older in self.folder.parent.glob("translations-*"):
                if older != self.folder:
                    shutil.rmtree(older)
            self.folder.mkdir(parents=True, exist_ok=True)
            missing = [part for part in range(-(-count // PART_LINES)) if not self._path(part).is_file()]
        own = set(world.broadcast(missing)[world.rank :: world.size])
        total = min(count, len(own) * PART_LINES)
        with bar(total, "sentence", "translate back", world.is_leader) as progress:
            for part, text in enumerate(chunks(lines, PART_LINES)):
                if part in own:
                    translations = translator.translate(text, split=False, progress=progress.update)
                    write_lines(self._path(part), translations, durable=True)
        world.wait()

    def lines(self) -> Iterator[str]:
        """All translations, in the order of the lines."""
        for path in sorted(self.folder.glob("*.txt")):
            yield from read_lines(path)

    def _path(self, part: int) -> Path:
        return self.folder / f"{part:08d}.txt"


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


def added_pairs(pairs: Iterable[NumberedPair], translator: Translator, max_length: int) -> Iterator[IdPair]:
    """The ids of pairs whose sides fit max_length.

    translator: made the sources of the targets. The placeholders of a pair get new numbers.
    """
    forward = Translator(
        translator.engine, translator.merges, translator.vocabulary, translator.target, translator.source
    )
    for translation, line, number in pairs:
        source, target = [forward.vocabulary.ids(side) for side in forward.split_pair(translation, line)]
        if min(len(source), len(target)) >= 1 and max(len(source), len(target)) <= max_length:
            yield source, target, number
