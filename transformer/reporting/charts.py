"""The charts of a report in Vega-Lite: curves of the training, exact match by phenomenon, BLEU by bucket."""

import math
from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from transformer.evaluation.buckets import Bucket
from transformer.files import Mistake

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
CURVE_COLUMNS = ("step", "train_loss", "valid_loss", "learning_rate")
MOST_POINTS = 1000  # drawn per curve; longer curves are reduced to about this number
PHENOMENON, VALID_BLEU = "exact_match_", "valid_bleu"
BAR_OPACITY = 0.6  # so that the line of an interval is seen on its bar
Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.VConcatChart


def theme(dark: bool = False, font: str = "system-ui, sans-serif", background: str = "transparent") -> dict:
    """The Vega configuration of all charts: grey axes, and two colours that also differ in lightness."""
    ink, muted, grid = ("#e8e4dc", "#a5a099", "#34373c") if dark else ("#23211e", "#6b665f", "#e6e1d7")
    colours = ["#6fa8dc", "#f2a65a"] if dark else ["#2563a8", "#c2560c"]
    axis = {"labelColor": muted, "titleColor": muted, "gridColor": grid, "domainColor": grid, "tickColor": grid}
    axis |= {"titleFontWeight": "normal", "labelFontSize": 12, "titleFontSize": 12, "titlePadding": 8}
    legend = {"labelColor": ink, "titleColor": muted, "labelFontSize": 13, "symbolStrokeWidth": 3}
    config = {"background": background, "font": font, "axis": axis, "legend": legend, "rule": {"color": ink}}
    config |= {"range": {"category": colours}, "mark": {"color": colours[0]}, "view": {"stroke": None}}
    config |= {"text": {"color": ink}, "title": {"color": ink, "fontWeight": "normal"}}
    return config | {"header": {"labelColor": ink, "titleColor": muted}}


def check_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves with numeric columns. Raises Mistake for a missing column, no rows, or other values."""
    for name in CURVE_COLUMNS:
        if name not in curves.columns:
            raise Mistake(f"the column {name} is missing; the columns are {', '.join(CURVE_COLUMNS)}")
    if curves.empty:
        raise Mistake("the curves have no rows")
    columns = [*CURVE_COLUMNS, *([VALID_BLEU] if VALID_BLEU in curves.columns else [])]
    return curves.loc[:, columns].astype(float).astype({"step": int}).reset_index(drop=True)


def thin(curves: pd.DataFrame, most: int = MOST_POINTS) -> pd.DataFrame:
    """About `most` rows of the curves, evenly spaced. Rows with a validation and the last row are always kept."""
    curves = check_curves(curves)
    every = -(-len(curves) // most) or 1
    return curves.loc[(curves.index % every == 0) | (curves.index == len(curves) - 1) | curves["valid_loss"].notna()]


def round_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with numbers rounded to five significant digits, enough for a page."""
    return rows.assign(**{name: rows[name].map(lambda x: float(f"{x:.5g}")) for name in rows.select_dtypes("float")})


def update_axis() -> alt.X:
    """The x axis of all curves: the number of the update."""
    axis = alt.Axis(grid=False, format=",d", tickCount=8)
    return alt.X("step:Q", title="update", axis=axis, scale=alt.Scale(domainMin=0, nice=False))


def loss_lines(wide: pd.DataFrame) -> Chart:
    """Loss by update: training with label smoothing, validation without."""
    names = {"train_loss": "training (label-smoothed)", "valid_loss": "validation"}
    long = wide.rename(columns=names).melt("step", list(names.values()), "curve", "loss").dropna()
    legend = alt.Legend(orient="top", labelLimit=0, columns=1)  # one below the other: a phone is narrow
    colour = alt.Color("curve:N", title=None, sort=list(names.values()), legend=legend)
    loss = alt.Y("loss:Q", title="loss, nats per target token", axis=alt.Axis(minExtent=46)).scale(zero=False)
    lines = alt.Chart(long).mark_line(strokeWidth=2).encode(update_axis(), loss, colour)
    points = lines.mark_point(filled=True, size=28, opacity=1).transform_filter(alt.datum.curve == names["valid_loss"])
    return alt.layer(lines, points)


def loss_chart(curves: pd.DataFrame) -> Chart:
    """Loss by update. A tooltip shows the values of an update and the latest validation."""
    wide = round_numbers(thin(curves))
    readings, latest, step = [], "–", wide["step"]
    for i, loss in zip(step, wide["valid_loss"], strict=True):
        latest = latest if math.isnan(loss) else f"{loss:.4g} at {i:,}, perplexity {math.exp(min(loss, 50)):.4g}"
        readings.append(latest)
    left, right = (((step + step.shift(by)) / 2).fillna(step) for by in (1, -1))
    bands = wide[["step", "train_loss", "learning_rate"]].assign(validation=readings, left=left, right=right)
    # Invisible bands show the tooltips, each as wide as its update is the nearest: nearest=True would lose text.
    tooltip = [alt.Tooltip("step:Q", title="update", format=",d"), alt.Tooltip("train_loss:Q", title="training")]
    tooltip += [alt.Tooltip("validation:N"), alt.Tooltip("learning_rate:Q", title="learning rate")]
    hover = alt.selection_point(name="hover", fields=["step"], on="pointerover", clear="pointerout", empty=False)
    band = alt.Chart(bands, name="bands").mark_rect(opacity=0).encode(x="left:Q", x2="right:Q", tooltip=tooltip)
    seen = alt.when(hover).then(alt.value(0.6)).otherwise(alt.value(0))
    rule = alt.Chart(bands).mark_rule().encode(update_axis(), opacity=seen)
    return alt.layer(loss_lines(wide), rule, band.add_params(hover)).properties(width="container", height=320)


def valid_chart(curves: pd.DataFrame, name: str, title: str, logarithmic: bool = False) -> Chart | None:
    """A column of the curves that has values at validations only, by update. None if it has no value."""
    if name not in curves.columns or curves[name].isna().to_numpy().all():
        return None
    rows = round_numbers(curves.loc[curves[name].notna(), ["step", name]])
    axis = alt.Axis(minExtent=46, tickCount=4, format="~g", grid=not logarithmic)
    scale = alt.Scale(type="log") if logarithmic else alt.Scale(zero=False)
    value = alt.Y(f"{name}:Q", title=title, axis=axis, scale=scale)
    tooltip = [alt.Tooltip("step:Q", title="update", format=",d"), alt.Tooltip(f"{name}:Q", title=title, format=".4g")]
    lines = (
        alt.Chart(rows)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=28))
        .encode(update_axis(), value, tooltip=tooltip)
    )
    return lines.properties(width="container", height=130)


def perplexity_chart(curves: pd.DataFrame) -> Chart | None:
    """Perplexity on valid by update, exp of the validation loss, on a logarithmic axis."""
    known = curves.assign(perplexity=curves["valid_loss"].clip(upper=50).map(math.exp, na_action="ignore"))
    return valid_chart(known, "perplexity", "perplexity on valid", logarithmic=True)


def bleu_chart(curves: pd.DataFrame) -> Chart | None:
    """BLEU on valid by update. None if the training computed none."""
    return valid_chart(curves, VALID_BLEU, "BLEU on valid, greedy")


def bucket_chart(buckets: Sequence[Bucket], title: str) -> Chart:
    """BLEU of each bucket as a bar, with its 95% interval as a line. title: what the buckets differ in."""
    rows = [
        {
            "bucket": bucket.name,
            "bleu": bucket.bleu,
            "sentences": bucket.sentences,
            **interval(bucket.bleu, bucket.margin),
        }
        for bucket in buckets
    ]
    names = alt.X(
        "bucket:N", title=title, sort=[bucket.name for bucket in buckets], axis=alt.Axis(labelAngle=0, grid=False)
    )
    scale = alt.Scale(domain=[0, 100], nice=False) if max(row["high"] for row in rows) > 80 else alt.Scale()
    score = alt.Y("bleu:Q", title="BLEU", scale=scale, axis=alt.Axis(minExtent=46, tickCount=5))
    tooltip = [
        alt.Tooltip("bucket:N", title=title),
        alt.Tooltip("sentences:Q", format=",d"),
        *(alt.Tooltip(f"{name}:Q", format=".1f") for name in ("bleu", "low", "high")),
    ]
    base = alt.Chart(round_numbers(pd.DataFrame(rows))).encode(names, tooltip=tooltip)
    bars = base.mark_bar(size=34, opacity=BAR_OPACITY).encode(score)
    lines = base.mark_rule(strokeWidth=2).encode(alt.Y("low:Q"), alt.Y2("high:Q"))
    return alt.layer(bars, lines).properties(width="container", height=200)


def rate_chart(curves: pd.DataFrame) -> Chart:
    """Learning rate by update."""
    rate = alt.Y("learning_rate:Q", title="learning rate", axis=alt.Axis(minExtent=46, format="~g", tickCount=3))
    lines = alt.Chart(round_numbers(thin(curves).loc[:, ["step", "learning_rate"]])).mark_line(strokeWidth=2)
    return lines.encode(update_axis(), rate).properties(width="container", height=110)


def phenomena_chart(scores: Mapping[str, float], margins: Mapping[str, float]) -> Chart | None:
    """Exact match by phenomenon, the highest first, with 95% intervals. None if the corpus has no phenomena."""
    rows = [
        {
            "phenomenon": name.removeprefix(PHENOMENON).replace("_", " "),
            "percent": float(value),
            **interval(value, margins.get(name)),
            "text": f"{value:.1f}",
        }
        for name, value in scores.items()
        if name.startswith(PHENOMENON)
    ]
    if not rows:
        return None
    table = round_numbers(pd.DataFrame(rows)).sort_values("percent", ascending=False, kind="stable")
    names = alt.Y("phenomenon:N", title=None, sort=list(table["phenomenon"])).axis(ticks=False, labelPadding=8)
    percent = alt.X("percent:Q", title="exact match, %", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5))
    base = alt.Chart(table).encode(names)
    bars = base.mark_bar(size=16, opacity=BAR_OPACITY).encode(percent)
    lines = base.mark_rule(strokeWidth=2).encode(alt.X("low:Q"), alt.X2("high:Q"))
    values = base.mark_text(align="left", dx=6).encode(alt.X("high:Q"), text="text:N")
    return alt.layer(bars, lines, values).properties(width="container", height=48 + 26 * len(table))


def interval(score: float, margin: float | None) -> dict[str, float]:
    """The ends of the interval of a score in percent; without a margin, the score."""
    return {"low": max(score - (margin or 0.0), 0.0), "high": min(score + (margin or 0.0), 100.0)}


def specification(chart: Chart) -> dict:
    """The chart in Vega-Lite, without the schema's address, and without a configuration: the page sets it."""
    return {key: value for key, value in chart.to_dict().items() if key not in ("$schema", "config")}
