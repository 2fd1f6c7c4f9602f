# pyright: reportMissingImports=false
"""Run docs/walkthrough.py, and write it as a notebook, as Markdown with pictures, and as a page of one file.

    python -m pipeline walkthrough               # `make walkthrough`: run all of it, about four minutes
    python -m pipeline walkthrough --prose       # only sentences changed: the outputs of the notebook stay
    python -m pipeline walkthrough --measure     # measure part 4 anew first: about twelve minutes more

Reads   docs/walkthrough.py (text and code, in Jupytext's percent format), docs/walkthrough.json (what --measure
        measured), docs/multi30k.json (what recorded_run.py took from a training)
Writes  docs/walkthrough.ipynb, docs/walkthrough.md and docs/images/walkthrough/chart-*.svg, for git;
        reports/walkthrough.html, which makes no request
"""

from __future__ import annotations

import argparse
import json
import re
from base64 import b64encode
from importlib.util import find_spec
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

from docs.make.html_page import page
from pipeline.workflow.stage import run
from transformer.files import Mistake, write_text

SOURCE, MEASURED, NOTEBOOK = (Path(f"docs/walkthrough.{end}") for end in ("py", "json", "ipynb"))
MARKDOWN, IMAGES, PAGE = Path("docs/walkthrough.md"), Path("docs/images/walkthrough"), Path("reports/walkthrough.html")
PACKAGES = ("ipykernel", "jupytext", "latex2mathml", "mdit_py_plugins", "nbclient", "zensical")
CHART = "application/vnd.vegalite.v6+json"  # with the + that a notebook's format asks for
MARK = re.compile(r'<(\w+) aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="[^"]*"([^>]*?)/>')
FONT = {"font": "Liberation Sans, Arial, sans-serif"}  # comes with vl-convert: widths are the same on every machine
DARK = "@media (prefers-color-scheme: dark) { :root { filter: invert(0.9) hue-rotate(180deg); } }"
LONG, ANSWER = "long", "answer"  # tags: a cell that trains, which tests and --measure skip; a cell that is folded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure part 4 anew first")
    parser.add_argument("--prose", action="store_true", help="run nothing: keep the outputs of the notebook")
    parser.add_argument("--page", type=Path, metavar="PATH", default=PAGE, help=f"the page of one file; now {PAGE}")
    asked = parser.parse_args()
    check_packages()
    if asked.measure:
        measured = names_of(SOURCE.read_text(encoding="utf-8"))["measure"]()
        write_text(MEASURED, as_json(measured))
    notebook = read_source()
    if asked.prose:
        keep_outputs(notebook)
    else:
        execute(notebook)
        add_images(notebook)
    write_text(NOTEBOOK, json.dumps(embedded(notebook), indent=1, ensure_ascii=False) + "\n")
    text, pictures = markdown(notebook)
    for path in IMAGES.glob("chart-*.svg"):
        path.unlink()
    for name, picture in pictures.items():
        write_text(IMAGES / f"{name}.svg", picture)
    write_text(MARKDOWN, text)
    write_text(asked.page, page(text, asked.page))
    print(NOTEBOOK, MARKDOWN, asked.page, sep="\n")


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


def as_json(values: dict[str, Any]) -> str:
    """Measurements as a file that git can compare: numbers of four digits, a training on a line."""
    rounded = json.loads(json.dumps(values), parse_float=lambda digits: float(f"{float(digits):.4g}"))
    text = json.dumps(rounded, indent=1, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}]*\]", lambda match: " ".join(match[0].split()), text) + "\n"


def read_source() -> Any:
    """The source as a notebook without outputs."""
    import jupytext

    notebook = jupytext.read(SOURCE)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        if ANSWER in cell.metadata.get("tags", []) and cell.cell_type == "code":
            cell.metadata["jupyter"] = {"source_hidden": True, "outputs_hidden": True}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return notebook


def execute(notebook: Any) -> None:
    """Run all cells and keep what they print and draw; a chart is kept as its description, without a script."""
    import nbformat
    from nbclient import NotebookClient

    renderer = f'import altair\naltair.renderers.register("chart", lambda spec, **_: {{"{CHART}": spec}})'
    first = nbformat.v4.new_code_cell(f'{renderer}\naltair.renderers.enable("chart")')
    notebook.cells.insert(0, first)
    NotebookClient(
        notebook, timeout=None, kernel_name="python3", coalesce_streams=True, resources={"metadata": {"path": "docs"}}
    ).execute()
    notebook.cells.pop(0)
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of the kernel
    count = 0
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = count = count + 1
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count


def keep_outputs(notebook: Any) -> None:
    """Give a notebook the outputs of the one that is stored. Raises Mistake if its code is another."""
    import nbformat

    stored = nbformat.read(NOTEBOOK, as_version=4)
    old, new = ([cell for cell in book.cells if cell.cell_type == "code"] for book in (stored, notebook))
    if [cell.source for cell in old] != [cell.source for cell in new]:
        raise Mistake(f"The code of {SOURCE} is not that of {NOTEBOOK}. Nothing was written. Leave out --prose.")
    for before, after in zip(old, new, strict=True):
        after.outputs, after.execution_count = before.outputs, before.execution_count


def add_images(notebook: Any) -> None:
    """Give each chart a picture as well, for viewers that do not draw charts."""
    import vl_convert
    from PIL import Image

    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if spec := output.get("data", {}).get(CHART):
                picture = vl_convert.vegalite_to_png(spec, scale=2, config=FONT)
                width, height = Image.open(BytesIO(picture)).size
                output.data["image/png"] = small(picture)
                output.metadata["image/png"] = {"width": width // 2, "height": height // 2}
                output.data["text/plain"] = name_of(spec)


def small(picture: bytes) -> str:
    """A PNG in base64 with 64 colours, a tenth as large."""
    from PIL import Image

    file = BytesIO()
    Image.open(BytesIO(picture)).convert("RGB").quantize(64).save(file, "PNG", optimize=True)
    return b64encode(file.getvalue()).decode()


def name_of(spec: dict[str, Any]) -> str:
    """What a chart shows, for who cannot see it."""
    if "spec" in spec:
        rows = next(iter(spec["datasets"].values())) if "datasets" in spec else spec["data"]["values"]
        maps = list(dict.fromkeys(row["map"] for row in rows))
        return f"{len(maps)} heat maps: {maps[0]} to {maps[-1]}" if len(maps) > 2 else f"Heat maps: {', '.join(maps)}"
    return f"Curves: {spec['encoding']['y']['title']} by {spec['encoding']['x']['title']}"


def embedded(notebook: Any) -> Any:
    """The notebook with the drawings of its text inside, as pictures that each viewer shows, and answers folded."""
    import vl_convert

    def inside(match: re.Match) -> str:
        drawing = (Path("docs") / match[1]).read_text(encoding="utf-8")
        return f"(data:image/png;base64,{small(vl_convert.svg_to_png(drawing, scale=2))})"

    book = json.loads(json.dumps(notebook))
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = re.sub(r"\((images/[^)]+\.svg)\)", inside, cell["source"])
            if ANSWER in cell["metadata"].get("tags", []):
                cell["source"] = f"<details><summary>Answer</summary>\n\n{cell['source']}\n\n</details>"
        cell["source"] = cell["source"].splitlines(keepends=True)
    return book


def markdown(notebook: Any) -> tuple[str, dict[str, str]]:
    """The notebook as Markdown, and its charts: name -> SVG. Neighbours with the tag of an answer are folded."""
    parts, pictures = [], dict[str, str]()
    for folded, cells in groupby(notebook.cells, lambda cell: ANSWER in cell.metadata.get("tags", [])):
        parts += ["<details><summary>Answer, measured</summary>"] if folded else []
        for cell in cells:
            parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
            for output in cell.get("outputs", []):
                parts.append(shown(output, pictures))
        parts += ["</details>"] if folded else []
    return "\n\n".join(parts) + "\n", pictures


def shown(output: Any, pictures: dict[str, str]) -> str:
    """An output as Markdown. A chart is added to the pictures."""
    if spec := output.get("data", {}).get(CHART):
        name = f"chart-{len(pictures) + 1:02}"
        pictures[name] = as_svg(spec)
        return f"![{name_of(spec)}](images/walkthrough/{name}.svg)"
    text = output["text"] if output.output_type == "stream" else output["data"]["text/plain"]
    return f"```text\n{text.rstrip()}\n```"


def as_svg(spec: dict[str, Any]) -> str:
    """A chart as SVG that darkens with the reader's screen, and in which the pointer shows values."""
    import vl_convert

    svg = MARK.sub(r"<\1\3><title>\2</title></\1>", vl_convert.vegalite_to_svg(spec, config=FONT))
    clips = dict[str, int]()  # counted from 1 in each picture: the library counts those of all pictures
    svg = re.sub(r"\bclip(\d+)", lambda clip: f"clip{clips.setdefault(clip[1], len(clips) + 1)}", svg)
    return svg.replace(">", f"><style>{DARK}</style>", 1) + "\n"


if __name__ == "__main__":
    run(main)
