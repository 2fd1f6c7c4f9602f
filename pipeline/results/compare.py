"""Compare experiments on the test set: significance of differences, changed sentences, deviation over seeds.

    python -m pipeline compare EXP1 EXP2 ...     names from `dvc exp show`, commits, branches, tags, or `workspace`
    python -m pipeline compare HEAD other.txt    and files: anybody's translations of the first test set, line for line

The first one is the baseline.
Reads   git, DVC's cache, the files
Writes  reports/comparison.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.workflow.dvc_lock import Result, result_of
from transformer.corpora.text_files import Lines, check_counts, lines_of, open_file
from transformer.evaluation.comparison import (
    System,
    changed_most,
    check_signatures,
    compare_with_first,
    differing_knobs,
    means_over_seeds,
    what_else,
)
from transformer.files import Mistake, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="+", metavar="EXP", help="experiment, commit, branch, tag, `workspace` or file")
    parser.add_argument("--sentences", type=int, default=5, metavar="N", help="how many changed sentences to print")
    parser.add_argument("--output", type=Path, default=Path("reports/comparison.json"), metavar="PATH")
    options = parser.parse_args()
    names = list(dict.fromkeys(options.names))
    if len(names) < 2:
        raise Mistake(f"{names[0]} is one result. Nothing was compared. Name two, such as HEAD and workspace.")
    table = comparison([result_or_file(name) for name in names], options.sentences)
    write_json(options.output, table)
    print_comparison(table)
    print(f"\nwritten to {options.output}")


def result_or_file(name: str) -> Result | Path:
    """The result, or the file of translations, that a name means. Raises Mistake for neither, and for both."""
    path = Path(name)
    try:
        result = result_of(name)
    except Mistake as error:
        if path.is_file():
            return path
        raise Mistake(f"{error} No file is called {name} either.") from None
    if path.is_file():
        raise Mistake(f"{name} is a file and a result. Nothing was compared. Type ./{name}, or the result's hash.")
    return result


def system_of_file(path: Path, result: Result) -> System:
    """A file of translations as a system without params. result: of which it translates the first test set.

    Raises Mistake if it has another number of lines or is not UTF-8, and NoResult if the cache lacks the test set.
    """
    lines, sources = lines_of(path), Lines(result.raw("src"), lambda: open_file(result.file(result.raw("src"))))
    hypotheses, _ = list(lines), list(sources)
    check_counts(lines, sources)
    return System(str(path), params={}, scores={}, hypotheses=hypotheses)


def comparison(compared: list[Result | Path], sentences: int) -> dict[str, Any]:
    """The comparison of results and files with the first. sentences: how many of those that changed most it contains.

    Raises Mistake if a result is not complete, if test sets or signatures differ, if there are only files, and for what
    `system_of_file` raises.
    """
    results = [result for result in compared if isinstance(result, Result)]
    if not results:
        raise Mistake("Files have no test set. Nothing was compared. Name a result too, such as HEAD or workspace.")
    first = results[0]
    for result in results:
        result.remark_edits()
    sources, references = (first.lines(first.raw(side)) for side in ("src", "tgt"))
    for result in results[1:]:
        if result.lines(result.raw("tgt")) != references:
            raise Mistake(f"{result.name} and {first.name} have different test sets. Nothing was compared.")
    systems = [item.system() if isinstance(item, Result) else system_of_file(item, first) for item in compared]
    trained = [system for system in systems if system.params]
    check_signatures(trained)
    knobs = differing_knobs(trained)
    rows = compare_with_first(systems, references)
    for row, system in zip(rows, systems, strict=True):
        row |= {name: system.params.get(name, "") for name in knobs}
        if systems[0].params and system.params and (also := what_else(systems[0], system)):
            row["differs_also_in"] = also
    changed = {system.name: changed_most(systems[0], system, sources, references, sentences) for system in systems[1:]}
    return {
        "signature": trained[0].signatures["bleu"],
        "systems": rows,
        "configurations": means_over_seeds(trained),
        "changed_most": changed,
    }


def print_comparison(table: dict) -> None:
    """Print a comparison, in the form of reports/comparison.json."""
    systems, configurations = table["systems"], table["configurations"]
    print(f"BLEU on test, {table['signature']}\n")
    print(pd.DataFrame(systems).drop(columns="differs_also_in", errors="ignore").to_string(index=False, na_rep=""))
    for row in systems:
        if also := row.get("differs_also_in"):
            print(f"\n{row['name']} and {systems[0]['name']} differ also in {also}")
    if len(systems) > 1:
        print("\np: the chance of this difference or a larger one if both were equally good (randomisation).")
        print("It holds for these translations. Other seeds make a difference too: to judge a knob, train several.")
    if len(systems) > 2:
        print("..._holm: the same after Holm's correction for the number of comparisons.")
    if any(row["runs"] > 1 for row in configurations):
        tested = any("p_seeds" in row for row in configurations)
        test = ", p_seeds by Welch's t-test between the seeds of a row and of the first row" if tested else ""
        print(f"\nmeans over seeds{test}\n")
        print(pd.DataFrame(configurations).to_string(index=False, na_rep=""))
    for name, sentences in table["changed_most"].items():
        print(f"\n{name}: sentences that changed most, by chrF")
        for row in sentences:
            print(
                f"\n  line {row['line']}, {row['change']:+}",
                f"  source     {row['source']}",
                f"  reference  {row['reference']}",
                f"  before     {row['before']}",
                f"  after      {row['after']}",
                sep="\n",
            )
