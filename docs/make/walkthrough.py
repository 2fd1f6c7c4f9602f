# pyright: reportMissingImports=false
"""Run docs/walkthrough.py, and write it as a notebook, as Markdown with pictures, and as a page of one file.

    python -m pipeline walkthrough               # `make walkthrough`: run all of it, about two minutes
    python -m pipeline walkthrough --prose       # only sentences changed: the outputs of the notebook stay
    python -m pipeline walkthrough --measure     # measure parts 4 and 5 anew first: about twenty minutes more

Reads   docs/walkthrough.py (text and code, in Jupytext's percent format), docs/walkthrough.json (what --measure
        measured, and what recorded_run.py took from a training), which stands in a cell of the notebook
Writes  docs/walkthrough.ipynb, docs/walkthrough.md, docs/images/walkthrough/chart-*.svg, docs/translator.json (the
        trained weights, rounded) and docs/walkthrough.html, which makes no request and translates: all for git
"""

from __future__ import annotations

import argparse
import json
import re
from base64 import b64encode
from html import escape
from importlib.util import find_spec
from io import BytesIO
from itertools import count, groupby
from pathlib import Path
from typing import Any

from docs.make.html_page import page
from pipeline.workflow.stage import run
from transformer.files import Mistake, write_text

SOURCE, MEASURED, NOTEBOOK = (Path(f"docs/walkthrough.{end}") for end in ("py", "json", "ipynb"))
MARKDOWN, IMAGES, PAGE = Path("docs/walkthrough.md"), Path("docs/images/walkthrough"), Path("docs/walkthrough.html")
PACKAGES = ("ipykernel", "jupytext", "latex2mathml", "mdit_py_plugins", "nbclient", "zensical")
CHART = "application/vnd.vegalite.v6+json"  # with the + that a notebook's format asks for
MARK = re.compile(r'<(\w+) aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="[^"]*"([^>]*?)/>')
FONT = {"font": "Liberation Sans, Arial, sans-serif"}  # comes with vl-convert: widths are the same on every machine
DARK = "@media (prefers-color-scheme: dark) { :root { filter: invert(0.9) hue-rotate(180deg); } }"
LONG, ANSWER, FOLDED = "long", "answer", "folded"  # tags: a cell that trains, which tests skip; cells that are folded
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
COLAB = "https://colab.research.google.com/github/{}/blob/main/docs/walkthrough.ipynb"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure parts 4 and 5 anew first")
    parser.add_argument("--repository", metavar="OWNER/NAME", help="add a badge that opens its notebook in Colab")
    parser.add_argument("--prose", action="store_true", help="run nothing: keep the outputs of the notebook")
    asked = parser.parse_args()
    check_packages()
    if asked.measure:
        names = names_of(source())
        store("measured", names["measure"](names["EXPERIMENTS"]))
    notebook = read_source()
    if asked.prose:
        keep_outputs(notebook)
    else:
        execute(notebook)
        draw(notebook)
    if asked.repository:
        title, rest = notebook.cells[0].source.split("\n", 1)
        badge = f"[![Open in Colab]({BADGE})]({COLAB.format(asked.repository)})"
        notebook.cells[0].source = f"{title}\n\n{badge}\n{rest}"
    write_text(NOTEBOOK, json.dumps(embedded(notebook), indent=1, ensure_ascii=False) + "\n")
    text = markdown(notebook)
    write_text(MARKDOWN, text)
    write_text(PAGE, page(text))
    print(NOTEBOOK, MARKDOWN, PAGE, sep="\n")


def check_packages() -> None:
    """Raise Mistake if a package is missing that only the walkthrough and the site need."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise Mistake(f"{', '.join(missing)}: not installed. Nothing was written. Run `make docs-setup`.")


def cells_of(source: str) -> list[tuple[str, str]]:
    """The cells of a text in percent format: (what stands behind `# %%`, text)."""
    parts = re.split(r"(?m)^# %%(.*)\n", source)[1:]
    return list(zip((kind.strip() for kind in parts[::2]), parts[1::2], strict=True))


def names_of(source: str) -> dict[str, Any]:
    """What the code of a text in percent format defines, run without its cells that train."""
    code = [text for kind, text in cells_of(source) if "markdown" not in kind and LONG not in kind]
    names: dict[str, Any] = {"__name__": "walkthrough"}
    exec(compile("\n".join(code), str(SOURCE), "exec"), names)
    return names


def source() -> str:
    """The source with the stored measurements in it, so that the notebook needs no file beside it."""
    stored = MEASURED.read_text(encoding="utf-8")
    return SOURCE.read_text(encoding="utf-8").replace(f'"""{MEASURED}"""', f'"""\n{stored}"""')


def store(part: str, values: dict[str, Any]) -> None:
    """Write a part of the measurements, so that git can compare them: numbers of four digits, a name on a line."""
    parts = json.loads(MEASURED.read_text(encoding="utf-8"))
    parts[part] = json.loads(json.dumps(values), parse_float=lambda digits: float(f"{float(digits):.4g}"))
    lines = {
        part: ",\n".join(f' "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in names.items())
        for part, names in parts.items()
    }
    write_text(MEASURED, "{\n" + ",\n".join(f'"{part}": {{\n{text}\n}}' for part, text in lines.items()) + "\n}\n")


def read_source() -> Any:
    """The source as a notebook without outputs."""
    import jupytext

    notebook = jupytext.reads(source(), fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        if fold_of(cell) and cell.cell_type == "code":
            cell.metadata["jupyter"] = {"source_hidden": True}
            cell.metadata["cellView"] = "form"  # Colab's word for it
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return notebook


def fold_of(cell: Any) -> str:
    """What stands over a cell that is folded: the title in its first line, or that it is an answer."""
    tags = cell.metadata.get("tags", [])
    return "Answer, measured" if ANSWER in tags else cell.source[9:].split("\n")[0] if FOLDED in tags else ""


def execute(notebook: Any) -> None:
    """Run all cells and keep what they print and draw; a chart is kept as its description, without a script."""
    import nbformat
    from nbclient import NotebookClient

    renderer = f'import altair\naltair.renderers.register("chart", lambda spec, **_: {{"{CHART}": spec}})'
    first = nbformat.v4.new_code_cell(f'{renderer}\naltair.renderers.enable("chart")')
    last = nbformat.v4.new_code_cell(
        "%cd -q ..\nfrom docs.make.html_page import write_weights\nwrite_weights(globals())"
    )
    notebook.cells = [first, *notebook.cells, last]
    folder = {"metadata": {"path": "docs"}}
    NotebookClient(notebook, timeout=None, coalesce_streams=True, record_timing=False, resources=folder).execute()
    notebook.cells = notebook.cells[1:-1]
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of the kernel
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number


def keep_outputs(notebook: Any) -> None:
    """Give a notebook the outputs of the one that is stored. Raises Mistake if its code is another."""
    import nbformat

    stored = nbformat.read(NOTEBOOK, as_version=4)
    old, new = ([cell for cell in book.cells if cell.cell_type == "code"] for book in (stored, notebook))
    if [cell.source for cell in old] != [cell.source for cell in new]:
        raise Mistake(f"The code of {SOURCE} is not that of {NOTEBOOK}. Nothing was written. Leave out --prose.")
    for before, after in zip(old, new, strict=True):
        after.outputs, after.execution_count = before.metadata.get("answer", before.outputs), before.execution_count


def draw(notebook: Any) -> None:
    """Make each chart a picture: an SVG in docs/images, and in the notebook a PNG, which each viewer shows."""
    import nbformat
    import vl_convert

    for path in IMAGES.glob("chart-*.svg"):
        path.unlink()
    charts = [out for cell in notebook.cells for out in cell.get("outputs", []) if CHART in out.get("data", {})]
    for number, output in enumerate(charts, 1):
        spec = output.data[CHART]
        write_text(IMAGES / f"chart-{number:02}.svg", as_svg(spec))
        png = small(vl_convert.vegalite_to_png(spec, scale=1.5, config=FONT))
        output.data = nbformat.from_dict({"image/png": png, "text/plain": spec["description"]})


def small(picture: bytes) -> str:
    """A PNG in base64, on white, with 256 colours that are near those of the picture."""
    from PIL import Image

    drawn = Image.open(BytesIO(picture)).convert("RGBA")
    white = Image.new("RGBA", drawn.size, "white")
    file, colours = BytesIO(), Image.Quantize.MAXCOVERAGE
    Image.alpha_composite(white, drawn).convert("RGB").quantize(256, colours, kmeans=1).save(file, "PNG", optimize=True)
    return b64encode(file.getvalue()).decode()


def embedded(notebook: Any) -> Any:
    """The notebook with the drawings of its text inside, as pictures that each viewer shows, and answers folded."""
    import vl_convert

    def inside(match: re.Match) -> str:
        drawing = (Path("docs") / match[1]).read_text(encoding="utf-8")
        return f"(data:image/png;base64,{small(vl_convert.svg_to_png(drawing, scale=1.5))})"

    book = json.loads(json.dumps(notebook))
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = re.sub(r"\((images/[^)]+\.svg)\)", inside, cell["source"])
            if ANSWER in cell["metadata"].get("tags", []):
                cell["source"] = f"<details><summary>Answer</summary>\n\n{cell['source']}\n\n</details>"
        elif ANSWER in cell["metadata"].get("tags", []):  # viewers show outputs; who runs the cell gets them
            cell["metadata"]["answer"], cell["outputs"] = cell["outputs"], []
        cell["source"] = cell["source"].splitlines(keepends=True)
    return book


def markdown(notebook: Any) -> str:
    """The notebook as Markdown. Folded neighbours share a fold."""
    parts, charts = [], (f"images/walkthrough/chart-{number:02}.svg" for number in count(1))
    for fold, cells in groupby(notebook.cells, fold_of):
        parts += [f"<details><summary>{escape(fold)}</summary>"] if fold else []
        for cell in cells:
            parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
            for output in cell.get("outputs", []):
                text = output["text"] if output.output_type == "stream" else output["data"]["text/plain"]
                drawn = "image/png" in output.get("data", {})
                parts.append(f"![{text}]({next(charts)})" if drawn else f"```text\n{text.rstrip()}\n```")
        parts += ["</details>"] if fold else []
    return "\n\n".join(parts) + "\n"


def as_svg(spec: dict[str, Any]) -> str:
    """A chart as SVG that darkens with the reader's screen, and in which the pointer shows values."""
    import vl_convert

    svg = MARK.sub(r"<\1\3><title>\2</title></\1>", vl_convert.vegalite_to_svg(spec, config=FONT))
    clips = dict[str, int]()  # counted from 1 in each picture: the library counts those of all pictures
    svg = re.sub(r"\bclip(\d+)", lambda clip: f"clip{clips.setdefault(clip[1], len(clips) + 1)}", svg)
    return svg.replace(">", f"><style>{DARK}</style>", 1) + "\n"


if __name__ == "__main__":
    run(main)
