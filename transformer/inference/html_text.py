"""The sentences of HTML, to translate them and leave all other characters as they are.

The text of a block, such as a paragraph, is translated as a whole. Its tags are placeholders of a model that has them.
For other models, and for a block whose translation loses a tag, emphasis without attributes is left out, and the block
is cut at all other tags.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape, unescape
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import NamedTuple

_RAW = "script|style|textarea|iframe"  # hold no tags, and are copied
_COPIED = ("code", "kbd", "samp", "svg", "math", "pre", "template")  # with all that they hold
_VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr").fullmatch  # no end tag
_EMPHASIS = "b|i|em|strong|u|small|span|sub|sup"
_INLINE = re.compile(  # inside a sentence; all other elements are blocks, or borders of blocks
    f"/?(?:{_EMPHASIS}|a|abbr|acronym|bd[io]|big|cite|code|data|del|dfn|font|img|ins|kbd|mark|math|q|r[pt]|ruby|s|samp"
    "|strike|svg|time|tt|var|wbr)"
)
_PLAIN = re.compile(f"</?(?:{_EMPHASIS})>", re.IGNORECASE | re.ASCII)  # emphasis without attributes
_S = " \t\n\f\r"  # what HTML takes for white space
_ATTRIBUTE = (  # as a browser reads it: a quoted value may hold `<` and `>`
    rf"(?:[{_S}/]++|[^{_S}/>][^{_S}/>=]*+"
    rf"""(?:[{_S}]*+=[{_S}]*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|(?!["'])[^{_S}>]*+))?+)"""
)
_ATTRIBUTES = f"{_ATTRIBUTE}*+"
_CLOSED = rf"""(?<![{_S}"']/)>"""  # not by "/>", as XHTML has it
_COPIED_TITLE = rf"title(?={_ATTRIBUTES}>[^<]*+<(?!/title))"  # with what looks like a tag, and is text there
_MARKUP = re.compile(  # what is not closed goes to the end, so that no part is looked through twice
    rf"\A\ufeff|<({_RAW}|{_COPIED_TITLE})(?=[{_S}/>]){_ATTRIBUTES}{_CLOSED}"
    rf".*?(?:</\1(?=[{_S}/>]){_ATTRIBUTES}(?:>|\Z)|\Z)"
    r"|<!--(?:-?>|.*?(?:--!?>|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)|<(?:[!?]|/(?![a-z]))[^>]*+(?:>|\Z)"
    rf"|<(/?[a-z][^{_S}/>]*+){_ATTRIBUTES}(?:>|\Z)",
    re.DOTALL | re.IGNORECASE | re.ASCII,
)
_ENTITY = re.compile(r"&#?\w{1,10};")
_LONG_NUMBER = re.compile(r"(?<=&#)\d{9,}")  # of a character, which Python would not read
_UNTRANSLATED = re.compile(
    rf"""<[^{_S}/>]++{_ATTRIBUTE}*?(?<=[{_S}/])translate[{_S}]*+=[{_S}]*+["']?no(?![\w-])""", re.IGNORECASE | re.ASCII
)
_NUMBER, _ESCAPED_NUMBER = re.compile(r'<x id="(\d{1,9})"/>'), re.compile(r'&lt;x id="(\d{1,9})"/&gt;')
MOST_TOKENS = 200  # of a block whose tags are placeholders
BLANK, TEXT, TAG, SINGLE, BORDER = range(5)  # kinds of tokens; BLANK: white space. SINGLE: markup that has no end tag


class Token(NamedTuple):
    """A part of HTML. name: of a tag, with "/" if it is an end tag."""

    start: int
    end: int
    kind: int
    name: str = ""


Block = Sequence[Token]


class Piece(NamedTuple):
    """A part of HTML that is translated as a whole. text: what the model gets, with <x id="7"/> for a tag.

    tags: id -> the tag. closing: id of a start tag -> that of its end tag.
    """

    start: int
    end: int
    text: str
    tags: Mapping[int, str]
    closing: Mapping[int, int]
    block: Block

    def keeps_tags(self, translation: str) -> bool:
        """Whether a translation has each tag once, well nested, and pairs no emptier than those of `text`."""
        if sorted(map(int, _NUMBER.findall(translation))) != [*self.tags]:
            return False
        before, after = self.contents(self.text), self.contents(translation)
        return bool(before and after) and all(after[start] >= content for start, content in before.items())

    def contents(self, text: str) -> dict[int, int]:
        """What a text has between two tags, by the start tag: 3: a letter or digit, 2: other markup, 1: a sign, or 0.

        -1 is the key of the whole. Empty, if the tags are not well nested.
        """
        ends, contents, waiting = {*self.closing.values()}, {-1: 0}, [-1]
        for place, part in enumerate(_NUMBER.split(text)):
            tag = int(part) if place % 2 else -1
            if tag in self.closing:
                waiting.append(tag)
                content = contents[tag] = 0
            elif tag in ends:
                start = waiting.pop()
                if not waiting or self.closing[start] != tag:
                    return {}
                content = contents[start]
            elif tag >= 0:
                content = 2
            else:
                content = 3 if any(map(str.isalnum, part)) else int(bool(part.strip()))
            contents[waiting[-1]] = max(contents[waiting[-1]], content)
        return contents

    def with_tags(self, translation: str) -> str:
        """A translation as HTML, with its tags."""
        text = escape(translation, quote=False)
        return _ESCAPED_NUMBER.sub(lambda match: self.tags.get(int(match[1]), match[0]), text)


class HtmlText:
    """HTML whose texts wait for translations: as long as there are `lines`, give `fill` their translations."""

    def __init__(self, html: str, placeholders: bool):
        """placeholders: whether the model has them."""
        self.html = html
        self.filled: list[tuple[int, int, str]] = []  # start, end, and what takes the place
        self.pieces = [piece for block in blocks(html) for piece in pieces_of(html, block, placeholders)]

    @property
    def lines(self) -> list[str]:
        """The texts to translate."""
        return [piece.text for piece in self.pieces]

    @property
    def places(self) -> list[int]:
        """For each of `lines` its line in the HTML, from 1."""
        starts = [0, *(piece.start for piece in self.pieces)]
        return [*accumulate((self.html.count("\n", *span) for span in pairwise(starts)), initial=1)][1:]

    def fill(self, translations: Iterable[str]) -> None:
        """Take the translations of `lines`. A block whose tags are lost gives new lines."""
        again = []
        for piece, translation in zip(self.pieces, translations, strict=True):
            if piece.tags and not piece.keeps_tags(translation):
                again += pieces_of(self.html, piece.block, placeholders=False)
            else:
                self.filled.append((piece.start, piece.end, piece.with_tags(translation)))
        self.pieces = again

    def write(self, path: Path) -> None:
        """Write the HTML with the translations."""
        path.write_bytes(encoded(self.result, self.html))

    @property
    def result(self) -> str:
        """The HTML with the translations."""
        parts, last = [], 0
        for start, end, text in sorted(self.filled):
            parts += [self.html[last:start], text]
            last = end
        return "".join([*parts, self.html[last:]])


def encoded(html: str, original: str) -> bytes:
    """The bytes of a translated page: in ASCII if the original was, since it may name any character set."""
    return html.encode("ascii" if original.isascii() else "utf-8", "xmlcharrefreplace")


def characters(html: str) -> str:
    """The text that HTML without tags spells."""
    return unescape(_LONG_NUMBER.sub("9999999", html))


def tokens(html: str) -> Iterator[Token]:
    """The texts and the markup of HTML, in their order."""
    last = 0
    for match in [*_MARKUP.finditer(html), None]:
        start, end = match.span() if match else (len(html), len(html))
        if start > last:
            yield Token(last, start, TEXT if characters(html[last:start]).strip() else BLANK)
        if match:
            name = (match[2] or "").lower()
            inline = not match[1] and (not name or _INLINE.fullmatch(name))
            yield Token(start, end, BORDER if not inline else TAG if name and not _VOID(name) else SINGLE, name)
        last = end


def pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """The place of a tag that has one -> that of its end tag, and the other way round."""
    waiting: dict[str, list[int]] = defaultdict(list)
    partner: dict[int, int] = {}
    for place, token in enumerate(tokens):
        if token.name[:1] != "/":
            waiting[token.name].append(place)
        elif waiting[token.name[1:]]:
            start = waiting[token.name[1:]].pop()
            partner[start], partner[place] = place, start
    return partner


def whole_elements(html: str) -> Iterator[Token]:
    """The tokens of HTML; an element that is copied with all that it holds is one. It must have an end tag."""
    every = [*tokens(html)]
    partner, following = pairs(every), 0
    for place, token in enumerate(every):
        if place < following:
            continue
        following = place + 1
        starts = partner.get(place, 0) > place
        if starts and (token.name in _COPIED or _UNTRANSLATED.match(html, *token[:2])):
            following = partner[place] + 1
            token = Token(token.start, every[partner[place]].end, BORDER if token.kind == BORDER else SINGLE)
        yield token


def blocks(html: str) -> Iterator[Block]:
    """The tokens of each block that has a text. A line break ends a block, as the end of a sentence may be there."""
    for is_border, group in groupby(whole_elements(html), lambda token: token.kind == BORDER):
        block = [*group]
        if not is_border and any(token.kind == TEXT for token in block):
            yield block


def pieces_of(html: str, block: Block, placeholders: bool) -> list[Piece]:
    """What is translated of a block. placeholders: whether tags are; else it is cut at all but pairs of emphasis."""
    partner = pairs(block)
    is_whole = all(token.kind != TAG or place in partner for place, token in enumerate(block))
    if placeholders and is_whole and len(block) <= MOST_TOKENS:
        return [piece_of(html, block, [*range(len(block))], partner, tags=True)]
    plain = [bool(_PLAIN.fullmatch(html, *token[:2])) for token in block]
    stays = [
        token.kind in (BLANK, TEXT) or (place in partner and plain[place] and plain[partner[place]])
        for place, token in enumerate(block)
    ]
    cuts = [*accumulate(not each for each in stays)]  # a pair with a cut between its tags is cut too
    stays = [each and cuts[place] == cuts[partner.get(place, place)] for place, each in enumerate(stays)]
    runs = [[*run] for in_run, run in groupby(range(len(block)), stays.__getitem__) if in_run]
    with_text = [run for run in runs if any(block[place].kind == TEXT for place in run)]
    return [piece_of(html, block, run, partner, tags=False) for run in with_text]


def piece_of(html: str, block: Block, places: list[int], partner: Mapping[int, int], tags: bool) -> Piece:
    """These places of a block as a piece. Markup at its ends stays outside. tags: whether that inside is kept."""
    alone = [block[place].kind != TEXT and place not in partner for place in places]
    first, last = 0, len(places) - 1
    while alone[first] or alone[last] or partner.get(places[first]) == places[last]:
        first, last = first + (alone[first] or not alone[last]), last - (not alone[first])
    inside = {place: html[block[place].start : block[place].end] for place in places[first : last + 1]}
    texts = {place: characters(text) for place, text in inside.items() if block[place].kind in (BLANK, TEXT)}
    text = "".join(texts.get(place) or f'<x id="{place}"/>' * tags for place in inside)
    raw = html[block[places[first]].start : block[places[last]].end]
    # As long, with spaces in place of entities such as &nbsp;, which stay outside at the ends.
    spaced = _ENTITY.sub(lambda match: match[0] if unescape(match[0]).strip() else " " * len(match[0]), raw)
    start = block[places[first]].start + len(spaced) - len(spaced.lstrip())
    kept = {place: tag for place, tag in inside.items() if tags and place not in texts}
    closing = {place: partner[place] for place in kept if partner.get(place, 0) > place}
    return Piece(start, start + len(spaced.strip()), " ".join(text.split()), kept, closing, block)
