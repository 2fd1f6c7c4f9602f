"""A line of several sentences to its sentences. In doubt a line is not split.

spaCy's tokenizers know the abbreviations of their languages: "Dr." and the "3." of a German date are one token, a full
stop is one of its own. spaCy's sentencizer splits after each such full stop, whatever follows it.
"""

from __future__ import annotations

import re

from transformer.text.characters import normalise
from transformer.text.placeholders import protect, restore
from transformer.text.words import Side

_CLOSING = "\"'”“’‘»«›‹)]}*_"  # what may follow the mark that ends a sentence
_FIRST = re.compile(r"\W{0,20}([^\W_])")  # the first letter or digit of the text after a mark
_YEAR = re.compile(r"\d{4,}\.$")  # spaCy leaves its full stop at a number, as in "am 3. Mai"
_NOTE = re.compile(r"(?:\[\d{1,3}\])+$")  # the number of a footnote
_LAST_WORD = re.compile(r"(\w*)\W+$")
_NUMERAL = re.compile("[IVXLCDM]+")
_WIDE = re.compile("[。！？｡။។]+[」』”’）)]*")  # scripts without spaces between sentences
_MARKS = tuple("!?…؟।॥۔։።")  # with a full stop, what ends a sentence before a space
LONGEST_BEFORE_NUMBER = 4  # letters of an abbreviation before a number, as in "Fig. 3"
LONGEST_WITHOUT_SPACY = 3  # letters of an abbreviation in a language that spaCy does not split


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
        if piece.endswith((".", *_MARKS)) and (following := _FIRST.match(line, match.end())):
            ends += [match.end()] * _ends_sentence(piece, following[1], side)
        for end in ends:
            sentences.append(line[start:end].strip())
            start = end
    sentences.append(line[start:].strip())
    return [restore(sentence, values) if values else sentence for sentence in sentences if sentence]


def _ends_sentence(piece: str, following: str, side: Side) -> bool:
    """Whether a text with one of the marks at its end ends a sentence. following: the next letter or digit."""
    if following.islower() or not piece.endswith(".") or piece.endswith(".."):
        return not following.islower()
    if _YEAR.search(piece):
        return following.isalpha()
    *before, last = side.tokens(piece)
    return last == "." and bool(before) and not _is_abbreviation(_LAST_WORD.findall(piece)[0], following, side)


def _is_abbreviation(word: str, following: str, side: Side) -> bool:
    """Whether a word may be an abbreviation that spaCy does not know, or a numeral such as the "VIII" of a king."""
    if not (word.isascii() and word.isalpha()):
        return False
    most = LONGEST_BEFORE_NUMBER if following.isdecimal() else 1
    if side.splitter == "unicode":
        most = LONGEST_WITHOUT_SPACY
    consonants = not re.search("[aeiouy]", word.lower()) and not word.isupper()
    return len(word) <= most or consonants or bool(_NUMERAL.fullmatch(word))
