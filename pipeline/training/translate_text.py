"""Translations of a whole training text: made in parts by all processes, and not lost by a kill."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline.shared.keys import content_key
from pipeline.shared.stage import bar
from pipeline.training.job import Training
from transformer.files import chunks, read_lines, sha256, write_lines
from transformer.inference.translator import Translator
from transformer.training.distributed import World

PART_LINES = 2_000


@dataclass(frozen=True)
class Translations:
    """The translations of some lines, in files of PART_LINES lines in `folder`.

    The parts do not depend on the number of processes, and a part that is on the disk is not translated again.
    """

    folder: Path

    @classmethod
    def of(cls, training: Training, text: Path, codes: Path) -> Translations:
        """Those of the lines of `text` by the model of a finished training. codes: the merges."""
        key = content_key(train_key=training.train_key, text=sha256(text), codes=sha256(codes))
        return cls(training.folder / f"translations-{key[:16]}")

    def make(self, lines: Iterable[str], count: int, translator: Translator, world: World) -> None:
        """Translate the parts that are missing, each in one of the processes. All of them call this.

        count: of the lines.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = [part for part in range(-(-count // PART_LINES)) if not self._path(part).is_file()]
        own = set(world.from_leader(missing)[world.rank :: world.size])
        with bar(min(count, len(own) * PART_LINES), "sentence", "translate train back") as progress:
            for part, some in enumerate(chunks(lines, PART_LINES)):
                if part in own:
                    translations = translator.translate(some, progress=progress.update)
                    write_lines(self._path(part), translations, durable=True)
        world.sum(torch.zeros((), device=world.device))  # wait for the other processes

    def lines(self) -> Iterator[str]:
        """All translations, in the order of the lines."""
        for path in sorted(self.folder.glob("*.txt")):
            yield from read_lines(path)

    def remove(self) -> None:
        """Remove the files, when the translations are part of an out."""
        shutil.rmtree(self.folder)

    def _path(self, part: int) -> Path:
        return self.folder / f"{part:08d}.txt"
