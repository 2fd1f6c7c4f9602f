"""Write the walkthrough: docs/walkthrough.md with its pictures, a notebook, and a page of one file.

    python -m pipeline walkthrough               # `make walkthrough`: from the stored measurements, in seconds
    python -m pipeline walkthrough --measure     # measure anew first: about half an hour on two cores

Reads   docs/make/walkthrough.md.jinja (the text), the package (the code that the text shows), docs/walkthrough.json
        (what measurements.py measured), docs/multi30k.json (what recorded_run.py took from a training)
Writes  docs/walkthrough.md and docs/images/walkthrough/, for git; docs/walkthrough.ipynb, whose cells are the blocks of
        the text; reports/walkthrough.html, which makes no request
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from docs.make.figures import figures
from docs.make.html_page import page
from docs.make.inlined_code import code_of, narrow
from docs.make.program import BLOCK
from docs.make.sentences import sentences
from pipeline.workflow.stage import run
from transformer.files import write_text

TEXT, MEASURED, RECORDED = "walkthrough.md.jinja", Path("docs/walkthrough.json"), Path("docs/multi30k.json")
MARKDOWN, IMAGES = Path("docs/walkthrough.md"), Path("docs/images/walkthrough")
PAGE, NOTEBOOK = Path("reports/walkthrough.html"), Path("docs/walkthrough.ipynb")
PACKAGES = ("latex2mathml", "mdit_py_plugins", "zensical")


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
    write_text(asked.page, page(text, pictures, asked.page))
    print(MARKDOWN, NOTEBOOK, asked.page, sep="\n")


def check_packages() -> None:
    """Raise ValueError if a package is missing that only the walkthrough needs."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ValueError(f"{', '.join(missing)}: not installed. Nothing was written. Run `make docs-setup`.")


def write_measurements(names: list[str]) -> None:
    """Measure anew, all or the named measurements, and write them among the stored ones."""
    from docs.make import measurements, program

    print("Measuring: about half an hour on two cores.", file=sys.stderr)
    stored = measured() if MEASURED.is_file() else {}
    names = names or [*measurements.MEASURES, *program.MEASURES]
    if others := [name for name in names if name not in program.MEASURES]:
        write_text(MEASURED, as_json(stored | measurements.measure(others)))
    for name in program.MEASURES.keys() & set(names):
        write_text(MEASURED, as_json(measured() | {name: program.MEASURES[name](markdown())}))


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

    def source(*names: str, drop: tuple[str, ...] = ()) -> str:
        """The code of functions and classes of the package, under the path of their file; see `code_of`."""
        by_module: dict[str, list[str]] = {}
        for name in names:
            by_module.setdefault(name.partition(":")[0].replace(".", "/"), []).append(code_of(name, drop))
        codes.extend(map("\n".join, by_module.values()))
        numbers = range(len(codes) - len(by_module), len(codes))
        return "\n\n".join(
            f"[`transformer/{module}.py`](../transformer/{module}.py)\n\n```python\nCODE {number}\n```"
            for module, number in zip(by_module, numbers, strict=True)
        )

    values = measured()
    environment.globals |= {"source": source, "figure": figure, "m": values, "r": recorded(), **sentences(values)}
    text = re.sub(r"\n{4,}", "\n\n\n", environment.get_template(TEXT).render())
    narrowed = narrow(codes)
    return re.sub(r"(?m)^CODE (\d+)$", lambda match: narrowed[int(match[1])], text)


def figure(name: str, caption: str) -> str:
    """A picture with its caption."""
    return f"![{caption.replace('`', '')}](images/walkthrough/{name}.svg)\n\n*{caption}*"


def program_text(text: str) -> str:
    """The blocks of code of the text, in order, as one file."""
    return "\n\n".join(BLOCK.findall(text))


def notebook(text: str) -> str:
    """The text as a notebook in Jupyter's format: its blocks of code are cells that run."""
    cells = []
    for number, part in enumerate(BLOCK.split(text)):
        part = re.sub("(?ms)^```math\n(.*?)^```$", r"$$\n\1$$", part)  # Jupyter knows no other form
        if part.strip():
            lines = part.strip().splitlines(keepends=True)
            cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": lines}
            code = {"cell_type": "code", "execution_count": None, "outputs": []}
            cells.append(cell | (code if number % 2 else {"cell_type": "markdown"}))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


if __name__ == "__main__":
    run(main)
