# pyright: reportMissingImports=false
"""The walkthrough as one file of HTML, which makes no request and translates, with the weights of the page's run."""

from __future__ import annotations

import copy
import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from transformer.files import write_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

STYLES = {"light": "default", "dark": "github-dark"}  # of Pygments
TRANSLATOR, WEIGHTS = Path("docs/make/translator.js"), Path("docs/translator.json")
LOST_EARLY = "Heute bringt die Frau den alten Nusskuchen nicht mit."  # whose best translation the early rule loses
PLACE = re.compile(r'(?s)<p><a href="#try-it">.*?</p>')  # where the other forms link to the translator


def page(text: str) -> str:
    """The text as one file of HTML for docs/, with its pictures in it."""
    from pygments.formatters import HtmlFormatter

    html = renderer().render(text)
    html = re.sub(r'<img src="https:[^>]*alt="([^"]*)"[^>]*>', r"\1", html)  # a badge would be a request
    html = re.sub(r'<img src="(images/[^"]+)" alt="([^"]*)"[^>]*>', picture, html)
    html = re.sub(r"(?s)<table>.*?</table>", lambda match: f'<div class="wide" tabindex="0">{match[0]}</div>', html)
    html = html.replace('href="walkthrough.html#', 'href="#')
    before, after = PLACE.split(html)
    folders = ["docs/make", "transformer/reporting/templates"]
    environment = Environment(loader=FileSystemLoader(folders), autoescape=False, undefined=StrictUndefined)
    weights, script = (part.read_text(encoding="utf-8") for part in (WEIGHTS, TRANSLATOR))
    return environment.get_template("walkthrough.html.jinja").render(
        before=before,
        after=after,
        contents=re.findall(r'<h([12]) id="([^"]+)">(.*?)</h\1>', html)[1:],  # without the title
        styles={name: HtmlFormatter(style=style).get_style_defs("pre") for name, style in STYLES.items()},
        moved=json.loads(weights)["moved"],
        weights=weights.replace("<", r"\u003c"),
        script=script,
        allowed=b64encode(sha256(script.encode()).digest()).decode(),
    )


def write_weights(names: dict[str, Any]) -> None:
    """Write WEIGHTS: whole numbers from -127 to 127, and a scale for each row. names: what the walkthrough defined."""
    import torch

    def log_probabilities(model: Any) -> dict[tuple, float]:
        """The log P of each hypothesis of the test sentences: {source and target: nats}."""
        sources = [source for source, _ in names["valid"]]
        found = [(source, names["beam_search"](names["model_logs"](model, source), 60)) for source in sources]
        return {(*source, *ids): log for source, hypotheses in found for _, log, ids in hypotheses}

    weights = {}
    small = copy.deepcopy(names["translator"])
    for name, weight in small.state_dict().items():
        rows = torch.atleast_2d(weight)
        scales = [float(f"{largest:.4g}") for largest in (rows.abs().amax(1) / 127).clamp_min(1e-9).tolist()]
        steps = (rows / torch.tensor(scales)[:, None]).round()
        weights[name] = {"scales": scales, "int8": b64encode(steps.to(torch.int8).numpy().tobytes()).decode()}
        rows.copy_(steps * torch.tensor(scales)[:, None])
    exact, moved = log_probabilities(names["translator"]), log_probabilities(small)
    first, *others = names["QUESTIONS"]
    stored = {
        **names["SIZES"],
        "moved": round(max(abs(log - exact[key]) for key, log in moved.items() if key in exact), 2),
        "examples": [first, LOST_EARLY, *others, *(german for german, _ in names["valid_text"][:30])],
        "subwords": names["subwords"],
        "merges": names["merges"],
        "weights": weights,
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in stored.items()]
    write_text(WEIGHTS, "{\n" + ",\n".join(lines) + "\n}\n")


def picture(match: re.Match[str]) -> str:
    """A picture within the page: a chart as SVG, so that the pointer shows its values; a drawing as an image."""
    name, words = match.groups()
    svg = (Path("docs") / name).read_text(encoding="utf-8")
    if "chart-" not in name:
        return f'<img src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}" alt="{words}">'
    svg = re.sub(' (aria-[a-z]+|role|class|pointer-events)="[^"]*"|<style>.*?</style>', "", svg)
    svg = re.sub(r'(id="|url\(#)', rf"\1{Path(name).stem}-", svg)  # ids are unique on a page
    svg = svg.strip().replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)
    return f'<span class="wide" tabindex="0">{svg}</span>'


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
        return f'<pre class="{token.info}" tabindex="0">{code}</pre>\n'

    markdown = MarkdownIt("commonmark", {"html": True})
    markdown.enable("table").use(dollarmath_plugin, renderer=formula, allow_digits=False)
    markdown.add_render_rule("fence", fence)
    return markdown.use(anchors_plugin, min_level=1, max_level=2)


def coloured(code: str) -> str:
    """Python code as HTML with a class for each kind of word but names, operators and brackets, which are most."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    html = highlight(code, PythonLexer(), HtmlFormatter(nowrap=True))
    return re.sub(r'<span class="[nop]">(.*?)</span>', r"\1", html)
