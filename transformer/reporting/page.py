"""One page that a person reads after a run: scores, curves, translations, parameters.

Plain values come in, text goes out: equal values give equal bytes, and no page loads anything from the network.
"""

import json
import math
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import pandas as pd
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from transformer.evaluation.comparison import sentence_scores
from transformer.reporting.charts import (
    PHENOMENON,
    VEGA_LITE,
    loss_chart,
    phenomena_chart,
    rate_chart,
    specification,
    theme,
)

LABELS = {  # name in scores.json -> what a person calls it, and what it was measured on
    "bleu": ("BLEU", "test"),
    "chrf": ("chrF", "test"),
    "ter": ("TER", "test, lower is better"),
    "exact_match": ("Exact match", "% of the test sentences"),
    "bleu_lc_tok": ("BLEU", "test, lower-cased words"),
    "valid_bleu": ("BLEU", "validation"),
}
Word = tuple[str, bool]  # the word, and whether the other side lacks it


def mark_differences(reference: str, hypothesis: str) -> tuple[list[Word], list[Word]]:
    """The words of both sides, each with True where the other side lacks it at that place."""
    left, right = reference.split(), hypothesis.split()
    missing, extra = [True] * len(left), [True] * len(right)
    for i, j, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        missing[i : i + size] = extra[j : j + size] = [False] * size
    return list(zip(left, missing, strict=True)), list(zip(right, extra, strict=True))


def choose(scores: Sequence[float], lengths: Sequence[int], ends: int = 10, spread: int = 20) -> dict[str, list[int]]:
    """Which sentences to show, by index: the worst, the best (of equals the longest), and some evenly spaced."""
    order = range(len(scores))
    worst = sorted(order, key=lambda i: (scores[i], i))[:ends]
    best = sorted(order, key=lambda i: (-scores[i], -lengths[i], i))[:ends]
    even = sorted({(2 * k + 1) * len(scores) // (2 * spread) for k in range(spread)} & set(order))
    return {"The worst": worst, "The best": best, "Evenly spaced": even}


def translations(sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]) -> dict[str, list[dict]]:
    """The rows of the table of translations, group by group."""
    if not len(sources) == len(references) == len(hypotheses):
        counts = f"{len(sources)} source, {len(references)} reference and {len(hypotheses)} hypothesis lines"
        raise ValueError(f"{counts} do not pair up; translate the test set again")
    scores = sentence_scores(references, hypotheses)

    def row(i: int) -> dict:
        reference, hypothesis = mark_differences(references[i], hypotheses[i])
        shown = {"number": i + 1, "score": f"{scores[i]:.1f}", "source": sources[i]}
        return shown | {"reference": reference, "hypothesis": hypothesis}

    groups = choose(scores, [len(reference.split()) for reference in references])
    return {title: [row(i) for i in chosen] for title, chosen in groups.items()}


def tiles(scores: Mapping[str, float], signatures: Mapping[str, str]) -> list[dict]:
    """The scores as big numbers, well-known ones first, each with its sacreBLEU signature."""
    others = [name for name in scores if name not in (*LABELS, "sentences") and not name.startswith(PHENOMENON)]
    shown = []
    for name in [name for name in LABELS if name in scores] + others:
        label, measured_on = LABELS.get(name, (name.replace("_", " "), ""))
        signature = signatures.get(name, signatures.get(name.removeprefix("valid_"), ""))
        shown.append({"label": label, "on": measured_on, "value": number(scores[name], 1), "signature": signature})
    return shown


def number(value: object, decimals: int | None = None) -> str:
    """A measured number for a reader: four significant digits or the decimals asked for, a dash for nothing."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return value if isinstance(value, str) else "–"
    if decimals is None and isinstance(value, float) and abs(value) < 1000:
        return f"{value:.4g}"
    return f"{value:,.{decimals or 0}f}"


def lead(params: Mapping[str, object], training: Mapping[str, object], sentences: int) -> str:
    """What was trained, in a sentence or two."""
    model = "A Transformer of {layers} encoder and {layers} decoder layers, {d_model} wide, with {heads} heads"
    steps = number(training.get("steps", params["max_steps"]))
    seen = f" on {number(training['target_tokens'])} target tokens" if "target_tokens" in training else ""
    told = f"trained for {steps} updates{seen}. Scored on {number(sentences)} test sentences."
    return f"{model.format_map(params)}, {told}"


def page(
    params: Mapping[str, object],
    training: Mapping[str, object],
    curves: pd.DataFrame,
    scores: Mapping[str, float],
    signatures: Mapping[str, str],
    sources: Sequence[str],
    references: Sequence[str],
    hypotheses: Sequence[str],
) -> str:
    """The report of one run, a self-contained HTML page. Scores are in percent."""
    charts = {"loss": loss_chart(curves), "rate": rate_chart(curves), "phenomena": phenomena_chart(scores)}
    return render(
        "report",
        params={name: value if isinstance(value, str) else json.dumps(value) for name, value in params.items()},
        training={name.replace("_", " "): number(value) for name, value in training.items()},
        tiles=tiles(scores, signatures),
        lead=lead(params, training, len(references)),
        charts={name: specification(chart) for name, chart in charts.items() if chart is not None},
        translations=translations(sources, references, hypotheses),
    )


def plots_template() -> str:
    """The page that `dvc plots show` fills (dvc config plots.html_template), with the drawing library inside."""
    return render("plots")


def render(name: str, **values: object) -> str:
    """Fill the template of a page; text is escaped."""
    house = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
    )
    house.trim_blocks = house.lstrip_blocks = True
    themes = {"light": theme(), "dark": theme(dark=True)}
    return house.get_template(f"{name}.html.jinja").render(library=drawing_library(), themes=themes, **values)


@cache
def drawing_library() -> Markup:
    """Vega, Vega-Lite and vega-embed as one script."""
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed", VEGA_LITE)
    assert "</script" not in library.lower()
    return Markup(library)
