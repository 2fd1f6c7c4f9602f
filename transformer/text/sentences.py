"""A line of several sentences to its sentences. In doubt a line is not split.

spaCy's tokenizers know the abbreviations of their languages: "Dr." and the "3." of a German date are one token, a full
stop is one of its own. spaCy's sentencizer splits after each such full stop, whatever follows it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import regex

from transformer.text.characters import normalise
from transformer.text.languages import strip_region
from transformer.text.marks import SPACE, join
from transformer.text.placeholders import protect, restore
from transformer.text.word_counts import NO_WORDS, SeenWords
from transformer.text.words import Side

_CLOSING = "\"'”“’‘»«›‹)]}*_"  # what may follow the mark that ends a sentence
_FIRST = regex.compile(r"[^\p{L}\p{N}]{0,20}(([\p{L}\p{N}])\w*)")  # the word after a mark, and its first letter
_NUMBER = re.compile(r"\d{1,3}\.$")  # in German also an ordinal, as in "am 3. Mai"
_YEAR = re.compile(r"\d{4,}\.$")
_NOTE = re.compile(r"(?:\[\d{1,3}\])+$")  # the number of a footnote
_NAME = regex.compile(r"(?:[/@].*|\w[\w-]+\.[a-z0-9]{2,4})\.$")  # an address, or the name of a file
_NUMERAL = re.compile("[IVXLCDM]+")
_LATIN, _VOWEL = regex.compile(r"\p{Latin}+"), re.compile("[aeiouyæœøı]")
_CASELESS = regex.compile(r"\p{Lo}\p{M}*\.$")
# Scripts without spaces between sentences. Behind a closing mark, Hiragana goes on with the sentence: 「はい。」と.
_WIDE = regex.compile(r"[。！？｡។။]+(?:[」』”’）)]+(?!\p{Hiragana})|(?![」』”’）)]))")
_MARK = r"(?:[\p{Sentence_Terminal}…\u0f0d-\u0f12]|(?<=\p{Greek}[»”)]?);)"  # by Unicode, with Tibetan and Greek ones
_MARKS = regex.compile(f"{_MARK}$")
_ENDS = regex.compile(
    rf"(?:(?<!\b(?:[\w--\p{{M}}--\p{{Lo}}]{{1,2}}|\p{{Lo}})|\d)\.|(?!\.){_MARK}){_MARK}{{0,9}}(?=[^\w\s]{{0,9}}(?:\s|$|\p{{Lu}}|\p{{Lo}}))",
    regex.V1,
)
# After a number with a full stop, in German also an ordinal ("am 3. Mai"), these begin a sentence: they are no nouns.
_STARTS = ("das", "der", "die", "es", "er", "sie", "ich", "wir", "ein", "eine", "hier", "dann", "danach")
LONGEST_BEFORE_NUMBER = 4  # letters of an abbreviation before a number, as in "Fig. 3"
LONGEST_WITHOUT_SPACY = 3  # letters of an abbreviation in a language that spaCy does not split


def count_ends(text: str) -> int:
    """How many sentences may end in a text: marks before a space, an upper-case letter or one of a script without case.

    Full stops of abbreviations and numbers are not counted.
    """
    return sum(1 for _ in _ENDS.finditer(text))


def count_source_ends(tokens: Sequence[str], seen: SeenWords) -> int:
    """`count_ends` of the tokens of a line, without the full stops of abbreviations that spaCy or `seen` knows.

    The full stop of an abbreviation that spaCy knows is part of its token.
    """
    pairs = zip(["", *tokens], tokens, strict=False)
    kept = [token for before, token in pairs if token != "." or not seen.is_abbreviation(before.removeprefix(SPACE))]
    return count_ends(join(token if len(token) < 3 or _CASELESS.search(token) else token.rstrip(".") for token in kept))


def split_sentences(line: str, side: Side, seen: SeenWords = NO_WORDS) -> list[str]:
    """The sentences of a line, without the white space around them; a line of white space alone has none.

    Joined by a space, they give the line in the normal form of the side, but for its white space. seen: the words of
    the training text, for abbreviations that spaCy does not know.
    """
    line = normalise(line, side.normal_form)
    line, values = protect(line) if side.placeholders else (line, ())  # so that a tag is not cut
    sentences, start = [], 0
    for match in re.finditer(r"\S+", line):
        ends = [match.start() + wide.end() for wide in _WIDE.finditer(match[0])]
        piece = _NOTE.sub("", match[0]).rstrip(_CLOSING)
        if _MARKS.search(piece) and (following := _FIRST.match(line, match.end())):
            before = bool(line[start : match.start()].strip())
            ends += [match.end()] * _ends_sentence(piece, following[1], side, seen, before)
        for end in ends:
            sentences.append(line[start:end].strip())
            start = end
    sentences.append(line[start:].strip())
    return [restore(sentence, values) if values else sentence for sentence in sentences if sentence]


def is_lower(letter: str) -> bool:
    """Whether a letter is lower case. Georgian text has one case, which Unicode calls lower."""
    return letter.islower() and not "\u10d0" <= letter <= "\u10ff"


def _ends_sentence(piece: str, following: str, side: Side, seen: SeenWords, before: bool) -> bool:
    """Whether a text with one of the marks at its end ends a sentence. following: the next word. before: whether the
    sentence has words before it.
    """
    if is_lower(following[0]) or not piece.endswith(".") or piece.endswith(".."):
        return not is_lower(following[0])
    if _YEAR.search(piece):
        return following[0].isalpha()
    *words, last = side.tokens(piece)
    if _CASELESS.search(last) and side.tokens(f"{3 * last[:-1]}.")[-1] != ".":  # spaCy does not list these letters
        words, last = [*words, last[:-1]], "."
    if _NUMBER.search(piece) and last != ".":
        return before and strip_region(side.language) == "de" and following.lower() in _STARTS
    if _NAME.search(piece):
        return True
    word = words[-1].removeprefix(SPACE) if words and last == "." else ""
    return bool(word) and not (seen.may_be_abbreviation(word, following) or _is_abbreviation(word, following[0], side))


def _is_abbreviation(word: str, following: str, side: Side) -> bool:
    """Whether a word may be an abbreviation that spaCy does not know, or a numeral such as the "VIII" of a king."""
    if not _LATIN.fullmatch(word):
        return word.isalpha() and len(word) == 1
    most = LONGEST_BEFORE_NUMBER if following.isdecimal() else 1
    if side.splitter == "unicode":
        most = LONGEST_WITHOUT_SPACY
    consonants = not _VOWEL.search(unicodedata.normalize("NFD", word.lower())) and not word.isupper()
    return len(word) <= most or consonants or bool(_NUMERAL.fullmatch(word))
