"""The walkthrough says what its cells compute, its claims hold, and its page can be read without a network.

The fast cells run here as plain Python, without the packages of the notebook. `make test-all` runs it whole, as a page.
"""

from __future__ import annotations

import ast
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.browsers import chromium
from support.stages import wait_until
from support.tiny import ROOT

from docs.make import walkthrough as command

SCRIPT = ROOT / "docs/walkthrough.py"
# Numbers of the paper: its sections, equations, tables and figures, and the years of what is cited.
_NUMBER = r"\d+(?:\.\d+)*"
CITED = re.compile(
    rf"(?i)\b(?:sections?|equations?|tables?|figures?|parts?)\s+{_NUMBER}(?:\s+(?:to|and)\s+{_NUMBER})?|"
    r"et al\. \d{4}|since 2017|\(\d\)|float64|1 to 10|\b[01]\b|^#+ \d+\.",
    re.MULTILINE,
)


@dataclass
class Cell:
    """A cell of the script. head: what stands behind its `# %%`. line: the number of its first line."""

    head: str
    text: str
    line: int

    @property
    def is_prose(self) -> bool:
        return "[markdown]" in self.head

    @property
    def markdown(self) -> str:
        return re.sub(r"^# ?", "", self.text, flags=re.MULTILINE)


def cells() -> list[Cell]:
    """The cells of the walkthrough, in order."""
    found, line = [], 1
    for part in re.split(r"(?m)^(?=# %%)", SCRIPT.read_text(encoding="utf-8")):
        if part.startswith("# %%"):
            head, _, text = part.partition("\n")
            found.append(Cell(head, text, line + 1))
        line += part.count("\n")
    return found


@dataclass
class Run:
    """What the fast cells of the walkthrough left: their variables, and what each cell displays."""

    names: dict[str, Any] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)

    def cell(self, cell: Cell) -> None:
        """Run a cell as a notebook does: its last expression is displayed."""
        tree = ast.parse("\n" * (cell.line - 1) + cell.text)
        *_, last = tree.body
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, str(SCRIPT), "exec"), self.names)
        if isinstance(last, ast.Expr):
            result = eval(compile(ast.Expression(last.value), str(SCRIPT), "eval"), self.names)
            self.shown += result._repr_mimebundle_().values() if result is not None else ()


@pytest.fixture(scope="module")
def fast() -> Iterator[Run]:
    """The walkthrough, without the cells that train or that need a trained model."""
    run, path = Run(), list(sys.path)
    for cell in cells():
        if not cell.is_prose and "slow" not in cell.head:
            run.cell(cell)
    yield run
    run.names["temporary"].cleanup()
    sys.path[:] = path


def typed_numbers(text: str) -> list[str]:
    """Numbers of a text outside code, formulas, links and citations."""
    plain = re.sub(r"`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)", "", text, flags=re.DOTALL)
    return re.findall(r"\d[\d.,]*", CITED.sub("", plain))


@pytest.mark.parametrize("cell", [cell for cell in cells() if cell.is_prose], ids=lambda cell: f"line{cell.line}")
def test_prose_types_no_number_that_a_cell_could_compute(cell):
    assert typed_numbers(cell.markdown) == []


def test_what_a_cell_says_has_its_numbers_from_variables():
    for cell in cells():
        for node in ast.walk(ast.parse("" if cell.is_prose else cell.text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "say":
                parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                prose = " ".join(part for part in parts if isinstance(part, str) and " " in part.strip())
                assert typed_numbers(prose) == [], f"line {cell.line}"


def test_every_formula_cites_its_equation_or_section():
    formulas = [cell.markdown for cell in cells() if cell.is_prose and "$$" in cell.text]
    assert len(formulas) >= 5
    for text in formulas:
        assert re.search(r"\(equation [123]\)|\(section [\d.]+, not numbered\)", text), text


@pytest.mark.full
def test_source_is_that_of_the_package_and_no_function_is_copied(fast):
    attend = next(text for text in fast.shown if "transformer/model/attention.py" in text)
    assert "def weights(self, queries: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:" in attend
    paths = re.findall(r"\]\(\.\./([^)]+\.py)\), line \d+:", "".join(fast.shown))
    assert len(paths) > 25
    assert {path.split("/")[0] for path in paths} == {"transformer"}
    defined = {
        node.name
        for cell in cells()
        for node in ast.walk(ast.parse("" if cell.is_prose else cell.text))
        if isinstance(node, ast.FunctionDef)
    }
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "transformer").rglob("*.py")]
    package = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not defined & package


@pytest.mark.full
def test_pieces_join_to_the_word_and_become_fewer_with_merges(fast):
    rows = fast.names["steps_of_word"]
    assert {row["the word"].replace(" ", "") for row in rows} == {fast.names["shown_word"]}
    assert [row["pieces"] for row in rows] == sorted({row["pieces"] for row in rows}, reverse=True)
    assert fast.names["kept"] == 2 * len(fast.names["texts"]["train"])


@pytest.mark.full
def test_a_large_embedding_matrix_starts_with_a_large_loss(fast):
    assert fast.names["small_matrix_loss"] < math.log(len(fast.names["vocabulary"])) + 2
    assert fast.names["large_matrix_loss"] > 5 * fast.names["small_matrix_loss"]


@pytest.mark.full
def test_order_is_lost_without_positions_and_their_layout_is_a_matter_of_naming(fast):
    assert fast.names["moved"]["without"] < 1e-9 < 0.1 < fast.names["moved"]["with"]
    assert fast.names["difference"].abs().max().item() < 1e-9
    assert fast.names["spread"] < 1e-9
    assert fast.names["error"] < 1e-9


@pytest.mark.full
def test_the_variance_of_a_product_is_the_width_of_the_head(fast):
    for row in fast.names["scales"].to_dict("records"):
        expected = row["d_k"] if row["score"] == "product" else 1
        assert row["variance"] == pytest.approx(expected, rel=0.1)
    sure = fast.names["sure"].set_index(["score", "d_k"])
    assert sure.loc[("not divided", 1024), "slope"] < 0.1 < sure.loc[("divided by the root of d_k", 1024), "slope"]


@pytest.mark.full
def test_states_grow_with_pre_norm_and_not_with_post_norm(fast):
    sizes = {norm: list(part["typical entry"]) for norm, part in fast.names["grown"].groupby("norm")}
    assert sizes["pre"] == sorted(sizes["pre"])
    assert sizes["post"] == pytest.approx([1.0] * len(sizes["post"]), abs=0.01)
    assert fast.names["depths"]["without it"].is_monotonic_increasing


@pytest.mark.full
def test_the_papers_models_have_about_the_papers_numbers_of_weights(fast):
    assert fast.names["ours"] == {"base": 63_082_496, "big": 214_245_376}
    assert fast.names["ours"]["base"] == pytest.approx(65e6, rel=0.031)
    assert fast.names["ours"]["big"] == pytest.approx(213e6, rel=0.006)


@pytest.mark.full
def test_similar_lengths_need_less_than_half_the_padding(fast):
    shares = fast.names["ways"].set_index("batches")["share of padding"]
    assert 2 * shares["similar lengths"] < shares["random order"]


@pytest.mark.full
def test_charts_have_their_labels_as_text_and_follow_dark_and_light(fast):
    charts = [text for text in fast.shown if "<svg" in text]
    assert len(charts) >= 12
    mask = next(text for text in charts if "The causal mask" in text)
    assert all(
        f">{subword}</text>" in mask.replace("&lt;", "<").replace("&gt;", ">") for subword in fast.names["shown_target"]
    )
    for chart in charts:
        assert re.search('<svg role="img" style="[^"]+" aria-label="[^"]+"', chart)
        assert "var(--" in chart
    ids = re.findall(r'id="([^"]+)"', "".join(charts))
    assert len(ids) == len(set(ids))


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "jupytext" else name)
    with pytest.raises(ValueError, match=r"^jupytext: not installed. Nothing was made. Run `make walkthrough-setup`.$"):
        command.check_packages()


needs_packages = pytest.mark.skipif(
    any(command.find_spec(name) is None for name in command.PACKAGES),
    reason="the packages of the notebook: make walkthrough-setup",
)


@needs_packages
def test_a_formula_becomes_mathml_and_a_tag_in_prose_is_text():
    html = command.renderer().render("Width $d_k$ and <b>\n\n$$ x^2 $$\n\n## Why $d_k$?\n")
    assert "<b>" not in html
    assert "<msub><mi>d</mi><mi>k</mi></msub>" in html
    assert 'display="block"' in html
    assert "$" not in html


@needs_packages
def test_the_notebook_has_the_cells_of_the_script():
    made = command.as_ipynb(command.read_script(SCRIPT))
    assert made == command.as_ipynb(command.read_script(SCRIPT))
    import nbformat

    notebook = nbformat.reads(made, as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) == len(cells())


@needs_packages
def test_a_cell_that_fails_is_named_and_no_page_is_written(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/walkthrough.py").write_text("# %%\nprint(1)\n\n# %%\nvalue = 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["walkthrough"])
    with pytest.raises(ValueError, match=r"'value = 1 / 0' failed \(ZeroDivisionError: .*No page was written"):
        command.main()
    assert not (tmp_path / "reports").exists()


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> Path:
    """The page of the whole walkthrough, as `make walkthrough` makes it."""
    path = tmp_path_factory.mktemp("page") / "walkthrough.html"
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "walkthrough", "--output", str(path)],
        cwd=ROOT,
        env={**os.environ, "MLFLOW_TRACKING_URI": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    with chromium() as found:
        yield found


def text_of(path: Path) -> str:
    """The text of the page, with single spaces."""
    plain = re.sub(r"<style>.*?</style>|<svg.*?</svg>|<[^>]+>", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(plain.split())


@pytest.mark.full
@needs_packages
def test_the_copy_task_ends_in_one_to_ten(html):
    assert re.search(r"update 300 .* 1 2 3 4 5 6 7 8 9 10\n", html.read_text(encoding="utf-8"))
    assert "<strong>1 2 3 4 5 6 7 8 9 10</strong>" in html.read_text(encoding="utf-8")


NUMBER = r"([\d.]+)"
CLAIMS = [  # sentences of the page, whose first number must be smaller than their second
    f"the loss is {NUMBER} with the factor and {NUMBER} without",
    f"ends at {NUMBER} with the division and at {NUMBER} without",
    f"Four heads end at a loss of {NUMBER} , one head at {NUMBER}".replace(" ,", ","),
    f"the losses are {NUMBER} with the norm and {NUMBER} without",
    f"The loss ends at {NUMBER} with the warm-up and at {NUMBER} without",
    f"their mean {NUMBER}. It costs nothing",
    f"The losses end at {NUMBER} \\(pre\\) and {NUMBER} \\(post\\)",
    f"Muon is at {NUMBER} and Adam at {NUMBER}",
]


@pytest.mark.full
@needs_packages
@pytest.mark.parametrize("claim", CLAIMS)
def test_an_experiment_shows_what_the_prose_says(html, claim):
    found = re.search(claim, text_of(html))
    assert found, claim
    values = [float(value.rstrip(".")) for value in found.groups()]
    if len(values) == 1:
        values.append(float(re.search(f"The best of the checkpoints has a loss of {NUMBER},", text_of(html))[1]))
    assert values[0] < values[1]


@pytest.mark.full
@needs_packages
def test_the_page_makes_no_request_and_has_no_error_at_any_width(html, browser):
    for width in (375, 800, 1280):
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if width > 800 else "light"
        )
        requests, errors = [], []
        page.on("request", lambda request, requests=requests: requests.append(request.url))
        page.on("console", lambda message, errors=errors: errors.append(message.text))
        page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        page.goto(html.as_uri())
        assert requests == [html.as_uri()]
        assert errors == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("math").count() > 20
        page.close()


@pytest.mark.full
@needs_packages
def test_maps_can_be_read_and_contents_reached_by_keyboard(html, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(html.as_uri())
    copied = page.locator("figure", has_text="Attention of the last decoder layer over the source")
    labels = copied.locator("svg text").all_text_contents()
    assert labels.count("10") == 2
    assert labels.count("</s>") == 2
    assert page.locator("figure", has_text="Decoder over source: mean of the heads").locator("svg text").count() > 10
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip the table of contents"
    links = page.locator("nav a").evaluate_all("links => links.map(link => link.getAttribute('href').slice(1))")
    assert len(links) == 19
    assert page.evaluate("ids => ids.every(id => document.getElementById(id))", links)
    page.close()


@pytest.mark.full
def test_a_signal_ends_the_kernel_its_files_and_the_command_in_one_line(tmp_path):
    (tmp_path / "cells.py").write_text("""# %%
import tempfile, time
folder = tempfile.TemporaryDirectory()
open("begun", "w").close()
time.sleep(600)
""")
    script = """
from pathlib import Path
from docs.make import walkthrough
from pipeline.stage import run
run(lambda: walkthrough.execute(walkthrough.read_script(Path("cells.py"))))
"""
    (tmp_path / "t").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "t")}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        wait_until((tmp_path / "begun").exists)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert (process.returncode, list((tmp_path / "t").iterdir())) == (130, [])
    assert "Traceback" not in errors
