"""The report of a run as one HTML page: scores, curves, translations, parameters.

Equal input gives equal bytes. No page loads anything from the network.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

import pandas as pd
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from transformer.evaluation.buckets import Bucket
from transformer.files import write_text
from transformer.reporting.charts import (
    PHENOMENON,
    VEGA_LITE,
    bleu_chart,
    bucket_chart,
    loss_chart,
    perplexity_chart,
    phenomena_chart,
    rate_chart,
    specification,
    theme,
)
from transformer.reporting.costs import depths
from transformer.reporting.sentences import Sentences, fit

MOST_BYTES = 3_000_000  # of a page
LABELS = {  # name in scores.json -> its label on the page, and what it was measured on
    "bleu": ("BLEU", "test"),
    "chrf": ("chrF", "test"),
    "ter": ("TER", "test, lower is better"),
    "exact_match": ("Exact match", "% of the test sentences"),
    "bleu_lc_tok": ("BLEU", "test, lower-cased words"),
    "valid_bleu": ("BLEU", "validation"),
}


@dataclass(frozen=True)
class RunReport:
    """What the page of a run shows.

    params: the knobs. training: the summary in training.json. curves: the columns of training.csv. scores: in percent,
    by name. margins: half of the 95% interval of each score, by name. signatures: sacreBLEU's, by name of the score.
    forms: the rows of forms.json. sentences: the first test set. remarks: what may be wrong with its translations, in
    sentences. buckets: what its parts differ in -> the parts. costs: see `costs.costs`.
    attention: see attention.contents; None: the page shows none. verdict: what the scores mean. steps: what may make
    them better, in sentences.
    """

    params: Mapping[str, object]
    training: Mapping[str, object]
    curves: pd.DataFrame
    scores: Mapping[str, float]
    margins: Mapping[str, float]
    signatures: Mapping[str, str]
    sentences: Sentences
    buckets: Mapping[str, Sequence[Bucket]]
    costs: Mapping[str, float]
    forms: Sequence[Mapping[str, object]] = ()
    remarks: Sequence[str] = ()
    attention: Mapping[str, object] | None = None
    verdict: str = ""
    steps: Sequence[str] = ()


def tiles(
    scores: Mapping[str, float], signatures: Mapping[str, str], margins: Mapping[str, float] = MappingProxyType({})
) -> list[dict]:
    """The scores for the top of the page, those of LABELS first, each with its sacreBLEU signature and margin."""
    first, *more = [name for name in scores if name.startswith("bleu_") and name not in LABELS] or [""]  # test sets
    labels = LABELS | {name: ("BLEU", name.removeprefix("bleu_")) for name in more}
    if more:  # all scores but those of `more` are of the first test set; bleu and bleu_<first test set> are the same
        on_first = first.removeprefix("bleu_")
        labels |= {name: (label, on.replace("test", on_first)) for name, (label, on) in LABELS.items()}
    rest = [name for name in scores if name not in (*labels, first, "sentences") and not name.startswith(PHENOMENON)]
    shown = []
    for name in [name for name in labels if name in scores] + rest:
        label, measured_on = labels.get(name, (name.replace("_", " "), ""))
        signature = signatures.get(name, signatures.get(name.removeprefix("valid_"), ""))
        margin = f"± {number(margins[name], 1)}" if name in margins else ""
        shown.append(
            {
                "label": label,
                "on": measured_on,
                "value": number(scores[name], 1),
                "margin": margin,
                "signature": signature,
            }
        )
    return shown


def number(value: object, decimals: int | None = None) -> str:
    """A value as text: a number with four significant digits or `decimals` decimals, a dash if it is missing."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return value if isinstance(value, str) else "–"
    if decimals is None and isinstance(value, float) and abs(value) < 1000:
        return f"{value:.4g}"
    return f"{value:,.{decimals or 0}f}"


def test_set(params: Mapping[str, object]) -> str:
    """The test set whose sentences the page shows, as part of a sentence: the only one, or the first."""
    first, *rest = str(params["test_sets"]).split()
    return f"{first}, the first of {len(rest) + 1} test sets" if rest else "the test set"


def lead(params: Mapping[str, object], training: Mapping[str, object], sentences: int) -> str:
    """What was trained, and on how many sentences it was scored, in two sentences."""
    encoder, decoder = depths(params)
    model = f"A Transformer of {encoder} encoder and {decoder} decoder layers, {params['d_model']} wide, with "
    model += f"{params['heads']} heads" + (f" of key size {params['key_size']}" if params["key_size"] else "")
    steps = number(training.get("steps", params["max_steps"]))
    seen = f" on {number(training['target_tokens'])} target tokens" if "target_tokens" in training else ""
    trained = f"trained for {steps} updates{seen}"
    return f"{model}, {trained}. Scored on {number(sentences)} sentences of {test_set(params)}."


def charts_of(run: RunReport) -> dict[str, dict]:
    """The charts of the report in Vega-Lite, by name."""
    charts = {
        "loss": loss_chart(run.curves),
        "perplexity": perplexity_chart(run.curves),
        "bleu": bleu_chart(run.curves),
        "rate": rate_chart(run.curves),
        "phenomena": phenomena_chart(run.scores, run.margins),
    }
    charts |= {file_name(title): bucket_chart(parts, title) for title, parts in run.buckets.items() if parts}
    return {name: specification(chart) for name, chart in charts.items() if chart is not None}


def file_name(title: str) -> str:
    """The name of the chart of some buckets: by-words-of-the-source."""
    return "by-" + title.replace(" ", "-")


def page(run: RunReport, charts: Mapping[str, Mapping]) -> str:
    """The report of a run as a self-contained HTML page. charts: see `charts_of`.

    If the page would exceed MOST_BYTES with all sentences, it has the most telling ones.
    """

    def render_report(sentences: str, count: int) -> str:
        return render(
            "report",
            params={name: value if isinstance(value, str) else json.dumps(value) for name, value in run.params.items()},
            training={name.replace("_", " "): number(value) for name, value in run.training.items()},
            costs={name: number(value) if value < 1e9 else f"{value:.3g}" for name, value in run.costs.items()},
            tiles=tiles(run.scores, run.signatures, run.margins),
            lead=lead(run.params, run.training, len(run.sentences)),
            charts=charts,
            buckets={title: (file_name(title), bucket_rows(parts)) for title, parts in run.buckets.items() if parts},
            test_set=test_set(run.params),
            sentences=sentences,
            shown=count,
            all=len(run.sentences),
            forms=run.forms,
            remarks=run.remarks,
            verdict=run.verdict,
            steps=run.steps,
            attention=run.attention,
        )

    rest = len(render_report("", 0).encode("utf-8"))
    return render_report(*fit(run.sentences, MOST_BYTES - rest))


def bucket_rows(buckets: Sequence[Bucket]) -> list[dict[str, str]]:
    """The rows of the table of some buckets."""
    return [
        {
            "name": bucket.name,
            "sentences": number(bucket.sentences),
            "bleu": number(bucket.bleu, 1),
            "margin": "–" if bucket.margin is None else f"± {number(bucket.margin, 1)}",
        }
        for bucket in buckets
    ]


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
    return template.render(library=drawing_library, themes=themes, **values)


@cache
def drawing_library() -> Markup:
    """Vega, Vega-Lite and vega-embed as one script.

    vl-convert takes four seconds to bundle it, so the script is kept beside vl-convert, if that folder can be written.
    """
    kept = Path(vl_convert.__file__).with_name(f"vega-lite-{VEGA_LITE}-by-{version('vl-convert-python')}.js")
    if kept.is_file():
        return Markup(kept.read_text(encoding="utf-8"))
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed", VEGA_LITE)
    assert "</script" not in library.lower()
    with suppress(OSError):
        write_text(kept, library)
    return Markup(library)
