# pyright: reportMissingImports=false
"""Write the walkthrough: docs/walkthrough.md with its pictures, a notebook, and a page of one file.

    python -m pipeline walkthrough               # `make walkthrough`: from the stored measurements, in seconds
    python -m pipeline walkthrough --measure     # measure anew first: about ten minutes on two cores

Reads   docs/make/walkthrough.md.jinja (the text), the package (the code that the text shows), docs/walkthrough.json
        (what experiments.py measured), docs/multi30k.json (what recorded_run.py took from a training)
Writes  docs/walkthrough.md and docs/images/walkthrough/, for git; docs/walkthrough.ipynb, whose cells are the blocks of
        the text; reports/walkthrough.html, which makes no request
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from docs.make.figures import figures
from docs.make.sentences import sentences
from pipeline.stage import run
from transformer.files import write_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

TEXT, MEASURED, RECORDED = "walkthrough.md.jinja", Path("docs/walkthrough.json"), Path("docs/multi30k.json")
MARKDOWN, IMAGES = Path("docs/walkthrough.md"), Path("docs/images/walkthrough")
PAGE, NOTEBOOK = Path("reports/walkthrough.html"), Path("docs/walkthrough.ipynb")
COLUMNS = 88  # of inlined code, which then fits a code host's page without scrolling
CUT = "# the next block"
PACKAGES = ("latex2mathml", "mdit_py_plugins", "zensical")
STYLES = {"light": "default", "dark": "github-dark"}  # of Pygments
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", metavar="NAME", help="measure anew before: all, or the named ones")
    parser.add_argument("--page", type=Path, metavar="PATH", default=PAGE, help=f"the page of one file; now {PAGE}")
    asked = parser.parse_args()
    check_packages()
    if asked.measure is not None:
        write_measurements(asked.measure)
    pictures = figures(measured(), recorded())
    for name, picture in pictures.items():
        write_text(IMAGES / f"{name}.svg", picture)
    text = markdown()
    write_text(MARKDOWN, text)
    write_text(NOTEBOOK, notebook(text))
    write_text(asked.page, page(text, pictures))
    print(MARKDOWN, NOTEBOOK, asked.page, sep="\n")


def check_packages() -> None:
    """Raise ValueError if a package is missing that only the walkthrough needs."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ValueError(f"{', '.join(missing)}: not installed. Nothing was written. Run `make docs-setup`.")


def write_measurements(names: list[str]) -> None:
    """Measure anew, all or the named measurements, and write them among the stored ones."""
    from docs.make import experiments, program

    print("Measuring: about ten minutes on two cores.", file=sys.stderr)
    stored = measured() if MEASURED.is_file() else {}
    if not names or "program" in names:
        stored["program"] = program.measure(markdown())
    names = [name for name in names or experiments.MEASURES if name != "program"]
    write_text(MEASURED, as_json(stored | experiments.measure(names) if names else stored))


def as_json(values: dict[str, Any]) -> str:
    """Measurements as a file that git can compare: numbers of six digits, short lists on a line."""
    text = json.dumps(rounded(values), indent=1, ensure_ascii=False, sort_keys=True)
    return re.sub(r"\[[^\[\]{}]*\]", lambda match: " ".join(match[0].split()), text) + "\n"


def rounded(value: Any) -> Any:
    """A value whose numbers have six digits."""
    if isinstance(value, dict):
        return {str(name): rounded(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def measured() -> dict[str, Any]:
    """The stored measurements."""
    return json.loads(MEASURED.read_text(encoding="utf-8"))


def recorded() -> dict[str, Any]:
    """What was stored of a training on Multi30k."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def markdown() -> str:
    """The text with its code and its numbers."""
    environment = Environment(loader=FileSystemLoader("docs/make"), undefined=StrictUndefined, trim_blocks=True)
    environment.keep_trailing_newline = True
    codes = list[str]()

    def source(*names: str, keep: tuple[str, ...] = (), drop: tuple[str, ...] = ()) -> str:
        """The code of functions and classes of the package, under the path of their file; see `code_of`."""
        by_module: dict[str, list[str]] = {}
        for name in names:
            by_module.setdefault(name.partition(":")[0].replace(".", "/"), []).append(code_of(name, keep, drop))
        codes.extend(map("\n".join, by_module.values()))
        numbers = range(len(codes) - len(by_module), len(codes))
        return "\n\n".join(
            f"[`transformer/{module}.py`](../transformer/{module}.py)\n\n```python\nCODE {number}\n```"
            for module, number in zip(by_module, numbers, strict=True)
        )

    environment.globals |= {"source": source, "figure": figure, "m": measured(), "r": recorded()}
    environment.globals |= sentences(measured()["trainings"], measured()["setup"], measured())
    text = re.sub(r"\n{4,}", "\n\n\n", environment.get_template(TEXT).render())
    narrowed = narrow(codes)
    return re.sub(r"(?m)^CODE (\d+)$", lambda match: narrowed[int(match[1])], text)


def figure(name: str, caption: str) -> str:
    """A picture with its caption."""
    return f"![{caption.replace('`', '')}](images/walkthrough/{name}.svg)\n\n*{caption}*"


def code_of(name: str, keep: tuple[str, ...] = (), drop: tuple[str, ...] = ()) -> str:
    """The code of an object, as its file has it.

    name: `text.pairs:Batch`, the object Batch of transformer/text/pairs.py. keep: the only methods of a class that are
    shown. drop: those that are not shown.
    """
    module, _, path = name.partition(":")
    thing: Any = import_module(f"transformer.{module}")
    for part in path.split("."):
        thing = inspect.getattr_static(thing, part)
    lines = textwrap.dedent(inspect.getsource(inspect.unwrap(thing))).rstrip().split("\n")
    if keep or drop:
        definition = ast.parse("\n".join(lines)).body[0]
        assert isinstance(definition, ast.ClassDef)
        for node in reversed(definition.body):
            if isinstance(node, ast.FunctionDef) and (node.name in drop or (keep and node.name not in keep)):
                start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                del lines[start - 1 : node.end_lineno]
    return "\n".join(lines).rstrip() + "\n"


def narrow(codes: list[str]) -> list[str]:
    """The same code in COLUMNS columns: docstrings and comments wrapped anew, long remarks above their line."""
    command = [sys.executable, "-m", "ruff", "format", "--line-length", str(COLUMNS), "-"]
    code = "\n".join(with_remarks_above(f"\n{CUT}\n".join(codes).split("\n")))
    code = subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout
    return ["\n".join(narrow_lines(part.strip("\n").split("\n"))) for part in code.split(CUT)]


def with_remarks_above(lines: list[str]) -> Iterator[str]:
    """Lines of code; a remark behind code that makes its line too long stands above it."""
    for line in lines:
        code, mark, remark = line.partition("  # ")
        if mark and len(line) > COLUMNS and code.strip():
            yield f"{code[: len(code) - len(code.lstrip())]}# {remark}"
            line = code
        yield line


def narrow_lines(lines: list[str]) -> Iterator[str]:
    """Lines whose docstrings and comments are wrapped to COLUMNS columns, paragraph by paragraph."""
    paragraph, inside = list[str](), False
    for line in lines:
        text = line.strip()
        opens = text.startswith('"""')
        prose = text.startswith("# ") or opens or (inside and text not in ("", '"""'))
        if paragraph and (not prose or opens or (text[0] == "#") != (paragraph[0].lstrip()[0] == "#")):
            yield from wrapped(paragraph)
            paragraph = []
        if prose:
            paragraph.append(line)
        else:
            yield line
        if text.count('"""') == 1:
            inside = not inside
    yield from wrapped(paragraph) if paragraph else ()


def wrapped(paragraph: list[str]) -> list[str]:
    """A paragraph of a docstring or comment, wrapped anew if a line of it is too long."""
    if max(map(len, paragraph)) <= COLUMNS:
        return paragraph
    mark = "# " if paragraph[0].lstrip().startswith("# ") else ""
    margin = paragraph[0][: len(paragraph[0]) - len(paragraph[0].lstrip())] + mark
    text = " ".join(line.strip().removeprefix(mark) for line in paragraph)
    text = re.sub(r"\([^()]{1,30}\)", lambda shape: shape[0].replace(" ", "\0"), text)  # shapes stay on a line
    lines = textwrap.wrap(text, COLUMNS, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def program(text: str) -> str:
    """The blocks of code of the text, in order, as one file."""
    return "\n\n".join(BLOCK.findall(text))


def notebook(text: str) -> str:
    """The text as a notebook in Jupyter's format: its blocks of code are cells that run."""
    cells = []
    for number, part in enumerate(BLOCK.split(text)):
        if part.strip():
            lines = part.strip().splitlines(keepends=True)
            cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": lines}
            code = {"cell_type": "code", "execution_count": None, "outputs": []}
            cells.append(cell | (code if number % 2 else {"cell_type": "markdown"}))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def page(text: str, pictures: dict[str, str]) -> str:
    """The text as one file of HTML, with its pictures in it."""
    from pygments.formatters import HtmlFormatter

    html = renderer().render(text)
    html = re.sub(r'src="images/walkthrough/([\w-]+)\.svg"', lambda match: as_data(pictures[match[1]]), html)
    html = re.sub(r"(?s)<table>.*?</table>", lambda match: f'<div class="wide" tabindex="0">{match[0]}</div>', html)
    folders = ["docs/make", "transformer/reporting/templates"]
    environment = Environment(loader=FileSystemLoader(folders), autoescape=False, undefined=StrictUndefined)
    styles = {name: HtmlFormatter(style=style).get_style_defs("pre") for name, style in STYLES.items()}
    contents = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', html)
    return environment.get_template("walkthrough.html.jinja").render(html=html, contents=contents, styles=styles)


def as_data(picture: str) -> str:
    """The attribute of an image that holds its picture."""
    from base64 import b64encode

    return f'src="data:image/svg+xml;base64,{b64encode(picture.encode()).decode()}"'


def renderer() -> MarkdownIt:
    """Markdown to HTML: formulas as MathML, code in colours, anchors at headings."""
    from latex2mathml.converter import convert
    from markdown_it import MarkdownIt
    from mdit_py_plugins.anchors import anchors_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def formula(latex: str, settings: dict) -> str:
        return convert(latex, display="block" if settings["display_mode"] else "inline")

    def fence(self: Any, tokens: Any, number: int, *rest: Any) -> str:
        token = tokens[number]
        if token.info == "math":
            return convert(token.content, display="block")
        code = coloured(token.content) if token.info == "python" else escape(token.content)
        return f'<pre class="code" tabindex="0">{code}</pre>\n'

    markdown = MarkdownIt("commonmark", {"html": True})
    markdown.enable("table").use(dollarmath_plugin, renderer=formula, allow_digits=False)
    markdown.add_render_rule("fence", fence)
    return markdown.use(anchors_plugin, min_level=2, max_level=3)


def escape(text: str) -> str:
    """Text as HTML."""
    from html import escape as as_html

    return as_html(text)


def coloured(code: str) -> str:
    """Python code as HTML with a class for each kind of word."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return highlight(code, PythonLexer(), HtmlFormatter(nowrap=True))


if __name__ == "__main__":
    run(main)
