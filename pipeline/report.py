"""Stage report: write a page with the curves, scores and translations of a run.

Reads   reports/training.csv, reports/training.json, reports/scores.json, reports/signatures.json, reports/forms.json
        data/raw, data/hypotheses: valid and the test sets; remarks.json
        data/tokens/source_counts.txt, text.json: how often each source word occurs in train, and how lines are
        split into words
        data/subwords.json, data/vocab.txt, data/attention.json
        data/model/model.json: what the scores mean; recipes/sizes.csv, recipes/gains.csv: what may make them better
Writes  reports/report.html, reports/charts (its charts as SVG and PNG), reports/curves.svg, reports/translations.csv
        (all sentences of the first test set)
Params  all: the page shows them
"""

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, run
from transformer.evaluation.buckets import bucket_scores, count_words
from transformer.evaluation.intervals import margins_of_sets
from transformer.evaluation.texts import Texts, read, read_table
from transformer.files import Mistake, read_json, read_lines, whole_folder, write_text
from transformer.reporting import charts
from transformer.reporting import page as report
from transformer.reporting.costs import costs
from transformer.reporting.measurements import next_steps
from transformer.reporting.pictures import chart_files, curves_picture
from transformer.reporting.sentences import Sentences
from transformer.text.placeholders import count_kept
from transformer.text.words import Side
from transformer.verdict import BANDS, verdict


def main() -> None:
    paths = arguments(
        __doc__,
        curve="reports/training.csv",
        summary="reports/training.json",
        scores="reports/scores.json",
        signatures="reports/signatures.json",
        forms="reports/forms.json",
        raw="data/raw",
        hypotheses="data/hypotheses",
        vocab="data/vocab.txt",
        counts="data/tokens/source_counts.txt",
        text="data/tokens/text.json",
        subwords="data/subwords.json",
        page="reports/report.html",
        charts="reports/charts",
        translations="reports/translations.csv",
        picture="reports/curves.svg",
        attention="data/attention.json",
        model="data/model",
        recipes="recipes",
    )
    params = Params.load(paths.params)
    curve = read(paths.curve, read_curve)
    shown = run_report(paths, params, curve, read(paths.subwords, read_table))
    drawn = report.charts_of(shown)
    pages = {
        paths.page: report.page(shown, drawn),
        paths.picture: curves_picture(curve),
        paths.translations: shown.sentences.csv(),
    }
    for path, text in pages.items():
        write_text(path, text)
    with whole_folder(paths.charts) as folder:
        for name, content in chart_files(drawn).items():
            (folder / name).write_bytes(content)
    print(f"written to {paths.page}")


def read_curve(path: Path) -> pd.DataFrame:
    """The rows of training.csv. Raises Mistake for another file."""
    try:
        table = pd.read_csv(path, dtype=float)
    except ValueError as error:  # pandas': no table, or a cell that is no number
        raise Mistake(str(error)) from None
    return charts.check_curves(table)


def run_report(paths: Namespace, params: Params, curve: pd.DataFrame, subwords: dict) -> report.RunReport:
    """What the page of the run shows. curve: training.csv. subwords: subwords.json."""
    summary, scores, signatures = (read(path, read_table) for path in (paths.summary, paths.scores, paths.signatures))
    model = read(paths.model / "model.json", read_table)
    first, *rest = params.test_sets.split()
    sources, references, hypotheses = Texts.read(paths.raw, paths.hypotheses, first)
    sets = {name: Texts.read(paths.raw, paths.hypotheses, name)[1:] for name in (first, *rest, "valid")}
    labels = paths.raw / f"{first}.labels"
    side, _ = Side.read_both(read(paths.text, read_table))
    words = [side.tokens(line) for line in sources]
    counts = read(paths.counts, lambda path: count_words(read_lines(path), {word for line in words for word in line}))
    meaning = verdict(model["scores"])
    vocabulary = read(paths.vocab, lambda path: sum(1 for _ in read_lines(path)))
    return report.RunReport(
        params=vars(params),
        training=summary,
        curves=curve,
        scores=scores,
        signatures=signatures,
        forms=read(paths.forms, read_json),
        margins=margins_of_sets(sets, params.target, list(read_lines(labels)) if labels.exists() else ()),
        sentences=Sentences(sources, references, hypotheses, [len(line) for line in words]),
        buckets=bucket_scores(words, counts, hypotheses, references, params.target),
        costs=costs(vars(params), summary, subwords, vocabulary),
        remarks=[
            *read(paths.hypotheses / "remarks.json", read_table)[first]["remarks"],
            *placeholder_remark(zip(sources, references, hypotheses, strict=True)),
        ],
        attention=read(paths.attention, read_table),
        verdict=meaning,
        steps=[] if BANDS[0][2] in meaning else next_steps(paths.recipes, vars(params), model["train_pairs"], summary),
    )


def placeholder_remark(lines: Iterable[tuple[str, str, str]]) -> list[str]:
    """How many translations keep the placeholders of their sources, as a sentence; none if the sources have none."""
    kept, count = count_kept(lines)
    words = "whose source and reference have the same placeholders, such as %s or an address, "
    return (
        [f"of {count:,} lines {words}{kept:,} ({kept / count:.1%}) keep them; docs/corpora.md lists what is protected"]
        if count
        else []
    )


if __name__ == "__main__":
    run(main)
