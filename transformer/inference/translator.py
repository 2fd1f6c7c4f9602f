"""The public interface: lines of text to translations, by the model of a model folder.

    from transformer import Translator
    translator = Translator.load("data/model")
    translator.translate(["Ein Hund rennt."], beam_size=4)    # -> ["A dog is running."]

both_engines.py chooses between CTranslate2, which is faster on a CPU, and torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from transformer.decoding.config import SamplingConfig, SearchConfig
from transformer.decoding.hypothesis import Hypothesis
from transformer.files import Mistake
from transformer.inference.both_engines import check_ensemble, load_engine
from transformer.inference.engine import Check, Engine, Progress
from transformer.inference.glossary import Glossary
from transformer.inference.remarks import remarks_on, repeats_itself
from transformer.inference.translation import PairAttention, Sentence, SentencePair, Translation, join_translations
from transformer.inference.wider_search import search_again
from transformer.model.config import TransformerConfig
from transformer.model_folder import WEIGHTS, WORDS, check_sums, read_model_json
from transformer.text.bpe import Merges
from transformer.text.characters import half_character
from transformer.text.frames import Frame, frame
from transformer.text.marks import SPACE
from transformer.text.placeholders import disagree
from transformer.text.sentences import count_source_ends, split_sentences
from transformer.text.vocabulary import SPECIALS, UNK, Vocabulary
from transformer.text.word_counts import NO_WORDS, SeenWords
from transformer.text.words import Side

Word = tuple[str, list[str]]  # a token and its subwords
UNKNOWN = SPACE + SPECIALS[UNK]  # how Vocabulary.text shows <unk>: as a word. No token of a text equals it (marks.py).


def checked_lines(lines: Iterable[str]) -> list[str]:
    """Lines as a list. Raises TypeError for one string, which would be read letter by letter, and for no strings.

    Raises Mistake for half a character.
    """
    if isinstance(lines, str):
        raise TypeError(f"{lines[:40]!r} is one string. Give a list of lines.")
    if not isinstance(lines, Iterable):
        raise TypeError(f"{lines!r} is no list. Give a list of lines.")
    lines = list(lines)
    if wrong := [line for line in lines if not isinstance(line, str)]:
        raise TypeError(f"{str(wrong[0])[:40]!r} is no string. Give a list of lines.")
    for number, line in enumerate(lines, start=1):
        if half := half_character(line):
            raise Mistake(f"line {number}, character {half.start() + 1}: {half[0]!r} is half a character. Remove it.")
    return lines


class Translator:
    """Lines of text to translations, scores and attention weights."""

    def __init__(self, engine: Engine, merges: Merges, vocabulary: Vocabulary, source: Side, target: Side):
        """engine: computes on ids. merges, vocabulary: of the model. source, target: how lines become tokens."""
        self.engine, self.merges, self.vocabulary = engine, merges, vocabulary
        self.source, self.target = source, target
        self.seen_words = NO_WORDS
        self.glossary: Glossary | None = None
        self.scores: Any = None  # of its test set, as model.json has them
        self.knows_letters = any(map(str.isalpha, "".join(vocabulary.subwords[len(SPECIALS) :])))

    @classmethod
    def load(
        cls, *folders: Path | str, engine: str = "auto", glossary: Path | str | None = None, threads: int = 0
    ) -> Translator:
        """The translator of a model folder, on the GPU if there is one. Several folders are an ensemble.

        engine: torch, ctranslate2, or auto: what is fastest here and computes the same; see both_engines.load_engine.
        glossary: a file of terms, see Glossary.load. threads: see CTranslate2Engine. Raises Mistake for a folder
        without a model, for folders that cannot be an ensemble, and for a glossary if the model has no placeholders.
        """
        paths = [Path(folder) for folder in folders]
        first, *_ = contents = [read_model_json(path / "model.json") for path in paths]
        for path in paths:
            check_sums(path)
        for path, content in zip(paths[1:], contents[1:], strict=True):
            check_ensemble(paths[0], first, path, content)
        vocabulary, merges = Vocabulary.load(paths[0] / "vocab.txt"), Merges.load(paths[0] / "bpe.codes")
        sizes = TransformerConfig.read(first["sizes"], paths[0] / "model.json")
        if len(vocabulary) != sizes.vocabulary:
            raise Mistake(
                f"{paths[0]}: vocab.txt has {len(vocabulary):,} subwords, model.json says {sizes.vocabulary:,}. Copy "
                "the folder again."
            )
        translator = cls(load_engine(paths, engine, vocabulary, threads), merges, vocabulary, *Side.read_both(first))
        translator.seen_words = SeenWords(paths[0] / WORDS)
        translator.scores = first.get("scores") if len(paths) == 1 else None
        if glossary and not translator.source.placeholders:
            raise Mistake(f"{paths[0]} has no placeholders, which a glossary needs. Train it with placeholders: true.")
        translator.glossary = Glossary.load(Path(glossary)) if glossary else None
        return translator

    def translate(self, lines: Iterable[str], split: bool = True, **settings: Any) -> list[str]:
        """Lines to the best translation of each. settings: see `alternatives`.

        split: the sentences of a line are translated one by one (split_sentences) and joined (join_translations), since
        a model that was trained on single sentences translates only the first of several. A line break in a line is one
        in its translation. `alternatives` and `sample` take a line as one sentence, `score` and `attention` also with
        what frames it.
        """
        return [join_translations(pairs) for pairs in self.translate_sentences(lines, split, **settings)]

    def translate_sentences(
        self, lines: Iterable[str], split: bool = True, progress: Progress = lambda count: None, **settings: Any
    ) -> list[list[SentencePair]]:
        """Lines to the sentences of each, with their best translations; see `translate`. A blank line has none."""
        every = self.alternatives_of_sentences(lines, split, progress, **settings)
        return [[sentence.best for sentence in sentences] for sentences in every]

    def alternatives_of_sentences(
        self, lines: Iterable[str], split: bool = True, progress: Progress = lambda count: None, **settings: Any
    ) -> list[list[Sentence]]:
        """Lines to the sentences of each, with the `alternatives` of each sentence. progress: in lines."""
        lines = checked_lines(lines)
        parts = [self.sentences(line) if split else [("", frame(line))] for line in lines]
        sentences, done = [sentence for part in parts for _, sentence in part], [0, 0]  # for progress: sentences, lines

        def progress_in_lines(count: int) -> None:
            done[0] += count
            lines_done = len(lines) * done[0] // max(1, len(sentences))
            progress(lines_done - done[1])
            done[1] = lines_done

        every = iter(self._alternatives(sentences, progress=progress_in_lines, **settings))
        progress(len(lines) - done[1])  # blank lines alone
        return [[Sentence(sentence.text, next(every), before) for before, sentence in part] for part in parts]

    def sentences(self, line: str) -> list[tuple[str, Frame]]:
        """The sentences of a line, each with the line breaks before it. Its first and last have what frames it."""
        sentences: list[tuple[str, Frame]] = []
        breaks = ""
        for number, part in enumerate(line.split("\n")):
            breaks += "\n" * (number > 0 and bool(sentences))
            outer = frame(part)
            parts = split_sentences(outer.core, self.source, self.seen_words)
            if parts and not self._is_text(outer.core):
                parts = [outer.core]
            own = [frame(sentence) for sentence in parts]
            if not own and outer.text.strip():
                own = [Frame("", "")]  # of empty brackets
            own[:1] = [Frame(outer.before + first.before, first.core, first.after) for first in own[:1]]
            own[-1:] = [Frame(last.before, last.core, last.after + outer.after) for last in own[-1:]]
            for sentence in own:
                sentences.append((breaks, sentence))
                breaks = ""
        return sentences

    def alternatives(
        self, lines: Iterable[str], progress: Progress = lambda count: None, **settings: Any
    ) -> list[list[Translation]]:
        """Lines to at most beam_size translations of each, best first, those that met the length limit last.

        What frames a line (text/frames.py) stays as it is. A line without a letter is its own only translation, with
        log P 0. A translation that keeps the placeholders of the line, if the model has some, and does not repeat
        itself comes before better ones (wider_search.py).

        settings: config, a SearchConfig, or its fields: beam_size, length_penalty, extra_length. progress:
        called with the number of sentences after each batch. before_step: called before each step of the search, by
        CTranslate2 before each batch; what it raises ends the search. remarks: whether they are made. Raises Mistake
        for a setting out of range.
        """
        return self._alternatives(map(frame, checked_lines(lines)), progress, **settings)

    def _alternatives(
        self,
        frames: Iterable[Frame],
        progress: Progress = lambda count: None,
        before_step: Check = lambda: None,
        remarks: bool = True,
        config: SearchConfig | None = None,
        **settings: Any,
    ) -> list[list[Translation]]:
        """See `alternatives`."""
        if config and settings:
            raise TypeError(f"Give config, or {', '.join(settings)}, not both.")
        config = config or SearchConfig(**settings)

        def translate(lines: list[str]) -> list[list[Translation]]:
            words = {line: self._words(line) for line in dict.fromkeys(lines)}
            search = partial(self._searched, words, before_step=before_step)
            limits = {line: sum(len(part) for _, part in words[line]) + config.extra_length for line in words}

            def may_be_mended(line: str, best: Translation) -> bool:  # what ran to the limit takes longest, and stays
                return len(best.subwords) < limits[line] or self._has_lost(line, best)

            found = search(lines, config, progress)
            found = search_again(lines, found, config, search, self._is_wrong, may_be_mended)
            if not remarks:
                return found
            with_remarks = partial(self._with_remarks, extra_length=config.extra_length)
            return [
                [with_remarks(line, words[line], best), *rest] for line, (best, *rest) in zip(lines, found, strict=True)
            ]

        frames = [*frames]
        if self.glossary is None:
            return self._in_frames(frames, translate, progress)
        marked = [part._replace(core=self.mark_terms(part.core)) for part in frames]
        every = zip(frames, self._in_frames(marked, translate, progress), strict=True)
        return [[replace(each, text=self.fill_terms(part.core, each.text)) for each in some] for part, some in every]

    def mark_terms(self, line: str) -> str:
        """A source line with placeholders in place of the terms of the glossary, if there is one."""
        return self.glossary.mark(line) if self.glossary else line

    def fill_terms(self, line: str, translation: str) -> str:
        """A translation of a line of `mark_terms`, with the translations of its terms. line: before `mark_terms`."""
        return self.glossary.fill(line, translation) if self.glossary else translation

    def _in_frames(
        self, frames: list[Frame], translate: Callable[[list[str]], list[list[Translation]]], progress: Progress
    ) -> list[list[Translation]]:
        """Framed lines to the translations of each, in its frame. translate: lines with letters to translations."""
        searched = [part for part in frames if self._is_text(part.core)]
        progress(len(frames) - len(searched))
        results = {}
        if searched:
            for part, every in zip(searched, translate([part.core for part in searched]), strict=True):
                before, _, after = part
                framed = before or after
                results[part] = [replace(each, text=before + each.text + after) for each in every] if framed else every
        return [results.get(part) or [Translation(part.text, 0.0, 0.0, ())] for part in frames]

    def _is_wrong(self, line: str, translation: Translation) -> bool:
        """Whether a translation of a line is empty, repeats itself, or has other placeholders than the line.

        A copy of the line is not: one in forty messages of several words is its own translation.
        """
        return self._has_lost(line, translation) or not translation.text or repeats_itself(line, translation.subwords)

    def _has_lost(self, line: str, translation: Translation) -> bool:
        """Whether a translation has other placeholders than the line, for a model that keeps them."""
        return self.source.placeholders and disagree(line, translation.text)

    def _is_text(self, line: str) -> bool:
        """Whether a line is searched: it has a letter, placeholders aside, or the model knows none, as of numbers."""
        return any(map(str.isalpha, self.source.protect(line))) or not self.knows_letters

    def _words(self, line: str) -> list[Word]:
        """The tokens of a source line, each with its subwords."""
        return [(token, self.merges.subwords([token])) for token in self.source.tokens(line)]

    def _with_remarks(self, line: str, words: list[Word], translation: Translation, extra_length: int) -> Translation:
        """A translation of a line, with the remarks on it."""
        tokens, ids = [token for token, _ in words], self.vocabulary.ids
        unread = [token.removeprefix(SPACE) for token, part in words if UNK in ids(part)]
        unread = [*filter(None, unread), *self.seen_words.unread(tokens)]
        count = sum(len(part) for _, part in words)
        lengths, limit = (count, len(translation.subwords)), max(1, count + extra_length)
        ends, once = count_source_ends(tokens, self.seen_words), self.seen_words.unread(tokens, times=1)
        remarks = remarks_on(line, translation, lengths, limit, ends, unread=unread, once=once)
        return replace(translation, remarks=remarks)

    def sample(
        self, lines: Iterable[str], progress: Progress = lambda count: None, **settings: Any
    ) -> list[list[Translation]]:
        """Lines to translations of each that are drawn at random. The same seed gives the same translations.

        settings: the fields of SamplingConfig: samples, seed, temperature, top_k, top_p, extra_length. progress: see
        `alternatives`. Raises Mistake for a setting out of range.
        """
        config = SamplingConfig(**settings)
        method = partial(self._torch_method("sample"), config=config)

        def translate(lines: list[str]) -> list[list[Translation]]:
            words = [self._words(line) for line in lines]
            sources = [[subword for _, part in tokens for subword in part] for tokens in words]
            results = self._hypotheses(sources, method, progress)
            with_remarks = partial(self._with_remarks, extra_length=config.extra_length)
            return [
                [with_remarks(line, tokens, self._translation(sample, line)) for sample in samples]
                for line, tokens, samples in zip(lines, words, results, strict=True)
            ]

        return self._in_frames([frame(line) for line in checked_lines(lines)], translate, progress)

    def score(
        self, sources: Iterable[str], targets: Iterable[str], progress: Progress = lambda count: None
    ) -> list[list[float]]:
        """Sources and their translations to log P of each target subword, </s> last, in nats (forced decoding)."""
        sources, targets = checked_lines(sources), checked_lines(targets)
        if len(sources) != len(targets):
            raise Mistake(f"Got {len(sources)} sources and {len(targets)} targets. Give one target per source.")
        pairs = [self.split_pair(*pair) for pair in zip(sources, targets, strict=True)]
        source_ids, target_ids = ([self.vocabulary.ids(pair[side]) for pair in pairs] for side in (0, 1))
        return self._torch_method("score")(source_ids, target_ids, progress=progress)

    def attention(self, source: str, target: str) -> PairAttention:
        """A source and its translation to attention weights, and to the subwords of each (`split_by_word`)."""
        sides = (self.source.protect(source), self.source), (self.source.protect_target(source, target), self.target)
        source_subwords, target_subwords = (
            [subword for word in self.split_by_word(line, side) for subword in word] for line, side in sides
        )
        source_ids, target_ids = self.vocabulary.ids(source_subwords), self.vocabulary.ids(target_subwords)
        maps = self._torch_method("attention")(source_ids, target_ids)
        return PairAttention(maps, [*source_subwords, "</s>"], [*target_subwords, "</s>"])

    def subwords(self, lines: Iterable[str], side: Side | None = None) -> list[list[str]]:
        """Lines to the subwords of each. side: self.source (the default) or self.target.

        Raises TypeError for what is no list of strings.
        """
        return [self.merges.subwords((side or self.source).tokens(line)) for line in checked_lines(lines)]

    def split_pair(self, source: str, target: str) -> tuple[list[str], list[str]]:
        """A source and its translation to the subwords of each, as in training."""
        source, target = self.source.protect_pair(source, target)
        return self.merges.subwords(self.source.split(source)), self.merges.subwords(self.target.split(target))

    def split_by_word(self, line: str, side: Side) -> list[list[str]]:
        """A line, whose placeholders are numbers already, to the subwords of each of its tokens.

        side: self.source or self.target. On the target side, `<unk>` at the start of a word is the unknown subword; the
        rest follows without a space.
        """
        tokens = []
        for piece in line.split():
            unknown = side is self.target and piece.startswith(SPECIALS[UNK])
            rest = side.split(piece.removeprefix(SPECIALS[UNK]) if unknown else piece)
            tokens += [UNKNOWN, *(token.removeprefix(SPACE) for token in rest)] if unknown else rest
        return [[token] if token == UNKNOWN else self.merges.subwords([token]) for token in tokens]

    def _torch_method(self, name: str) -> Callable:
        """A method of the engine that needs torch. Raises Mistake for CTranslate2 alone."""
        if not hasattr(self.engine, name):
            raise Mistake(f"{name} needs torch. Use engine=auto, a folder with {WEIGHTS}, and pip install torch.")
        return getattr(self.engine, name)

    def _hypotheses(self, sources: list[list[str]], method: Callable, progress: Progress) -> list[list[Hypothesis]]:
        """The subwords of each line to hypotheses, by a method of the engine, which gets no empty line.

        Raises Mistake if the model's probabilities are no numbers, as after an overflow.
        """
        ids = [self.vocabulary.ids(subwords) for subwords in sources]
        rows = [row for row, sequence in enumerate(ids) if sequence]
        results = [[Hypothesis((), 0.0, 0.0)] for _ in ids]
        progress(len(ids) - len(rows))
        for row, hypotheses in zip(rows, method([ids[row] for row in rows], progress=progress), strict=True):
            if not hypotheses or not math.isfinite(hypotheses[0].log_probability):
                raise Mistake("The model gives no numbers as probabilities. Copy its folder again, or train again.")
            results[row] = hypotheses
        return results

    def _searched(
        self,
        words: Mapping[str, list[Word]],
        lines: list[str],
        config: SearchConfig,
        progress: Progress = lambda count: None,
        **how: Any,
    ) -> list[list[Translation]]:
        """Lines to translations of each, by the engine's search; equal lines are searched once. how: its arguments.

        words: line -> its tokens, each with its subwords.
        """
        different = list(dict.fromkeys(lines))
        if len(different) < len(lines):
            progress(len(lines) - len(different))
            results = dict(zip(different, self._searched(words, different, config, progress, **how), strict=True))
            return [results[line] for line in lines]
        sources = [[subword for _, part in words[line] for subword in part] for line in lines]
        results = self._hypotheses(sources, partial(self.engine.search, config=config, **how), progress)
        return [
            [self._translation(hypothesis, line) for hypothesis in hypotheses]
            for line, hypotheses in zip(lines, results, strict=True)
        ]

    def _translation(self, hypothesis: Hypothesis, line: str) -> Translation:
        """A hypothesis of a source line to a Translation."""
        subwords = [self.vocabulary.subwords[number] for number in hypothesis.ids]
        text = self.source.restore(self.vocabulary.text(hypothesis.ids), line)
        return Translation(text, hypothesis.score, hypothesis.log_probability, tuple(subwords))
