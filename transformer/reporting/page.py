"""The report of a run as one HTML page: scores, curves, translations, parameters.

Equal input gives equal bytes. No page loads anything from the network.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import pandas as pd
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from transformer.evaluation.scores import sentence_scores
from transformer.reporting.charts import (
    PHENOMENON,
    VEGA_LITE,
    loss_chart,
    phenomena_chart,
    rate_chart,
    specification,
    theme,
)

LABELS = {  # name in scores.json -> its label on the page, and what it was measured on
    "bleu": ("BLEU", "test"),
    "chrf": ("chrF", "test"),
    "ter": ("TER", "test, lower is better"),
    "exact_match": ("Exact match", "% of the test sentences"),
    "bleu_lc_tok": ("BLEU", "test, lower-cased words"),
    "valid_bleu": ("BLEU", "validation"),
}
Word = tuple[str, bool]  # a word, and whether it is missing on the other side


@dataclass(frozen=True)
class RunReport:
    """What the page of a run shows.

    params: the knobs. training: the summary in training.json. curves: the columns of training.csv. scores: in percent,
    by name. signatures: sacreBLEU's, by name of the score. sources, references, hypotheses: the lines of the test set.
    attention: see attention.contents; None: the page shows none.
    """

    params: Mapping[str, object]
    training: Mapping[str, object]
    curves: pd.DataFrame
    scores: Mapping[str, float]
    signatures: Mapping[str, str]
    sources: Sequence[str]
    references: Sequence[str]
    hypotheses: Sequence[str]
    attention: Mapping[str, object] | None = None


def mark_differences(reference: str, hypothesis: str) -> tuple[list[Word], list[Word]]:
    """The words of reference and hypothesis, each with True if it is missing on the other side at that place."""
    left, right = reference.split(), hypothesis.split()
    missing, extra = [True] * len(left), [True] * len(right)
    for i, j, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        missing[i : i + size] = extra[j : j + size] = [False] * size
    return list(zip(left, missing, strict=True)), list(zip(right, extra, strict=True))


def choose(scores: Sequence[float], lengths: Sequence[int], ends: int = 10, spread: int = 20) -> dict[str, list[int]]:
    """The indices of the sentences to show: the worst, the best (of equal ones the longest), and evenly spaced ones.

    scores, lengths: of each sentence. ends: how many of the worst and of the best. spread: how many evenly spaced ones.
    """
    order = range(len(scores))
    worst = sorted(order, key=lambda i: (scores[i], i))[:ends]
    best = sorted(order, key=lambda i: (-scores[i], -lengths[i], i))[:ends]
    even = sorted({(2 * k + 1) * len(scores) // (2 * spread) for k in range(spread)} & set(order))
    return {"The worst": worst, "The best": best, "Evenly spaced": even}


def translations(sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]) -> dict[str, list[dict]]:
    """The rows of the tables of translations, by the title of the table."""
    if not len(sources) == len(references) == len(hypotheses):
        counts = f"{len(sources)} source, {len(references)} reference and {len(hypotheses)} hypothesis lines"
        raise ValueError(f"{counts}: their numbers must be equal. Translate the test set again.")
    scores = sentence_scores(hypotheses, references)

    def row(i: int) -> dict:
        reference, hypothesis = mark_differences(references[i], hypotheses[i])
        shown = {"number": i + 1, "score": f"{scores[i]:.1f}", "source": sources[i]}
        return shown | {"reference": reference, "hypothesis": hypothesis}

    groups = choose(scores, [len(reference.split()) for reference in references])
    return {title: [row(i) for i in chosen] for title, chosen in groups.items()}


def tiles(scores: Mapping[str, float], signatures: Mapping[str, str]) -> list[dict]:
    """The scores for the top of the page, those of LABELS first, each with its sacreBLEU signature."""
    sets = {name: ("BLEU", name.removeprefix("bleu_")) for name in scores if name.startswith("bleu_")}
    labels = (sets if len(sets.keys() - LABELS.keys()) > 1 else {}) | LABELS  # of one test set there is bleu already
    others = [name for name in scores
              if name not in (*labels, *sets, "sentences") and not name.startswith(PHENOMENON)]  # fmt: skip
    shown = []
    for name in [name for name in LABELS if name in scores] + [name for name in sets if name not in LABELS] + others:
        if name not in labels and name in sets:
            continue
        label, measured_on = labels.get(name, (name.replace("_", " "), ""))
        signature = signatures.get(name, signatures.get(name.removeprefix("valid_"), ""))
        shown.append({"label": label, "on": measured_on, "value": number(scores[name], 1), "signature": signature})
    return shown


def number(value: object, decimals: int | None = None) -> str:
    """A value as text: a number with four significant digits or `decimals` decimals, a dash if it is missing."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return value if isinstance(value, str) else "–"
    if decimals is None and isinstance(value, float) and abs(value) < 1000:
        return f"{value:.4g}"
    return f"{value:,.{decimals or 0}f}"


def lead(params: Mapping[str, object], training: Mapping[str, object], sentences: int) -> str:
    """What was trained, and on how many sentences it was scored, in two sentences."""
    model = "A Transformer of {layers} encoder and {layers} decoder layers, {d_model} wide, with {heads} heads"
    steps = number(training.get("steps", params["max_steps"]))
    seen = f" on {number(training['target_tokens'])} target tokens" if "target_tokens" in training else ""
    trained = f"trained for {steps} updates{seen}"
    return f"{model.format_map(params)}, {trained}. Scored on {number(sentences)} test sentences."


def page(run: RunReport) -> str:
    """The report of a run as a self-contained HTML page."""
    charts = {
        "loss": loss_chart(run.curves),
        "rate": rate_chart(run.curves),
        "phenomena": phenomena_chart(run.scores),
    }
    return render(
        "report",
        params={name: value if isinstance(value, str) else json.dumps(value) for name, value in run.params.items()},
        training={name.replace("_", " "): number(value) for name, value in run.training.items()},
        tiles=tiles(run.scores, run.signatures),
        lead=lead(run.params, run.training, len(run.references)),
        charts={name: specification(chart) for name, chart in charts.items() if chart is not None},
        translations=translations(run.sources, run.references, run.hypotheses),
        attention=run.attention,
    )


def plots_template() -> str:
    """The template for `dvc plots show` (dvc config plots.html_template), with the drawing library inside."""
    return render("plots")


def render(name: str, **values: object) -> str:
    """The page that a template makes of values. Text is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
    )
    environment.trim_blocks = environment.lstrip_blocks = True
    themes = {"light": theme(), "dark": theme(dark=True)}
    template = environment.get_template(f"{name}.html.jinja")
    return template.render(library=drawing_library(), themes=themes, **values)


@cache
def drawing_library() -> Markup:
    """Vega, Vega-Lite and vega-embed as one script."""
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed", VEGA_LITE)
    assert "</script" not in library.lower()
    return Markup(library)
