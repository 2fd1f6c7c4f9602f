"""Text and its subwords: words by spaCy, merges by subword-nmt, a vocabulary counted by torchtext; lossless.

A line becomes tokens; a token that follows a space, or opens the line, carries `▁`: "▁Die ▁Protokoll datei ▁kann".
Tokens become subwords without any continuation mark, so joining subwords, unescaping and one strip give the line back.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from subword_nmt import apply_bpe, learn_bpe

from transformer.files import read_lines, whole_file, write_lines

if TYPE_CHECKING:
    from spacy.language import Language

SPACE = "▁"
ESCAPE = "▂"
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(4)

# No subword of a text may look like the space mark or like a special: these characters are replaced on the way in.
_ESCAPES = {ESCAPE: ESCAPE + "0", SPACE: ESCAPE + "1", "<": ESCAPE + "2"}
_TO_ESCAPE = re.compile(rf"[{ESCAPE}{SPACE}]|<(?=(?:pad|unk|s|/s)>)")
_ESCAPED = re.compile(rf"{ESCAPE}[012]")
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}


def tokenizer(language: str) -> Language:
    """spaCy's blank pipeline of a language: the tokenizer of its downloadable models, without a download.

    Raises ValueError for a language that spaCy does not know.
    """
    import spacy  # here, since it takes two seconds, and most stages only meet subwords

    try:
        return spacy.blank(language)
    except (ImportError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"language {language!r} has no spaCy tokenizer; use a code like de or en ({reason})") from None


def tokenise(line: str, language: Language, lowercase: bool = False) -> list[str]:
    """The tokens of a line, a `▁` before each that follows a space. Every kind of white space counts as one space."""
    line = " ".join(line.split())
    if lowercase:
        line = " ".join(line.lower().split())
    tokens, after_space = [], True
    for token in language.tokenizer(line):
        word = _TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], token.text)
        tokens.append(SPACE + word if after_space else word)
        after_space = bool(token.whitespace_)
    return tokens


class Side(NamedTuple):
    """How lines of one side become tokens."""

    language: Language  # of `tokenizer`
    lowercase: bool

    @classmethod
    def of(cls, card: Mapping[str, Any]) -> tuple[Side, Side]:
        """Source and target side, by what a model folder or corpus says of itself."""
        lowercase = card["lowercase"]
        source = cls(tokenizer(card["source"]), card.get("lowercase_source", lowercase))  # older folders have one case
        return source, cls(tokenizer(card["target"]), lowercase)

    def tokens(self, line: str) -> list[str]:
        """See `tokenise`."""
        return tokenise(line, self.language, self.lowercase)


def join(subwords: Iterable[str]) -> str:
    """The line that a sequence of subwords (or tokens) spells."""
    line = "".join(subwords).replace(SPACE, " ")
    return _ESCAPED.sub(lambda found: _UNESCAPES[found[0]], line).strip(" ")


class Merges:
    """Byte-pair merges (Sennrich et al. 2016), learned and applied by subword-nmt. No merges: words stay whole."""

    def __init__(self, codes: str):
        self._bpe = apply_bpe.BPE(io.StringIO(codes)) if codes.partition("\n")[2] else None

    @classmethod
    def load(cls, path: Path) -> Merges:
        """Read a bpe.codes file as `learn_merges` wrote it."""
        return cls(path.read_text(encoding="utf-8"))

    @property
    def none(self) -> bool:
        """Words stay whole."""
        return self._bpe is None

    def subwords(self, tokens: Iterable[str]) -> list[str]:
        """Cut each token into subwords; the concatenation stays the same."""
        if self._bpe is None:
            return list(tokens)
        bpe, pieces = self._bpe, []
        for token in tokens:
            # BPE.segment would mark the cuts with "@@", which text may hold too; encode() gives the bare pieces.
            pieces += apply_bpe.encode(token, bpe.bpe_codes, bpe.bpe_codes_reverse, None, "", bpe.version, bpe.cache)
        return pieces


def learn_merges(lines: Iterable[str], merges: int) -> str:
    """Learn at most `merges` merges from tokenised lines (tokens separated by one space); returns the codes file."""
    counts = Counter(token for line in lines for token in line.split(" ") if token)
    codes = io.StringIO()
    if merges and any(len(token) > 1 for token in counts):
        table = [f"{token} {count}" for token, count in sorted(counts.items())]
        learn_bpe.learn_bpe(table, codes, merges, is_dict=True)
        return codes.getvalue()
    return "#version: 0.2\n"


class Vocabulary:
    """Subwords and their ids. Ids 0 to 3 are <pad>, <unk>, <s> and </s>."""

    def __init__(self, subwords: Sequence[str]):
        if tuple(subwords[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(f"a vocabulary must open with {' '.join(SPECIALS)}; got {' '.join(subwords[:4])!r}")
        self.subwords = list(subwords)
        self._ids = {subword: number for number, subword in enumerate(self.subwords)}

    @classmethod
    def count(cls, lines: Iterable[Iterable[str]], min_count: int) -> Vocabulary:
        """All subwords that occur at least `min_count` times, the most frequent first, by torchtext's Vocab."""
        from torchtext.vocab import Vocab  # here alone: who only translates does not need torchtext

        counts = Counter(subword for line in lines for subword in line)
        return cls(Vocab(counts, min_freq=min_count, specials=list(SPECIALS)).itos)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a vocab.txt: one subword a line, the line number is the id."""
        return cls(list(read_lines(path)))

    def save(self, path: Path) -> None:
        """Write vocab.txt."""
        write_lines(path, self.subwords)

    def __len__(self) -> int:
        return len(self.subwords)

    def ids(self, subwords: Iterable[str]) -> list[int]:
        """Ids of subwords; what the vocabulary lacks becomes <unk>. No <s> or </s> is added."""
        return [self._ids.get(subword, UNK) for subword in subwords]

    def text(self, ids: Iterable[int]) -> str:
        """The line that ids spell; <pad>, <s> and </s> are silent, <unk> shows as a word of its own."""
        silent = (PAD, BOS, EOS)
        return join(
            f"{SPACE}<unk>" if number == UNK else self.subwords[number] for number in ids if number not in silent
        )


def save_merges(codes: str, path: Path) -> None:
    """Write bpe.codes, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(codes, encoding="utf-8")
