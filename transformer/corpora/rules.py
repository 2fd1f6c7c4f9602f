"""The rules of the stage filter: each says why a pair of lines may be no translation of each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from transformer.text.identify import identifier, label
from transformer.text.languages import strip_region
from transformer.text.placeholders import remove_placeholders
from transformer.text.scripts import DIGIT, JOINED, SYMBOL, script_of

Rule = Callable[[str, str], bool]  # source and target line -> whether the rule would drop the pair
LANGUAGE_PAIRS = 500  # pairs that say which languages a text has
LEAST_LETTERS = 20  # language identification errs on shorter lines, so it keeps them
SURE_FROM = 0.9
SHARE_IN_SCRIPT = 0.5
_SCRIPTS = {  # scripts -> the languages that are written in them
    "Latin": "af az ca cs cy da de en es et eu fi fr ga gl hr hu id is it lb lt lv ms mt nb nl nn no pl pt ro sk sl sq "
    "sv sw tl tr vi",
    "Cyrillic": "ru uk bg mk be ky tt mn kk",
    "Cyrillic Latin": "sr",
    "Greek": "el",
    "Han Bopomofo": "zh",
    "Han Hiragana Katakana": "ja",
    "Hangul Han": "ko",
    "Arabic": "ar fa ur ckb",
    "Hebrew": "he yi",
    "Devanagari": "hi mr ne sa",
    "Bengali": "bn",
    "Gurmukhi": "pa",
    "Gujarati": "gu",
    "Tamil": "ta",
    "Telugu": "te",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Sinhala": "si",
    "Thai": "th",
    "Lao": "lo",
    "Tibetan": "bo",
    "Myanmar": "my",
    "Khmer": "km",
    "Georgian": "ka",
    "Armenian": "hy",
    "Ethiopic": "am ti",
}
SCRIPTS_OF = {code: scripts.split() for scripts, codes in _SCRIPTS.items() for code in codes.split()}
_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"')\]]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+\.[\w.-]+", re.IGNORECASE)
# Integer part, with thousands in groups of three or without, then decimals or the minutes of a time (10:30, 10.30).
_NUMBER = re.compile(r"((?!0)\d{1,3}(?:[.,'\u00a0\u202f ]\d{3}(?!\d))+|\d+)(?:[.,](\d+)|:(\d\d)(?!\d))?")


@dataclass(frozen=True)
class FilterConfig:
    """The knobs of the filter; 0, false or none switches a rule off. Lengths are in characters, a space included.

    The rules see lines in the normal form that `normalise` names; see text/characters.py.
    """

    normalise: str
    filter_empty: bool
    filter_max_characters: int
    filter_max_ratio: float
    filter_identical: bool
    filter_duplicates: str
    filter_min_alphabetic: float
    filter_max_word: int
    filter_numbers: bool
    filter_script: bool
    filter_language: bool


def rules(config: FilterConfig, source: str, target: str) -> dict[str, Rule]:
    """The rules that are on: name of the knob without filter_ -> rule. source, target: codes of the languages.

    Duplicates are not among them: whether a pair is one depends on the pairs before it.
    """
    by_name: dict[str, Rule] = {}
    if config.filter_empty:
        by_name["empty"] = lambda s, t: not s or not t
    if (most := config.filter_max_characters) > 0:
        by_name["max_characters"] = lambda s, t: len(s) > most or len(t) > most
    if (ratio := config.filter_max_ratio) > 0:
        by_name["max_ratio"] = lambda s, t: max(len(s), len(t)) > ratio * min(len(s), len(t))
    if config.filter_identical:
        by_name["identical"] = lambda s, t: s == t
    if (least := config.filter_min_alphabetic) > 0:
        by_name["min_alphabetic"] = lambda s, t: alphabetic_share(s) < least or alphabetic_share(t) < least
    if (longest := config.filter_max_word) > 0:
        by_name["max_word"] = lambda s, t: max(map(len, (*s.split(" "), *t.split(" ")))) > longest
    if config.filter_numbers:
        by_name["numbers"] = lambda s, t: figures(s) != figures(t)
    if config.filter_script:
        by_name["script"] = lambda s, t: not (is_in_script(s, source) and is_in_script(t, target))
    if config.filter_language:
        by_name["language"] = lambda s, t: not (is_in_language(s, source) and is_in_language(t, target))
    return by_name


def alphabetic_share(line: str) -> float:
    """The share of letters and marks among the characters of a line that are no spaces; 1 for an empty line."""
    shown = line.replace(" ", "")
    return sum(script_of(character) not in (DIGIT, SYMBOL) for character in shown) / len(shown) if shown else 1.0


def figures(line: str) -> list[str]:
    """The numbers and the addresses (web, e-mail) in a line, sorted. 1.000,50 and 1,000.5 are both 1000.5."""
    addresses = [address.rstrip(".,;:!?") for address in _ADDRESS.findall(line)]
    western = re.sub(r"\d", lambda digit: str(int(digit[0])), _ADDRESS.sub(" ", line))
    numbers = (
        ".".join((re.sub(r"\D", "", integer).lstrip("0"), (decimals or minutes).rstrip("0")))
        for integer, decimals, minutes in _NUMBER.findall(western)
    )
    return sorted([*addresses, *numbers])


def is_in_script(line: str, language: str) -> bool:
    """Whether at least half of the letters of a line are of a script of the language. True for a line without letters.

    Placeholders, tags and addresses do not count. Languages that SCRIPTS_OF does not name keep all lines.
    """
    letters = [kind for kind in map(script_of, remove_placeholders(line)) if kind not in (DIGIT, SYMBOL, JOINED)]
    scripts = SCRIPTS_OF.get(strip_region(language), [])
    return not letters or not scripts or sum(kind in scripts for kind in letters) >= SHARE_IN_SCRIPT * len(letters)


def other_languages(pairs: Iterable[tuple[str, str]], languages: tuple[str, str]) -> list[str]:
    """A sentence for each side that is mostly in another language than its code, by py3langid on some pairs."""
    sentences = []
    for lines, language in zip(zip(*islice(pairs, LANGUAGE_PAIRS), strict=True), languages, strict=False):
        texts = [" ".join(lines[start : start + 5]) for start in range(0, len(lines), 5)]  # one line is short
        others = [str(identifier().classify(text)[0]) for text in texts if not is_in_language(text, language)]
        if 2 * len(others) > len(texts):
            other, count = Counter(others).most_common(1)[0]
            share = f"{count} of {len(texts)} samples of its side look like {other}, by py3langid"
            swapped = f"Swapped, they are source {languages[1]}, target {languages[0]}."
            sentences.append(f"{language}: {share}. Are the languages right? {swapped}")
    return sentences


def is_in_language(line: str, language: str) -> bool:
    """Whether a line may be in its language: False if py3langid says with a probability over SURE_FROM that it is not.

    Placeholders, tags and addresses do not count. True for lines with fewer than LEAST_LETTERS letters, and for a
    language that py3langid does not know.
    """
    code, line = label(language), remove_placeholders(line)
    if code not in identifier().labels or sum(map(str.isalpha, line)) < LEAST_LETTERS:
        return True
    guess, probability = identifier().classify(line)
    return label(guess) == code or probability <= SURE_FROM
