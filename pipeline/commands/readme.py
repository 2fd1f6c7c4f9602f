"""Write the results table of README.md from metrics, so that it says what was measured.

    python -m pipeline readme

Reads recipes/results.json: a row per published result, its scores or the file that holds them (those of the toy recipe
are the pipeline's own). Writes README.md, between the lines `<!-- results -->` and `<!-- end of results -->`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pipeline.shared.stage import renamed
from transformer.files import whole_file

BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
COLUMNS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact_match": "exact match"}
WORST, UNSEEN = "exact_match_", "exact_match_unseen_frame"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    readme = Path("README.md")
    text = readme.read_text(encoding="utf-8")
    with whole_file(readme) as temporary:
        temporary.write_text(filled(text, table(Path())), encoding="utf-8", newline="\n")


def filled(text: str, rows: str) -> str:
    """The README with these rows. Raises ValueError where it has no place for them."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md: the lines {BEGIN.strip()} and {END.strip()} are missing; git checkout README.md")
    return head + BEGIN + rows + END + tail


def table(root: Path) -> str:
    """The results in Markdown."""
    rows = json.loads((root / "recipes/results.json").read_text(encoding="utf-8"))
    head = ["recipe", "corpus", *COLUMNS.values(), "time, two cores without GPU"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        scores = row["scores"]
        if isinstance(scores, str):
            scores = json.loads((root / scores).read_text(encoding="utf-8"))
        changes = "".join(f", `{change}`" for change in row.get("changes", "").split(", ") if change)
        cells = [shown(name, scores) for name in COLUMNS]
        lines.append([f"`{row['recipe']}`{changes}", row["text"], *cells, row["time"]])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(name: str, scores: dict[str, float]) -> str:
    """A score with one decimal; exact match in percent, with its worst phenomenon."""
    if name not in scores:
        return ""
    if name != "exact_match":
        return f"{scores[name]:.1f}"
    phenomena = [value for key, value in scores.items() if key.startswith(WORST) and key != UNSEEN]
    worst = f" (worst phenomenon {min(phenomena):.1f}%, unseen frames {scores[UNSEEN]:.1f}%)" if phenomena else ""
    return f"{scores[name]:.1f}%{worst}"


if __name__ == "__main__":
    renamed("readme", main)
