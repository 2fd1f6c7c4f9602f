"""A file with a table of sentences to pairs of texts: .csv, .tsv, .txt by csv, .xlsx by openpyxl, JSON by pandas."""

from __future__ import annotations

import csv
import json
import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from io import BytesIO
from itertools import product
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import pandas as pd

from transformer.corpora.parallel_text import LinePair
from transformer.corpora.text_files import LONGEST_LINE, open_file, plain_name
from transformer.files import Mistake, decode_line, is_bug, mistake_line
from transformer.text.languages import strip_region

JSON, SPREADSHEETS = (".json", ".jsonl"), (".xlsx", ".xlsm")
ENDS = (".tsv", ".txt", ".csv", *JSON, *SPREADSHEETS)
SIDES = {"source", "src", "original"}, {"target", "tgt", "trg", "translation"}
SEPARATORS = ",;\t|"  # of a .csv
NO_TEXT = ("NA", "NULL", "TRUE", "FALSE")  # what programs write without quotes beside texts in quotes
HEAD = 10  # rows in which a header is looked for, with titles above it
EXPORT = "Export it with doubled quotes (Spark: escape='\"'; MySQL: ESCAPED BY ''; PostgreSQL: FORMAT csv)."
csv.field_size_limit(LONGEST_LINE)
warnings.filterwarnings("ignore", module="openpyxl")  # of what it leaves out: charts, lists to choose from

Rows = Sequence[Sequence[Any]]
Rule = Callable[[str], bool]  # whether a column's name fits


class Start(NamedTuple):
    """Where the pairs of a file are: its sheet, the header if there is one, the first row, source and target."""

    sheet: str
    header: Sequence[str] | None
    first: int
    indices: tuple[int, int]


@dataclass
class Table:
    """A table of sentences: each row has a source and a target.

    languages: codes of source and target. columns: the two columns, by name or by number from 1; empty: those that the
    header names by codes or names of the languages. separator: of a text; empty: the one that fits.
    """

    path: Path
    languages: tuple[str, str]
    columns: Sequence[str] = ()
    separator: str = ""

    @property
    def names(self) -> tuple[str, str]:
        return str(self.path), str(self.path)

    def _ends(self, *ends: str) -> bool:
        """Whether the name of the file has one of these endings."""
        return plain_name(self.path).endswith(ends)

    def pairs(self) -> Iterator[LinePair]:
        """The source and the target of each row, as they stand there; what is missing, or fuzzy, is empty.

        Raises Mistake for a file that cannot be read, and for one whose columns are not clear.
        """
        sheet, header, first, (source, target) = self._start
        fuzzy = header.index("fuzzy") if header and "fuzzy" in header else None  # Weblate: nobody checked the row
        for number, row in enumerate(self._sheets[sheet][first:], start=first + 1):
            missing = max(source, target) + 1 - len(row)
            if not [cell for cell in row if cell is not None]:
                continue
            if missing > 0 and self._ends(".tsv", ".txt"):
                remedy = EXPORT if row[-1].endswith("\\") else "Join it with the line before, or delete it."
                raise Mistake(f"{self.path}: row {number}, {row[0][:40]!r}, has too few columns. {remedy}")
            cells = [*map(text_of, row), *[""] * missing]
            is_fuzzy = fuzzy is not None and str([*row[fuzzy:], ""][0]).casefold() == "true"
            yield ("", "") if is_fuzzy else (cells[source], cells[target])

    def describe_columns(self) -> str:
        """Which columns are source and target, what is remarkable, and the first pair, for people."""
        sheet, header, _, indices = self._start
        named = [f"column {index + 1} ({header[index] if header else 'no name'})" for index in indices]
        others = ", ".join(name for name in self._sheets if name != sheet)
        escapes = sum(bool(re.search(r"\\[\\nrt]", "".join(pair))) for pair in self.pairs())
        full = (pair for pair in self.pairs() if all(map(str.strip, pair)))
        parts = [
            f"sheet {sheet}, not {others}" * bool(others),
            " and ".join(f"{name} as {code}" for name, code in zip(named, self.languages, strict=True)),
            f"{escapes:,} rows have \\n, \\r, \\t or \\\\, which stay as they are" * bool(escapes),
            "no header: if this is one, give its names to --columns" * (header is None),
            "fuzzy rows count as blank" * ("fuzzy" in (header or [])),
            f"the first pair: {' = '.join(repr(text[:40]) for text in next(full, ()))}",
        ]
        return "; ".join(filter(None, parts))

    @cached_property
    def _sheets(self) -> dict[str, Rows]:
        """The tables in the file, by the names of the sheets of a spreadsheet."""
        if self._ends(*SPREADSHEETS):
            return read_spreadsheet(self.path)
        return {"": read_objects(self.path) if self._ends(*JSON) else self._read_text()}

    @cached_property
    def _start(self) -> Start:
        """Where the pairs are: in the first sheet whose columns are clear. Raises Mistake if there is none."""
        seen = []
        for sheet, all_rows in self._sheets.items():
            rows = [["" if cell is None else str(cell).strip() for cell in row] for row in all_rows[: HEAD + 1]]
            if start := self._find_start(sheet, rows):
                return start
            widest = max(rows, key=lambda row: sum(map(bool, row)), default=[])
            columns = [f"{number} {cell[:30]!r}" for number, cell in enumerate(widest, start=1) if cell]
            more = ", and more" * bool(columns[12:])
            seen.append(f"sheet {sheet}: " * bool(sheet) + ", ".join(columns[:12]) + more)
        question = f"which columns are {' and '.join(self.languages)}?"
        if self.columns:
            question = f"--columns {' '.join(map(quote, self.columns))} does not name two of its columns."
        of_json = " Two files of messages: json2po -t SOURCE.json TARGET.json train.po" * self._ends(*JSON)
        raise Mistake(
            f"{self.path}: {question} It has {'; '.join(seen) or 'no rows'}. "
            f"Name them: --columns SOURCE TARGET, by names or numbers.{of_json}"
        )

    def _find_start(self, sheet: str, rows: Sequence[list[str]]) -> Start | None:
        """Where the pairs of a sheet are, by its first rows; None if the columns are not clear."""
        titles = next((place for place, row in enumerate(rows) if sum(map(bool, row)) > 1), len(rows))
        for place, row in enumerate(rows[titles:], start=titles):
            below = next(filter(any, rows[place + 1 :]), [])
            if place > titles and not below:
                break
            source, target = find_columns(row, below, self.languages, exactly=place > titles)
            if self.columns:
                found = [column_index(column, row) for column in self.columns]
                others = [pair for n, pair in enumerate(zip(row, below, strict=False)) if n not in found]
                over_number = place == titles and any(n.isdecimal() > name.isdecimal() for name, n in others)
                named = any(column in row for column in self.columns if not column.isdecimal())
                known = named or bool({source, target} & {*found} - {None}) or over_number
                source, target = found if known or self._ends(*JSON) else (None, None)
            if source is not None and target is not None and source != target:
                return Start(sheet, row, place + 1, (source, target))
        source, target = (column_index(column, max(rows, key=len, default=[])) for column in self.columns or ("", ""))
        if source is None or target is None or source == target:
            return None
        return Start(sheet, None, titles, (source, target))

    def _read_text(self) -> Rows:
        """The rows of a text, by the separator and the quotes that fit. Raises Mistake if none fits, or several do."""
        with open_file(self.path) as file:
            raw = (decode_line(line, str(self.path), number, LONGEST_LINE) for number, line in enumerate(file, start=1))
            lines = [line.rstrip("\r\n").replace("\r", " ") + "\n" for line in raw]
        lines[:1] = [line.removeprefix("\ufeff") for line in lines[:1]]
        separators = self.separator or (SEPARATORS if self._ends(".csv") else "\t")
        fits: dict[tuple[str, bool], tuple[int, float]] = {}
        errors: dict[str, csv.Error] = {}
        for separator, quoted in product(separators, (True, False)):
            try:
                fits[separator, quoted] = self._fit(lines, separator, quoted)
            except csv.Error as error:
                errors.setdefault(separator, error)
        best = max(fits.values(), default=(0, 0.0))
        if not best[0]:
            if slash := next((number for number, line in enumerate(lines, start=1) if '\\"' in line), None):
                raise Mistake(f"{self.path}:{slash}: a quote after a backslash. {EXPORT}")
            reason = errors.get(max(separators, key="".join(lines[:HEAD]).count), ": a table of one column, or empty")
            remedy = "Put the whole cell in quotes, and double the quotes in it; or give a text file for each language."
            raise Mistake(f"{self.path}{reason}. {remedy}")
        ways = [way for way, fit in fits.items() if fit == best]
        if len({separator for separator, _ in ways}) > 1:
            marks = " or ".join(sorted({repr(separator) for separator, _ in ways}))
            raise Mistake(f"{self.path}: {marks} may separate its columns. Name one: --separator.")
        return read_rows(lines, *ways[0])

    def _fit(self, lines: Sequence[str], separator: str, quoted: bool) -> tuple[int, float]:
        """How well a separator fits a text, with quotes around cells or without; and the share of rows that are full.

        3: quotes are by a rule. 2: no cell is in quotes. 1: some are, by no rule. 0: it does not fit.
        """
        rows = read_rows(lines, separator, quoted)
        widths = [len(row) for row in rows if row]
        full = widths.count(max(widths, default=0)) / max(1, len(widths))
        is_csv, escaped = self._ends(".csv"), any('\\"' in line for line in lines)
        if quoted:
            quality = 3 if has_rule_of_quotes("".join(lines), separator) else int(is_csv and not escaped)
        else:
            around = any(len(cell) > 1 and cell[0] == cell[-1] == '"' for row in rows for cell in row)
            whole = sum(bool(re.fullmatch('"(?:[^"]|"")*+"', cell)) for row in rows for cell in row)
            wrong = whole > len(rows) or (around and escaped) or (is_csv and (around or escaped or full < 1))
            quality = 0 if wrong else 2
        return quality if max(widths, default=0) > 1 else 0, full


def read_rows(lines: Sequence[str], separator: str, quoted: bool) -> list[list[str]]:
    """The rows of a text by csv.reader. Raises csv.Error with the line that cannot be a row."""
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True, skipinitialspace=True)
    rows, starts, width, first = list[list[str]](), list[int](), 0, 1
    try:
        for row in reader:
            rows.append(row)
            width = max(width, len(row)) if len(rows) <= HEAD else width
            if len(row) > width or (len(rows) == HEAD and width == 1):
                raise csv.Error("one column only" if width == 1 else f"{len(row)} columns, but {width} above")
            if reader.line_num > first and sum("\n" in cell for cell in row) == 1:
                parts = [line.strip().split(separator) for line in lines[first - 1 : reader.line_num]]
                if all(len(part) == width and all(part) for part in parts):
                    raise csv.Error("a quote that takes in the next lines")
            starts.append(first)
            first = reader.line_num + 1
        usual = Counter(len(row) for row in rows[:HEAD] if len(row) > 1).most_common(1)
        wide = [n for n, row in enumerate(rows) if usual and any(row[usual[0][0] :])]
        if wide:
            first = starts[wide[0]]
            raise csv.Error(f"{len(rows[wide[0]])} columns, but {usual[0][0]} in most of the first rows")
    except csv.Error as error:
        raise csv.Error(f":{first}: {error}") from None
    return rows


def has_rule_of_quotes(text: str, separator: str) -> bool:
    """Whether quotes stand around whole cells, doubled inside, and by a rule.

    Around cells that need them, or around most cells of a column below its name, as around texts and not numbers.
    """
    mark = re.escape(separator)
    plain = f'[^"\n{mark}]' if separator == "\t" else f'(?! )[^"\n{mark}]'  # a comma of a text has a space behind it
    cell = re.compile(rf'(?: *"((?:[^"]|"")*+)"|({plain}*+))([\n{mark}])')
    columns: dict[int, list[bool]] = defaultdict(list)  # whether a cell that does not need quotes has them
    marked: dict[int, list[bool]] = defaultdict(list)  # the same of cells with a comma, which Excel puts in quotes
    place = row = column = 0
    while place < len(text):
        match = cell.match(text, place)
        if not match:
            return False
        quoted, bare, end = match.groups()
        has_word = bare and any(map(str.isalpha, bare)) and bare.upper() not in NO_TEXT
        if row and (has_word or not re.search(rf'^\s|["\n{mark}]|\s$', quoted or '"')):
            (marked if "," in (bare or quoted or "") else columns)[column].append(not bare)
        place, row, column = match.end(), row + (end == "\n"), 0 if end == "\n" else column + 1
    by_comma = all(all(cells) for cells in marked.values())
    for column, cells in marked.items():
        columns[column] += [] if by_comma else cells
    return all(not any(cells) or 2 * sum(cells) > len(cells) for cells in columns.values())


def find_columns(
    header: Sequence[str], below: Sequence[str], languages: tuple[str, str], exactly: bool
) -> tuple[int | None, int | None]:
    """The columns of source and target in a header, each by the first rule that fits a name; None if several fit.

    below: the next row. A column of codes or of numbers is none. exactly: a name is the language and nothing else.
    """

    def by_language(language: LanguageNames) -> list[Rule]:
        return [
            lambda name: name == language.tag,
            lambda name: re.sub(r"\s*[(\[].*", "", name) in language,  # English (US)
            lambda name: name.rpartition(".")[2] in language,
            lambda name: not exactly and not sides and any(map(language.__contains__, words_of_name(name))),
        ]

    def by_side(side: set[str]) -> list[Rule]:
        return [
            lambda name: name.rpartition(".")[2] in side,
            lambda name: not exactly and bool(words_of_name(name) & side),
        ]

    def column(language: LanguageNames, rules: list[Rule]) -> int | None:
        cells = [(n, *cell) for n, cell in enumerate(zip(names, following, strict=False))]
        fitting = ([n for n, name, cell in cells if rule(name) and cell not in language] for rule in rules)
        indices = next(filter(None, fitting), [])
        return indices[0] if len(indices) == 1 else None

    following = [cell.casefold() for cell in (*below, *[""] * len(header))]
    names = [
        "" if is_key(name.casefold(), cell) else name.casefold() for name, cell in zip(header, following, strict=False)
    ]
    sides = all(any(words_of_name(name) & side for name in names) for side in SIDES)  # then "MT (en)" is neither
    pair = [*zip(names_of_both(languages), SIDES, strict=True)]
    source, target = (column(language, by_language(language)) for language, _ in pair)
    if source is None or target is None:
        source, target = (
            column(language, by_side(side) if sides else by_language(language) + by_side(side))
            for language, side in pair
        )
    return source, target


def is_key(name: str, cell: str) -> bool:
    """Whether a column has no texts: numbers, addresses, or keys under the name id, which is a language too."""
    return cell.isdecimal() or "://" in name or (name == "id" and not re.fullmatch(r"[^\W\d_]+[.!?]?|.* .*", cell))


def words_of_name(name: str) -> set[str]:
    """The parts of a column's name, such as text_en; of several words the long ones and a code in brackets.

    Nothing of a sentence.
    """
    parts = re.split(r"[\W_]+", name)
    if " " not in name:
        return set(parts)
    is_name = len(parts) <= 4 and (name[-1].isalnum() or name[-1] in ")]")
    return {part for part in parts if len(part) > 3 or f"({part})" in name or f"[{part}]" in name} if is_name else set()


class LanguageNames:
    """The codes and names of a language: hau, ha_NG and Hausa are of ha, and Haussa is, if the other language is de."""

    def __init__(self, language: str, both: tuple[str, str]):
        from babel import Locale, UnknownLocaleError  # imported here, since few files need it

        self.tag, self.code, self.words = language.casefold(), strip_region(language), set[str]()
        places = (*Locale("en").territories, *Locale("en").scripts)
        self.regions = {str(place).casefold() for place in places}
        for named_in in ("en", *map(strip_region, both)):
            with suppress(UnknownLocaleError, ValueError):  # CLDR has no texts in this language
                self.words.add((Locale(named_in).languages.get(self.code) or "").casefold())

    def __contains__(self, word: str) -> bool:
        _, *regions = word.replace("_", "-").partition("@")[0].split("-")
        is_code = self.regions.issuperset(regions) and strip_region(word.replace("_", "-")) == self.code
        return bool(word) and (word in self.words or is_code)


@cache
def names_of_both(languages: tuple[str, str]) -> tuple[LanguageNames, LanguageNames]:
    """The names of source and target."""
    source, target = languages
    return LanguageNames(source, languages), LanguageNames(target, languages)


def column_index(column: str, header: Sequence[str]) -> int | None:
    """The index of a column, from 0, by its name or its number from 1."""
    if column.isdecimal():
        return int(column) - 1 if 1 <= int(column) <= len(header) else None
    return header.index(column) if column in header else None


def read_spreadsheet(path: Path) -> dict[str, Rows]:
    """The rows of each sheet of a spreadsheet. Raises Mistake for what openpyxl does not read."""
    import openpyxl  # imported here, since few files need it
    from openpyxl.utils.escape import unescape

    def value(cell: Any) -> Any:
        if cell.data_type == "e":  # an error, such as #REF!
            return None
        return unescape(cell.value) if isinstance(cell.value, str) else cell.value

    with open_file(path) as file:
        content = b"".join(file)
    try:
        sheets = openpyxl.load_workbook(BytesIO(content), read_only=True, data_only=True).worksheets
        for sheet in sheets:
            sheet.reset_dimensions()  # some programs write wrong ones; and a row ends with its last cell
        return {sheet.title: [[*map(value, row)] for row in sheet.iter_rows()] for sheet in sheets}
    except Exception as error:
        if is_bug(error) or mistake_line(error):
            raise
        reason = (
            "it has a password" if "EncryptedPackage".encode("utf-16-le") in content else " ".join(str(error).split())
        )
        raise Mistake(f"{path} is not read by openpyxl ({reason}). Save it as .xlsx, without a password.") from None


def read_objects(path: Path) -> Rows:
    """The names and the rows of a .json or .jsonl: a list of objects, an object a line, or a list for each column.

    Raises Mistake with the place.
    """
    with open_file(path) as file:
        lines = (decode_line(line, str(path), number, LONGEST_LINE) for number, line in enumerate(file, start=1))
        text = "".join(lines).removeprefix("\ufeff")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = []
        for number, line in enumerate(text.split("\n"), start=1):
            try:
                content += [json.loads(line)] if line.strip() else []
            except ValueError as error:
                raise Mistake(f"{path}:{number}: not JSON ({error}). Correct it.") from None
    remedy = "Write a list of objects with a text in each language."
    if isinstance(content, dict):
        lists = {name: value for name, value in content.items() if isinstance(value, list)}
        tables = [value for value in lists.values() if any(isinstance(row, dict) for row in value)]
        if len(tables) > 1 or (len(lists) > 1 and not tables and len({*map(len, lists.values())}) > 1):
            sizes = ", ".join(f"{name} ({len(value)})" for name, value in lists.items())
            raise Mistake(f"{path} has the lists {sizes}. {remedy}")
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=False)]
        content = tables[0] if tables else rows if len(lists) > 1 else [content]
    if not isinstance(content, list):
        raise Mistake(f"{path}: {str(content)[:40]!r} is no list. {remedy}")
    if wrong := next((value for value in content if not isinstance(value, dict)), None):
        raise Mistake(f"{path}: {str(wrong)[:40]!r} is no object. {remedy}")
    with pd.option_context("future.infer_string", False):  # Arrow's strings refuse half a character
        frame = pd.json_normalize(content)
    return [[*map(str, frame.columns)], *frame.itertuples(index=False, name=None)]


def text_of(value: Any) -> str:
    """A value of a table as text, of which `_x000D_` is a line end of Excel. NULL, a date and nothing are empty."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and not math.isnan(value):  # nan: missing
        return f"{value:.15g}"
    return value.replace("_x000D_", "\n") if isinstance(value, str) and value != "\\N" else ""
