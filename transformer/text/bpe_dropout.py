"""Training pairs whose words are split anew in each epoch, with merges skipped at random (BPE-dropout).

Provilkov, Emelianenko and Voita 2020, "BPE-Dropout: Simple and Effective Subword Regularization", algorithm 1. The
splits have the distribution of subword-nmt's `dropout`; here NumPy splits many words at once, which is faster.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

import numpy as np

from transformer.files import Mistake
from transformer.text.bpe import Merges
from transformer.text.pairs import IdBlock, Pairs, Sequences
from transformer.text.vocabulary import EOS, SPECIALS, UNK, Vocabulary

END = "</w>"  # marks the last symbol of a word, as in the codes file
NO_MERGE = 2**31 - 1  # greater than the rank of any merge
MOST_STATES = 64  # of a word that are remembered
BLOCK_PAIRS = 50_000  # drawn at once: bounds the memory


def take(sequences: Sequences, rows: np.ndarray) -> Sequences:
    """The sequences with the numbers `rows`, in this order."""
    lengths = sequences.starts[rows + 1] - sequences.starts[rows]
    before = np.cumsum(lengths) - lengths
    places = np.arange(lengths.sum()) + np.repeat(sequences.starts[rows] - before, lengths)
    return Sequences.unpack(IdBlock(sequences.ids[places], lengths))


def join_sequences(parts: Sequence[Sequences]) -> Sequences:
    """The sequences of all parts."""
    ids, lengths = (
        np.concatenate(arrays) for arrays in zip(*((part.ids, part.lengths) for part in parts), strict=True)
    )
    return Sequences.unpack(IdBlock(ids, lengths))


class SkippedMerges:
    """Random splits of words: in each step of BPE each merge that is possible is skipped with probability `dropout`.

    The symbols of a word before each merge of its usual split are its states. They are remembered: a draw starts at the
    first skipped merge. A word in which none is skipped keeps its usual split.
    """

    def __init__(self, merges: Merges, words: Sequence[str], dropout: float):
        self.dropout = dropout
        ranks = {pair: rank for rank, pair in enumerate(merges.pairs)}
        states, self._whole = zip(*(states_of(word, ranks) for word in words), strict=True)
        counts, self._whole = np.array([len(own) for own in states], np.int64), np.array(self._whole)
        self._first, self._steps = np.cumsum(counts) - counts, counts - ~self._whole
        flat = [state for own in states for state in own]
        merged = map("".join, ranks)
        numbers = {symbol: number for number, symbol in enumerate(dict.fromkeys(chain(*flat, *ranks, merged)))}
        self.symbols = [symbol.removesuffix(END) for symbol in numbers]
        symbols = np.array([numbers[symbol] for state in flat for symbol in state], np.int32)
        self._states = Sequences.unpack(IdBlock(symbols, np.array([len(state) for state in flat], np.int64)))
        self._width = len(numbers)
        keys = np.array([numbers[a] * self._width + numbers[b] for a, b in ranks], np.int64)
        self._ranks = np.argsort(keys)
        self._keys = keys[self._ranks]
        self._merged = np.array([numbers[a + b] for a, b in ranks], np.int32)  # by rank

    def draw(self, words: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, Sequences]:
        """Draw a split of each word. Returns which words may not have their usual split, and the splits of these.

        words: their numbers. The splits are numbers of `symbols`.
        """
        survive = random.geometric(self.dropout, len(words)) - 1  # merges of the usual split before the first skipped
        changed = np.flatnonzero((survive < self._steps[words]) | ~self._whole[words])
        words, survive = words[changed], survive[changed]
        skipped = survive < self._steps[words]
        states = take(self._states, self._first[words] + np.minimum(survive, self._steps[words]))
        symbols, rows = states.ids, np.repeat(np.arange(len(words)), states.lengths)
        ended = [(symbols[:0], rows[:0])]
        while len(rows):
            ranks = self._pairs(symbols, rows)
            possible = np.flatnonzero(ranks < NO_MERGE)
            if len(ended) == 1:
                ranks[skipped[rows] & (ranks == lowest_in_rows(ranks, rows))] = NO_MERGE
            ranks[possible[random.random(len(possible)) < self.dropout]] = NO_MERGE
            best = lowest_in_rows(ranks, rows)
            end = best == NO_MERGE
            ended.append((symbols[end], rows[end]))
            symbols, rows = self._merge(symbols[~end], rows[~end], ranks[~end], (ranks == best)[~end])
        symbols, rows = (np.concatenate(parts) for parts in zip(*ended, strict=True))
        lengths = np.bincount(rows, minlength=len(changed))
        return changed, Sequences.unpack(IdBlock(symbols[np.argsort(rows, kind="stable")], lengths))

    def _pairs(self, symbols: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The rank of the merge of each symbol with the next one of its row; NO_MERGE where there is none."""
        keys = symbols[:-1].astype(np.int64) * self._width + symbols[1:]
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = (self._keys[places] == keys) & (rows[:-1] == rows[1:])
        return np.append(np.where(known, self._ranks[places], NO_MERGE), NO_MERGE)

    def _merge(
        self, symbols: np.ndarray, rows: np.ndarray, ranks: np.ndarray, chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Merge each chosen symbol with the next one. Of pairs that overlap, as in aaa, the first is merged."""
        places = np.arange(len(chosen))
        after = np.concatenate([[False], chosen[:-1]])
        run = np.maximum.accumulate(np.where(chosen & ~after, places, 0))  # where the run of chosen symbols starts
        chosen = chosen & ((places - run) % 2 == 0)
        symbols = symbols.copy()
        symbols[chosen] = self._merged[ranks[chosen]]
        kept = np.concatenate([[True], ~chosen[:-1]])[: len(chosen)]
        return symbols[kept], rows[kept]


def lowest_in_rows(ranks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """For each place the lowest rank in its row. rows: the row of each place, in order."""
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    return np.repeat(np.minimum.reduceat(ranks, starts), np.diff(starts, append=len(rows)))


def states_of(word: str, ranks: Mapping[tuple[str, str], int]) -> tuple[list[list[str]], bool]:
    """The symbols of a word before each merge of its usual split, and whether the list goes to the end of that split.

    The list ends before a pair that the word has twice, since one of the two may be skipped, and after MOST_STATES.
    ranks: of the merges.
    """
    symbols, states = [word] if word == SPECIALS[EOS] else [*word[:-1], word[-1] + END], []
    while len(states) < MOST_STATES:
        pairs = [ranks.get(pair, NO_MERGE) for pair in pairwise(symbols)]
        best = min(pairs, default=NO_MERGE)
        if best == NO_MERGE:
            return states, True
        states.append(symbols)
        if pairs.count(best) > 1:
            break
        place = pairs.index(best)
        symbols = [*symbols[:place], symbols[place] + symbols[place + 1], *symbols[place + 2 :]]
    return states, False


class DrawnPairs:
    """The training pairs of each epoch: a function of (text, seed, epoch).

    pairs: with the usual splits, which the last ones keep, `added` by back-translation. text: the tokens of both sides
    of each other pair, in order; it also has the pairs that `encode` dropped, with an empty side or more than
    max_length subwords on a side, which are left out here. A word keeps its usual split where a drawn one has a subword
    that is not in the vocabulary, and a pair where a side would have more than max_length subwords. Raises Mistake
    if text and merges do not give `pairs`.
    """

    def __init__(
        self,
        pairs: Pairs,
        text: Iterable[Sequence[Sequence[str]]],
        merges: Merges,
        vocabulary: Vocabulary,
        dropout: float,
        seed: int,
        max_length: int,
        added: int = 0,
    ):
        self.pairs, self.seed, self.max_length = pairs, seed, max_length
        numbers = {SPECIALS[EOS]: 0}
        usual = [[EOS]]
        words, counts = (array("i"), array("i")), (array("i"), array("i"))
        for both in text:
            own = [[*(self._number(word, numbers, usual, merges, vocabulary) for word in side), 0] for side in both]
            if all(1 < sum(len(usual[word]) for word in side) <= max_length + 1 for side in own):
                for side, kept in enumerate(own):
                    words[side].extend(kept)
                    counts[side].append(len(kept))
        self._words = [Sequences.unpack(IdBlock(*map(np.array, side))) for side in zip(words, counts, strict=True)]
        flat = np.array([*chain.from_iterable(usual)], pairs.source.ids.dtype)
        self._usual = Sequences.unpack(IdBlock(flat, np.array([len(ids) for ids in usual])))
        count = len(pairs) - added
        self._rest = [take(side, np.arange(count, len(pairs))) for side in (pairs.source, pairs.target)]
        for own, side in zip(self._words, (pairs.source, pairs.target), strict=True):
            spelt = take(self._usual, own.ids).ids
            if len(own.lengths) != count or not np.array_equal(spelt, side.ids[: side.starts[count]]):
                raise Mistake(
                    "The ids of the training pairs were not made of these tokens and merges. Encode them again."
                )
        self._merges = SkippedMerges(merges, [*numbers], dropout)
        self._ids = np.array(vocabulary.ids(self._merges.symbols), flat.dtype)

    @staticmethod
    def _number(
        word: str, numbers: dict[str, int], usual: list[list[int]], merges: Merges, vocabulary: Vocabulary
    ) -> int:
        """The number of a word. Sets its usual ids when it is met first."""
        if word not in numbers:
            numbers[word] = len(usual)
            usual.append(vocabulary.ids(merges.subwords([word])))
        return numbers[word]

    def __call__(self, epoch: int) -> Pairs:
        """The pairs of an epoch, in the order of `pairs`."""
        blocks = []
        count = len(self._words[0].lengths)
        for block, first in enumerate(range(0, count, BLOCK_PAIRS)):
            rows = np.arange(first, min(first + BLOCK_PAIRS, count))
            blocks.append(self._draw(rows, np.random.default_rng([self.seed, epoch, block])))
        source, target = (join_sequences(side) for side in zip(*blocks, self._rest, strict=True))
        return Pairs(source, target, self.pairs.lines, self.pairs.files)

    def _draw(self, rows: np.ndarray, random: np.random.Generator) -> list[Sequences]:
        """Both sides of the pairs with these numbers."""
        usual, sides = self._usual, []
        for words in (take(side, rows) for side in self._words):
            changed, splits = self._merges.draw(words.ids, random)
            splits = Sequences(self._ids[splits.ids], splits.starts)
            known = (
                ~np.logical_or.reduceat(splits.ids == UNK, splits.starts[:-1]) if len(changed) else np.zeros(0, bool)
            )
            chosen = words.ids.copy()
            chosen[changed[known]] = len(usual.lengths) + np.flatnonzero(known)
            sides.append((words, chosen, join_sequences([usual, splits])))
        lengths = (np.add.reduceat(table.lengths[chosen], words.starts[:-1]) for words, chosen, table in sides)
        long = np.logical_or.reduce([length > self.max_length + 1 for length in lengths])
        drawn = []
        for words, chosen, table in sides:
            pieces = take(table, np.where(np.repeat(long, words.lengths), words.ids, chosen))
            drawn.append(Sequences(pieces.ids, pieces.starts[words.starts]))
        return drawn
