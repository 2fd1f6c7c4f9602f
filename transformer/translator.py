"""A model folder that translates text: weights, sizes, merges and vocabulary in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from transformer.checkpoint import load_model, read_card
from transformer.decoding import translate_ids
from transformer.model import Transformer
from transformer.text import Merges, Vocabulary, tokenise, tokenizer


class Translator:
    """Text in, text out."""

    def __init__(self, model: Transformer, merges: Merges, vocabulary: Vocabulary, source: str, lowercase: bool):
        self.model, self.merges, self.vocabulary = model, merges, vocabulary
        self.language, self.lowercase = tokenizer(source), lowercase

    @classmethod
    def load(cls, folder: Path | str) -> Translator:
        """Read a model folder, onto the GPU if there is one. Raises ValueError for a folder that is not one."""
        folder = Path(folder)
        card = read_card(folder / "model.json")
        model = load_model(folder).to("cuda" if torch.cuda.is_available() else "cpu")
        merges, vocabulary = Merges.load(folder / "bpe.codes"), Vocabulary.load(folder / "vocab.txt")
        return cls(model, merges, vocabulary, card["source"], card["lowercase"])

    def translate(
        self,
        lines: Sequence[str],
        beam_size: int = 4,
        length_penalty: float = 0.6,
        extra_length: int = 50,
        progress: Callable[[int], object] = lambda count: None,
    ) -> list[str]:
        """The best translation of each line; an empty line stays empty. progress(count) is called as they get done."""
        ids = [
            self.vocabulary.ids(self.merges.subwords(tokenise(line, self.language, self.lowercase))) for line in lines
        ]
        rows = [row for row, sequence in enumerate(ids) if sequence]
        texts = [""] * len(lines)
        found = translate_ids(
            self.model,
            [ids[row] for row in rows],
            beam_size=beam_size,
            length_penalty=length_penalty,
            extra_length=extra_length,
            progress=progress,
        )
        for row, hypotheses in zip(rows, found, strict=True):
            texts[row] = self.vocabulary.text(hypotheses[0].ids)
        return texts
