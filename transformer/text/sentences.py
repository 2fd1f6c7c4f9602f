"""A line of several sentences to its sentences. In doubt a line is not split.

spaCy's tokenizers know the abbreviations of their languages: "Dr." and the "3." of a German date are one token, a full
stop is one of its own. spaCy's sentencizer splits after each such full stop, whatever follows it.
"""

from __future__ import annotations

import re

import regex

from transformer.text.characters import normalise
from transformer.text.languages import strip_region
from transformer.text.placeholders import protect, restore
from transformer.text.words import Side

_CLOSING = "\"'”“’‘»«›‹)]}*_"  # what may follow the mark that ends a sentence
_FIRST = re.compile(r"\W{0,20}(([^\W_])\w*)")  # the word after a mark, and its first letter or digit
_NUMBER = re.compile(r"\d{1,3}\.$")  # in German also an ordinal, as in "am 3. Mai"
_YEAR = re.compile(r"\d{4,}\.$")
_NOTE = re.compile(r"(?:\[\d{1,3}\])+$")  # the number of a footnote
_NAME = re.compile(r"(?:[/@].*|\w[\w-]+\.[a-z0-9]{2,4})\.$")  # an address, or the name of a file
_LAST_WORD = re.compile(r"(\w*)\W+$")
_NUMERAL = re.compile("[IVXLCDM]+")
# Scripts without spaces between sentences. Behind a closing mark, Hiragana goes on with the sentence: 「はい。」と.
_WIDE = regex.compile(r"[。！？｡។။]+(?:[」』”’）)]+(?!\p{Hiragana})|(?![」』”’）)]))")
_MARKS = regex.compile(r"[\p{Sentence_Terminal}…]$")  # by Unicode
_ENDS = regex.compile(
    r"(?:(?<!\b\w{1,2}|\d)\.|[[\p{Sentence_Terminal}…]--[.]])[\p{Sentence_Terminal}…]{0,9}"
    r"(?=[^\w\s]{0,9}(?:\s|$|\p{Lu}|\p{Lo}))",
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


def split_sentences(line: str, side: Side) -> list[str]:
    """The sentences of a line, without the white space around them; a line of white space alone has none.

    Joined by a space, they give the line in the normal form of the side, but for its white space.
    """
    line = normalise(line, side.normal_form)
    line, values = protect(line) if side.placeholders else (line, ())  # so that a tag is not cut
    sentences, start = [], 0
    for match in re.finditer(r"\S+", line):
        ends = [match.start() + wide.end() for wide in _WIDE.finditer(match[0])]
        piece = _NOTE.sub("", match[0]).rstrip(_CLOSING)
        if _MARKS.search(piece) and (following := _FIRST.match(line, match.end())):
            ends += [match.end()] * _ends_sentence(piece, following[1], side, bool(line[start : match.start()].strip()))
        for end in ends:
            sentences.append(line[start:end].strip())
            start = end
    sentences.append(line[start:].strip())
    return [restore(sentence, values) if values else sentence for sentence in sentences if sentence]


def is_lower(letter: str) -> bool:
    """Whether a letter is lower case. Georgian text has one case, which Unicode calls lower."""
    return letter.islower() and not "\u10d0" <= letter <= "\u10ff"


def _ends_sentence(piece: str, following: str, side: Side, before: bool) -> bool:
    """Whether a text with one of the marks at its end ends a sentence. following: the next word. before: whether the
    sentence has words before it.
    """
    if is_lower(following[0]) or not piece.endswith(".") or piece.endswith(".."):
        return not is_lower(following[0])
    if _YEAR.search(piece):
        return following[0].isalpha()
    *words, last = side.tokens(piece)
    if _NUMBER.search(piece) and last != ".":
        return before and strip_region(side.language) == "de" and following.lower() in _STARTS
    if _NAME.search(piece):
        return True
    return last == "." and bool(words) and not _is_abbreviation(_LAST_WORD.findall(piece)[0], following[0], side)


def _is_abbreviation(word: str, following: str, side: Side) -> bool:
    """Whether a word may be an abbreviation that spaCy does not know, or a numeral such as the "VIII" of a king."""
    if not word.isascii():
        return word.isalpha() and len(word) == 1
    if not word.isalpha():
        return False
    most = LONGEST_BEFORE_NUMBER if following.isdecimal() else 1
    if side.splitter == "unicode":
        most = LONGEST_WITHOUT_SPACY
    consonants = not re.search("[aeiouy]", word.lower()) and not word.isupper()
    return len(word) <= most or consonants or bool(_NUMERAL.fullmatch(word))
