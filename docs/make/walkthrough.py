# pyright: reportMissingImports=false
"""Run docs/walkthrough.py and make one HTML page of it, or make a notebook of it.

    python -m pipeline walkthrough                # `make walkthrough`: reports/walkthrough.html, in about three minutes
    python -m pipeline walkthrough --notebook     # `make notebook`: docs/walkthrough.ipynb, not run

Reads   docs/walkthrough.py, docs/walkthrough_charts.py, docs/walkthrough.html.jinja; page.css.jinja of the report;
        data/model and data/raw, if they exist
Writes  reports/walkthrough.html, which makes no request; or docs/walkthrough.ipynb. Open the notebook in any editor,
        with the Python of .venv as its kernel
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from html import escape
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.stage import bar, run
from transformer.files import write_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

SCRIPT, TEMPLATE = Path("docs/walkthrough.py"), "walkthrough.html.jinja"
PACKAGES = ("jupytext", "nbclient", "ipykernel", "latex2mathml", "mdit_py_plugins")
SECONDS_PER_CELL = 1200
STYLES = {"light": "default", "dark": "github-dark"}  # of Pygments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notebook", action="store_true", help="make a notebook, and do not run it")
    parser.add_argument("--output", type=Path, metavar="PATH", help="the file to write")
    asked = parser.parse_args()
    check_packages()
    notebook = read_script(SCRIPT)
    if asked.notebook:
        path = asked.output or SCRIPT.with_suffix(".ipynb")
        write_text(path, as_ipynb(notebook))
        print("Open this in an editor of notebooks (VS Code, JupyterLab), with the Python of .venv as kernel:")
    else:
        path = asked.output or Path("reports/walkthrough.html")
        print(f"Running {SCRIPT}: about three minutes on two cores.", file=sys.stderr)
        execute(notebook)
        write_text(path, page(notebook))
    print(path)


def check_packages() -> None:
    """Raise ValueError if a package is missing that only the walkthrough needs."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ValueError(f"{', '.join(missing)}: not installed. Nothing was made. Run `make walkthrough-setup`.")


def read_script(path: Path) -> Any:
    """A percent script as a notebook (nbformat's NotebookNode), not run."""
    import jupytext

    return jupytext.read(path)


def as_ipynb(notebook: Any) -> str:
    """A notebook in Jupyter's format. The ids of cells are their numbers, so equal scripts give equal bytes."""
    import nbformat

    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    notebook.nbformat_minor = max(notebook.nbformat_minor, 5)
    return nbformat.writes(notebook) + "\n"


def execute(notebook: Any) -> None:
    """Run the cells of a notebook in a kernel, from the current folder, and store their outputs in it.

    Raises ValueError with the cell and the error if one fails, or if the kernel ends, and KeyboardInterrupt on SIGINT
    and SIGTERM.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from traitlets.config import Config

    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(Path.cwd())}},
        config=Config({"AsyncKernelManager": {"transport": "ipc"}}),  # files instead of open ports
    )
    progress = bar(len(notebook.cells), "cell", "walkthrough")
    client.on_cell_complete = lambda cell, cell_index: progress.update()
    try:
        with progress, TemporaryDirectory(prefix="walkthrough-") as folder:  # the kernel may end before it can clean up
            client.execute(env=os.environ | {"TMPDIR": folder}, stderr=subprocess.DEVNULL)  # tracebacks on a signal
    except (AssertionError, CellTimeoutError, DeadKernelError) as error:
        if client.km is None:  # on a signal nbclient ends the kernel, and then goes on without it
            raise KeyboardInterrupt from None
        raise ValueError(
            f"{SCRIPT}: the kernel that ran the cells ended, or a cell took over {SECONDS_PER_CELL} s "
            f"({' '.join(str(error).split())[:200]}). No page was written. If memory was short, end "
            "other programs."
        ) from None
    except CellExecutionError as error:
        failed = next(
            cell for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == "error"
        )
        reason = f"{error.ename}: {' '.join(error.evalue.split())[:200]}"
        raise ValueError(
            f"{SCRIPT}: the cell that starts with {failed.source.splitlines()[0]!r} failed "
            f"({reason}). No page was written. Run it in a notebook: `make notebook`."
        ) from None


def page(notebook: Any) -> str:
    """The page of a notebook that was run."""
    from pygments.formatters import HtmlFormatter

    markdown = renderer()
    folders = ["docs", "transformer/reporting/templates"]
    environment = Environment(loader=FileSystemLoader(folders), autoescape=False, undefined=StrictUndefined)
    styles = {name: HtmlFormatter(style=style).get_style_defs("pre") for name, style in STYLES.items()}
    contents = [
        heading
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for heading in headings(markdown, cell.source)
    ]
    return environment.get_template(TEMPLATE).render(
        cells=[cell_html(markdown, cell) for cell in notebook.cells], contents=contents, styles=styles
    )


def renderer() -> MarkdownIt:
    """Markdown to HTML: formulas as MathML, code in colours, anchors at headings. Tags are shown as text."""
    from latex2mathml.converter import convert
    from markdown_it import MarkdownIt
    from mdit_py_plugins.anchors import anchors_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def formula(latex: str, settings: dict) -> str:
        return convert(latex, display="block" if settings["display_mode"] else "inline")

    markdown = MarkdownIt("commonmark", {"html": False, "highlight": lambda code, *language: coloured(code)})
    markdown.enable("table").use(dollarmath_plugin, renderer=formula, allow_digits=False)
    return markdown.use(anchors_plugin, min_level=2, max_level=3)


def coloured(code: str) -> str:
    """Python code as HTML with a class for each kind of word."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return highlight(code, PythonLexer(), HtmlFormatter(nowrap=True))


def headings(markdown: MarkdownIt, text: str) -> list[dict[str, str]]:
    """The headings of the second level: their anchor and their text as HTML."""
    tokens = markdown.parse(text)
    return [
        {
            "anchor": str(token.attrs["id"]),
            "html": markdown.renderer.render(tokens[i + 1].children or [], markdown.options, {}),
        }
        for i, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag == "h2"
    ]


def cell_html(markdown: MarkdownIt, cell: Any) -> dict[str, str]:
    """A cell for the template: its kind (text, source, say, code or folded), its HTML, and the HTML of its outputs."""
    if cell.cell_type == "markdown":
        return {"kind": "text", "html": markdown.render(cell.source), "outputs": ""}
    outputs = "\n".join(output_html(markdown, output) for output in joined(cell.outputs))
    kind = next((name for name in ("source", "say") if cell.source.startswith(f"{name}(")), "code")
    if "folded" in cell.metadata.get("tags", ()):
        kind = "folded"
    return {"kind": kind, "html": coloured(cell.source), "outputs": outputs}


def joined(outputs: list[Any]) -> list[Any]:
    """The outputs of a cell, with lines that were printed one after another as one output."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output.output_type == "stream" == joined[-1].output_type and output.name == joined[-1].name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def output_html(markdown: MarkdownIt, output: Any) -> str:
    """What a cell printed or displayed, as HTML. Warnings, which go to standard error, are left out."""
    if output.output_type == "stream":
        return f'<pre class="printed">{escape(output.text)}</pre>' if output.name == "stdout" else ""
    if "text/html" in output.data:
        return output.data["text/html"]
    if "text/markdown" in output.data:
        return f'<div class="text">{markdown.render(output.data["text/markdown"])}</div>'
    return f'<pre class="printed">{escape(output.data.get("text/plain", ""))}</pre>'


if __name__ == "__main__":
    run(main)
