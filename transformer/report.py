"""One page that a person reads after a run: scores, curves, translations, parameters.

Plain values come in, text goes out: equal values give equal bytes, and no page loads anything from the network.
"""

import json
import math
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import altair as alt
import pandas as pd
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from transformer.comparison import sentence_scores

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
CURVE_COLUMNS = ("step", "train_loss", "valid_loss", "learning_rate")
MOST_POINTS = 1000  # drawn per curve; a longer run is thinned to about this many
LABELS = {  # name in scores.json -> what a person calls it, and what it was measured on
    "bleu": ("BLEU", "test"),
    "chrf": ("chrF", "test"),
    "ter": ("TER", "test, lower is better"),
    "exact_match": ("Exact match", "% of the test sentences"),
    "bleu_lc_tok": ("BLEU", "test, lower-cased words"),
    "valid_bleu": ("BLEU", "validation"),
}
PHENOMENON = "exact_match_"
Chart = alt.Chart | alt.LayerChart | alt.FacetChart
Word = tuple[str, bool]  # the word, and whether the other side lacks it


def theme(dark: bool = False, font: str = "system-ui, sans-serif", background: str = "transparent") -> dict:
    """Vega configuration of every chart: quiet axes, and two colours that differ in lightness too."""
    ink, muted, grid = ("#e8e4dc", "#a5a099", "#34373c") if dark else ("#23211e", "#6b665f", "#e6e1d7")
    colours = ["#6fa8dc", "#f2a65a"] if dark else ["#2563a8", "#c2560c"]
    axis = {"labelColor": muted, "titleColor": muted, "gridColor": grid, "domainColor": grid, "tickColor": grid}
    axis |= {"titleFontWeight": "normal", "labelFontSize": 12, "titleFontSize": 12, "titlePadding": 8}
    legend = {"labelColor": ink, "titleColor": muted, "labelFontSize": 13, "symbolStrokeWidth": 3}
    config = {"background": background, "font": font, "axis": axis, "legend": legend, "rule": {"color": muted}}
    config |= {"range": {"category": colours}, "mark": {"color": colours[0]}, "view": {"stroke": None}}
    config |= {"text": {"color": ink}, "title": {"color": ink, "fontWeight": "normal"}}
    return config | {"header": {"labelColor": ink, "titleColor": muted}}


def checked(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves as numbers. Raises ValueError for a column that is missing or holds something else."""
    for name in CURVE_COLUMNS:
        if name not in curves.columns:
            raise ValueError(f"the column {name} is missing; the curves are {', '.join(CURVE_COLUMNS)}")
    if curves.empty:
        raise ValueError("there is no update in the curves")
    return curves.loc[:, list(CURVE_COLUMNS)].astype(float).astype({"step": int}).reset_index(drop=True)


def thin(curves: pd.DataFrame, most: int = MOST_POINTS) -> pd.DataFrame:
    """About `most` rows of the curves, evenly spaced; validations and the last row are always kept."""
    curves = checked(curves)
    every = -(-len(curves) // most) or 1
    return curves.loc[(curves.index % every == 0) | (curves.index == len(curves) - 1) | curves["valid_loss"].notna()]


def rounded(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with five significant digits: more is noise on a page."""
    return rows.assign(**{name: rows[name].map(lambda x: float(f"{x:.5g}")) for name in rows.select_dtypes("float")})


def update_axis() -> alt.X:
    """The x axis that all curves share."""
    axis = alt.Axis(grid=False, format=",d", tickCount=8)
    return alt.X("step:Q", title="update", axis=axis, scale=alt.Scale(domainMin=0, nice=False))


def loss_lines(wide: pd.DataFrame) -> Chart:
    """Loss by update: label-smoothed for training, plain for validation."""
    names = {"train_loss": "training (label-smoothed)", "valid_loss": "validation"}
    long = wide.rename(columns=names).melt("step", list(names.values()), "curve", "loss").dropna()
    colour = alt.Color("curve:N", title=None, sort=list(names.values()), legend=alt.Legend(orient="top", labelLimit=0))
    loss = alt.Y("loss:Q", title="loss, nats per target token", axis=alt.Axis(minExtent=46)).scale(zero=False)
    lines = alt.Chart(long).mark_line(strokeWidth=2).encode(update_axis(), loss, colour)
    points = lines.mark_point(filled=True, size=28, opacity=1).transform_filter(alt.datum.curve == names["valid_loss"])
    return alt.layer(lines, points)


def loss_chart(curves: pd.DataFrame) -> Chart:
    """Loss by update; pointing at one reads its values and the latest validation."""
    wide = rounded(thin(curves))
    told, latest, step = [], "–", wide["step"]
    for i, loss in zip(step, wide["valid_loss"], strict=True):
        latest = latest if math.isnan(loss) else f"{loss:.4g} at {i:,}, perplexity {math.exp(min(loss, 50)):.4g}"
        told.append(latest)
    left, right = (((step + step.shift(by)) / 2).fillna(step) for by in (1, -1))
    bands = wide[["step", "train_loss", "learning_rate"]].assign(validation=told, left=left, right=right)
    # The pointer meets unseen bands, each as wide as its update is the nearest: with nearest=True tooltips lose text.
    tooltip = [alt.Tooltip("step:Q", title="update", format=",d"), alt.Tooltip("train_loss:Q", title="training")]
    tooltip += [alt.Tooltip("validation:N"), alt.Tooltip("learning_rate:Q", title="learning rate")]
    hover = alt.selection_point(name="hover", fields=["step"], on="pointerover", clear="pointerout", empty=False)
    band = alt.Chart(bands, name="bands").mark_rect(opacity=0).encode(x="left:Q", x2="right:Q", tooltip=tooltip)
    seen = alt.when(hover).then(alt.value(0.6)).otherwise(alt.value(0))
    rule = alt.Chart(bands).mark_rule().encode(update_axis(), opacity=seen)
    return alt.layer(loss_lines(wide), rule, band.add_params(hover)).properties(width="container", height=320)


def rate_chart(curves: pd.DataFrame) -> Chart:
    """Learning rate by update."""
    rate = alt.Y("learning_rate:Q", title="learning rate", axis=alt.Axis(minExtent=46, format="~g", tickCount=3))
    lines = alt.Chart(rounded(thin(curves).loc[:, ["step", "learning_rate"]])).mark_line(strokeWidth=2)
    return lines.encode(update_axis(), rate).properties(width="container", height=110)


def phenomena_chart(scores: Mapping[str, float]) -> Chart | None:
    """Exact match by phenomenon, best first; None when the corpus has no phenomena."""
    found = {name.removeprefix(PHENOMENON): value for name, value in scores.items() if name.startswith(PHENOMENON)}
    if not found:
        return None
    table = {"phenomenon": [name.replace("_", " ") for name in found], "percent": map(float, found.values())}
    rows = rounded(pd.DataFrame(table)).sort_values("percent", ascending=False, kind="stable")
    names = alt.Y("phenomenon:N", title=None, sort=list(rows["phenomenon"])).axis(ticks=False, labelPadding=8)
    percent = alt.X("percent:Q", title="exact match, %", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5))
    bars = alt.Chart(rows).mark_bar(size=16).encode(percent, names)
    values = bars.mark_text(align="left", dx=5).encode(text=alt.Text("percent:Q", format=".1f"))
    return alt.layer(bars, values).properties(width="container", height=48 + 26 * len(rows))


def specification(chart: Chart) -> dict:
    """The chart in Vega-Lite, less the address of its schema and a configuration that would hide the page's own."""
    return {key: value for key, value in chart.to_dict().items() if key not in ("$schema", "config")}


def picture(curves: pd.DataFrame) -> str:
    """The loss curves as one SVG on white."""
    look = theme(font="Liberation Sans, Arial, sans-serif", background="#ffffff") | {"padding": 16}
    chart = loss_lines(rounded(thin(curves))).properties(width=760, height=360)
    return vl_convert.vegalite_to_svg(specification(chart) | {"config": look}, VEGA_LITE)


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
    house = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
    house.trim_blocks = house.lstrip_blocks = True
    themes = {"light": theme(), "dark": theme(dark=True)}
    return house.get_template(f"{name}.html.jinja").render(library=drawing_library(), themes=themes, **values)


@cache
def drawing_library() -> Markup:
    """Vega, Vega-Lite and vega-embed as one script."""
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed", VEGA_LITE)
    assert "</script" not in library.lower()
    return Markup(library)
