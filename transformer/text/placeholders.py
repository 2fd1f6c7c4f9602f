"""What a translation must keep as it is, such as %s, {name} or an address, in place of which the model sees ①, ②, ...

Each of these numbers is a token and a subword of its own. In a line to translate, all placeholders get a number, in
their order. In a training pair only those that both sides have get one. A translation gets the source's placeholders
back by their numbers: a number that comes twice gives its text twice, one that the source lacks gives nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import regex

from transformer.text.characters import ENTITY

NUMBERS = "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯"  # further placeholders of a line stay text
_SPACE = r"\s\x1c-\x1f"  # \s of the package regex lacks what str.split takes for white space too
_EMOJI = r"\p{Extended_Pictographic}(?:\ufe0f|\p{EMod})?[\U000e0020-\U000e007f]*+"
# An opening tag without attributes is one of these, or its closing tag is in the line; else <file> stands for a word.
_TAGS = "a|b|big|br|center|code|dd|div|dl|dt|em|h[1-6]|hr|i|kbd|li|ol|p|pre|qt|s|small|span|strong|su[bp]|t[dhrt]|u|ul"
_NAME = r"(?:[A-Za-z][\w:-]*|\d{1,3})"  # of a tag; a number in the catalogues of React
_ATTRIBUTE = rf" [\w:-]+=(?:\"(?:[^\"<>{_SPACE}]| (?! ))*+\"|'(?:[^'<>{_SPACE}]| (?! ))*+')"
_ATTRIBUTES = rf"(?:{_ATTRIBUTE}| [\w:-]+=[^{_SPACE}<>\"'=`]+)*+"  # without quotes: of a tag that is one for sure
_DATE, _ONLY_DATE, _BETWEEN = "[aAbBcdDeHIjklmMpRSTUwWxXyYZz]", "[YmHMSyBbDjklRTUwWIZ]", "[-/:., T]{0,2}"
_MORE_DATE = f"(?:{_BETWEEN}%[-_^#0]?{_DATE}){{0,8}}"
_SIZE = "(?:hh|h|ll|l|q|j|z|t|L|I64|I32)?"
KINDS = {  # the first kind that matches counts; add a kind here, and a line with it to tests/text/test_placeholders.py
    "address": rf"(?:https?|ftps?|file)://[^{_SPACE}<>\"]*[\w/#=&+~-]",
    "web site": rf"(?<!\w)www\.[^{_SPACE}<>\"]*[\w/#=&+~-]",
    "e-mail address": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "name in at signs": r"@[A-Za-z_]\w{0,40}@",
    "code": rf"`[^`'{_SPACE}](?:[^`'\n]{{0,60}}[^`'{_SPACE}])?`|<code>[^<>\n]{{1,60}}</code>|\[\^\w+\]",
    "Markdown": r"(?<![\w*])\*{1,3}(?=[\w[])|(?<=[\w.!?:)\]])\*{1,3}(?![\w*])|!?\[(?=[^][]{1,200}\]\{\d+\})|\]\{\d+\}",
    "tag": (
        rf"</{_NAME}>|<{_NAME}(?:{_ATTRIBUTE})++ ?/?>|<{_NAME} ?/>|<(?i:{_TAGS}){_ATTRIBUTES} ?>"
        rf"|<(?P<tag>{_NAME}){_ATTRIBUTES}>(?=.{{0,1000}}?</(?P=tag)>)"
    ),
    "HTML entity": ENTITY,
    "name in two braces": r"\{\{[^{}]{1,60}\}\}",
    "code of a template": r"\{%[^%{}]{1,60}%\}|(?<!%)<%[^%<>]{1,60}%>",
    "plural of ICU": r"\{\w+, ?(?:plural|select\w*),(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*+\})*+\}",
    "name in braces": rf"[$%#]?\{{[^{_SPACE}{{}}]{{0,60}}\}}|\{{\w+, ?[^{{}}]{{1,60}}\}}",
    "percent sign": "%%",
    "name in percent signs": rf"(?<!\d)%(?!{_SIZE}[a-zA-Z@]%)[A-Za-z_]\w{{1,40}}%(?![\w%(])",
    "date format": (rf"(?<!\d ?)(?:%[aAcdepxX]{_BETWEEN}){{0,4}}%[-_^#0]?{_ONLY_DATE}{_MORE_DATE}(?![\p{{L}}\d])"),
    "C or Python format": (
        r"%\([\w-]+\)r|"
        r"(?:(?<!\d ?)|(?=%(?:[A-Za-z](?!\p{L})|\d+\$|\()))"  # not in 100%ige
        rf"%(?:\([\w-]+\)|\d+\$)?[-+#0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?{_SIZE}(?:[diouxXeEfFgGaAcspn@]|<PRI\w+>)"
        r"|(?<!\d)%<\w+>[-+#0]?\d*(?:\.\d+)?[diouxXeEfFgGs](?!\p{L})"  # of Ruby
    ),
    "Qt format": r"(?:(?<!\d)|(?<=%L?\d{1,2}))%L?\d{1,2}(?!\d)",
    "name of a shell": r"\$[A-Za-z_]\w*|\$\(\w+\)",
    "option of a command": r"(?<![\w-])(?:--[A-Za-z][\w-]*|-[A-Za-z](?=[],|=]|$)|(?<!^)-[a-z](?![\w-]|'\w))",
    "emoji": rf"(?:\p{{RI}}\p{{RI}}|[0-9#*]\ufe0f?\u20e3|{_EMOJI}(?:\u200d{_EMOJI})*)+",
    "number": r"\d{5,}",
    "mark of an accelerator": r"[_&](?=\p{L})",  # the mark alone: its letter is of the word
}
_PLACEHOLDER = regex.compile("|".join(KINDS.values()))
_POSSIBLE = re.compile(
    r"[%{<&@_$`^*]|--|(?<!\w)-[A-Za-z]|\d{5}|://|www\.|[\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001ffff]"
)
_NUMBER = re.compile(f"([{NUMBERS}])")
_CONVERSION = re.compile(r"%([^%($]*[A-Za-z@])")  # of C, without the number of its argument


def placeholders(line: str) -> list[str]:
    """The placeholders of a line, in their order."""
    return [line[start:end] for start, end in spans(line)]


def spans(line: str) -> list[tuple[int, int]]:
    """Where the placeholders of a line begin and end."""
    return [match.span() for match in _PLACEHOLDER.finditer(line)] if _POSSIBLE.search(line) else []


def protect(line: str) -> tuple[str, Sequence[str]]:
    """A line to the line with numbers in place of its placeholders, and the placeholders.

    A line that has such numbers itself is not changed: they stand for themselves.
    """
    if _NUMBER.search(line):
        return line, NUMBERS
    values = placeholders(line)[: len(NUMBERS)]
    return _replace_placeholders(line, iter(NUMBERS[: len(values)])), values


def protect_pair(source: str, target: str) -> tuple[str, str]:
    """A training pair with numbers in place of the placeholders that both sides have, in the order of the source."""
    values = placeholders(source)
    shared = Counter(values) & Counter(placeholders(target) if values else ())
    if not shared or _NUMBER.search(source + target):
        return source, target
    unused, source_numbers = iter(NUMBERS), []
    for value in values:
        source_numbers.append(next(unused, None) if shared[value] else None)
        shared[value] -= shared[value] > 0
    numbered = _number_as_source(target, zip(source_numbers, values, strict=True))
    return _replace_placeholders(source, iter(source_numbers)), numbered


def protect_target(target: str, values: Sequence[str]) -> str:
    """A translation with numbers in place of the placeholders that its source has. values: see `protect`."""
    return target if _NUMBER.search(target) else _number_as_source(target, zip(NUMBERS, values, strict=False))


def _number_as_source(target: str, numbered: Iterable[tuple[str | None, str]]) -> str:
    """A target with the numbers of its source. numbered: number or None, and text, of the source's placeholders."""
    numbers: dict[str, deque[str]] = defaultdict(deque)
    for number, value in numbered:
        if number:
            numbers[value].append(number)
    in_order = [numbers[value].popleft() if numbers[value] else None for value in placeholders(target)]
    return _replace_placeholders(target, iter(in_order))


def _replace_placeholders(line: str, numbers: Iterator[str | None]) -> str:
    """A line with a number in place of each placeholder; None, or no number left: it stays text."""
    if not _POSSIBLE.search(line):
        return line
    return _PLACEHOLDER.sub(lambda match: next(numbers, None) or match[0], line)


def remove_placeholders(line: str) -> str:
    """A line without its placeholders. What stood beside one is not joined, but around the mark of an accelerator."""
    return _PLACEHOLDER.sub(lambda match: "" if match[0] in "_&" else " ", line) if _POSSIBLE.search(line) else line


def restore(text: str, values: Sequence[str]) -> str:
    """A translation with the placeholders of its source in place of their numbers."""
    texts = dict(zip(NUMBERS, values, strict=False))
    return _NUMBER.sub(lambda match: texts.get(match[0], ""), text)


def cut(text: str) -> list[str]:
    """A text to its numbers and what is between them."""
    return [part for part in _NUMBER.split(text) if part]


def disagree(source: str, target: str) -> bool:
    """Whether one side of a pair has a placeholder that the other lacks.

    Conversions without the number of their argument have an order: %s %d is %1$s %2$d, and is not %d %s.
    """
    return Counter(_number_arguments(placeholders(source))) != Counter(_number_arguments(placeholders(target)))


def _number_arguments(values: Iterable[str]) -> list[str]:
    """Placeholders, with the number of its argument in each conversion of C: %s %d to %1$s %2$d."""
    numbers = count(1)
    return [
        _CONVERSION.sub(lambda match: f"%{next(numbers)}${match[1]}", value) if _CONVERSION.fullmatch(value) else value
        for value in values
    ]


def count_kept(lines: Iterable[tuple[str, str, str]]) -> tuple[int, int]:
    """Sources, references and translations to the number of those whose translation has the source's placeholders, and
    to the number of those that count: source and reference have the same, at least one."""
    counted = [
        (source, text) for source, reference, text in lines if placeholders(source) and not disagree(source, reference)
    ]
    return sum(not disagree(source, text) for source, text in counted), len(counted)
