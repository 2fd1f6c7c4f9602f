"""Write the tables of README.md and docs/ from published results and measurements.

    python -m pipeline docs

Reads   recipes/results.json (one entry per published result, the toy recipe's first), recipes/*.csv, Makefile (what
        `make run` prints)
Writes  README.md (end of the output of `make run`, table of results), docs/results.md (tables of the toy recipe),
        docs/your-text.md (what to expect and what helps), each between the lines `<!-- NAME -->` and
        `<!-- end of NAME -->`; the rest of these files stays as it is
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline.workflow.stage import run
from transformer.files import Mistake, write_text
from transformer.reporting.measurements import rows_of
from transformer.verdict import BANDS

SCORES = {
    "bleu": "BLEU",
    "bleu_lc_tok": "BLEU of lower-cased tokens",
    "chrf": "chrF",
    "ter": "TER",
    "exact_match": "exact match",
}
SHOWN = ("bleu", "bleu_lc_tok", "chrf", "exact_match")  # in the README, of what `make run` prints
PHENOMENON = "exact_match_"
ENGINES = {"torch": "torch", "float32": "CTranslate2, float32", "int8": "CTranslate2, int8"}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for path, text in pages(Path()).items():
        write_text(path, text)


def pages(root: Path) -> dict[Path, str]:
    """The text of each page with its tables as they must be: path -> text."""
    tables = {
        "README.md": {"run": end_of_run, "results": results},
        "docs/results.md": {"multi30k": multi30k, "toy": toy, "engines": engines},
        "docs/your-text.md": {"sizes": sizes, "gains": gains, "bands": bands},
    }
    texts = {}
    for name, makers in tables.items():
        text = (root / name).read_text(encoding="utf-8")
        for marker, maker in makers.items():
            text = filled(text, marker, maker(root), name)
        texts[root / name] = text
    return texts


def filled(text: str, marker: str, table: str, name: str) -> str:
    """The text of page `name` with this table between its two marker lines. Raises Mistake if a line is missing."""
    begin, end = f"<!-- {marker} -->\n", f"<!-- end of {marker} -->\n"
    head, has_begin, rest = text.partition(begin)
    _, has_end, tail = rest.partition(end)
    if not (has_begin and has_end):
        raise Mistake(f"{name}: the lines {begin.strip()} and {end.strip()} are missing; git checkout {name}")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *rows])


def published(root: Path) -> list[dict]:
    """The published results, of which the first is the toy recipe's."""
    return json.loads((root / "recipes/results.json").read_text(encoding="utf-8"))


def end_of_run(root: Path) -> str:
    """The end of what `make run` prints: scores, as `dvc metrics show` has them, and what to type next."""
    scores = published(root)[0]["scores"]
    widths = [max(len(name), len(str(scores[name]))) + 4 for name in SHOWN]
    rows = [["Path".ljust(23), *SHOWN], ["reports/scores.json".ljust(23), *(str(scores[name]) for name in SHOWN)]]
    lines = [row[0] + "".join(cell.ljust(width) for cell, width in zip(row[1:], widths, strict=True)) for row in rows]
    rule = (root / "Makefile").read_text(encoding="utf-8").partition("\nrun:")[2].partition("\n\n")[0]
    hints = [hint.replace('\\"', '"') for hint in re.findall(r'^\t@echo(?: "(.*)")?$', rule, flags=re.MULTILINE)]
    return "\n".join(["```text", *(f"{line}..." for line in lines), *hints, "```", ""])


def results(root: Path) -> str:
    """One row per published result whose time is known."""
    rows = []
    for entry in (entry for entry in published(root) if "time" in entry):
        scores = entry["scores"]
        changes = "".join(f", `{change}`" for change in entry.get("changes", "").split(", ") if change)
        cells = [f"{scores[name]:.1f}{'%' * (name == 'exact_match')}" if name in scores else "" for name in SCORES]
        rows.append([f"`{entry['recipe']}`{changes}", entry["text"], *cells, entry["time"]])
    return table_of(["recipe", "test set", *SCORES.values(), "time on two cores"], rows)


def multi30k(root: Path) -> str:
    """The scores of Multi30k on each test set, beside those of papers."""
    names, rows = ("bleu", "bleu_lc_tok", "chrf", "ter"), []
    for entry in (entry for entry in published(root) if entry["recipe"] == "multi30k"):
        scores = entry["scores"]
        cells = [f"{scores[name]:.2f}" if name in scores else "" for name in names]
        rows.append([entry["text"], *cells, entry.get("papers", "")])
    return table_of(["text", *(SCORES[name] for name in names), "papers"], rows)


def toy(root: Path) -> str:
    """Exact match of the toy recipe, by phenomenon."""
    scores = published(root)[0]["scores"]
    rows = [["all", f"{scores['exact_match']:.1f}%"]]
    rows += [
        [name.removeprefix(PHENOMENON).replace("_", " "), f"{value:.1f}%"]
        for name, value in scores.items()
        if name.startswith(PHENOMENON)
    ]
    return table_of(["phenomenon", "exact match"], rows)


def engines(root: Path) -> str:
    """BLEU on valid of each engine, and how many translations are those of torch."""
    measured, rows = published(root)[0]["engines"], []
    for beam in (1, 4):
        for name, title in ENGINES.items():
            same = measured.get(f"{name}_identical_beam_{beam}")
            bleu = f"{measured[f'{name}_bleu_beam_{beam}']:.2f}"
            rows.append([title, str(beam), bleu, "" if same is None else f"{same:.1f}%"])
    return table_of(["engine", "beam", "BLEU on valid", "translations identical to torch"], rows)


def sizes(root: Path) -> str:
    """What models had that learnt from texts of several sizes."""
    head = ["text", "direction", "training pairs", "BLEU", "chrF", "minutes of one core"]
    return table_of(head, [[*row.values()] for row in rows_of(root / "recipes/sizes.csv")])


def gains(root: Path) -> str:
    """What helped where text is scarce."""
    head = ["means", "`dvc exp run`", "text", "training pairs", "seeds", "BLEU without", "with"]
    columns = ("means", "options", "text", "pairs", "seeds", "before", "after")
    return table_of(head, [[row[name] for name in columns] for row in rows_of(root / "recipes/gains.csv")])


def bands(root: Path) -> str:
    """What scores mean."""
    head = ["BLEU from", "chrF from", "a model of such scores"]
    return table_of(head, [[str(bleu), str(chrf), f"{words}."] for bleu, chrf, words in BANDS])


if __name__ == "__main__":
    run(main)
