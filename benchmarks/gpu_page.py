"""The results of the check of a GPU as a page, docs/gpu.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = """# GPU

```sh
make gpu-check                               # measures a CUDA device and writes this page
make gpu-check PARTS="losses profile"        # some parts; the results of the others stay
python -m benchmarks.gpu --page docs/gpu.md  # the same where only torch, numpy and safetensors are installed
```

Each part takes at most 8 minutes. The numbers are in [gpu.json](gpu.json). The aims on one H200: 40% of the matrix rate
on the base model, and 700,000 target tokens per second; they have not been measured yet.
"""
TITLES = {
    "tests": "Tests marked gpu",
    "losses": "Losses of 20 updates without dropout, against a CPU in float64",
    "speed": "Training speed, {} model, {} tokens an update, beside torch's own layers",
    "profile": "Where the time of an update of the base model goes, 25,000 tokens",
    "decoding": "Translating, base model, 30 subwords a sentence",
    "toy": "`dvc repro` of the toy recipe",
    "multi30k": "`dvc repro` of the recipe multi30k",
}
LEFT_OUT = ("device", "rounds")  # columns that are the same in all rows, or too long
MOST_ROWS = {"profile": 6}  # of a part, on the page


def page(results: Mapping[str, dict], parts: Sequence[str]) -> str:
    """The page of the outcomes of parts: part -> rows, skipped or failed, with machine and seconds."""
    sections = [HEAD]
    missing: dict[str, list[str]] = {}
    for part in parts:
        outcome = results.get(part, {"skipped": "it was not run"})
        if "rows" in outcome:
            sections.append(f"## {title(part)}\n\n{body(outcome, MOST_ROWS.get(part))}")
        else:
            reason = next(f"{how}, because {outcome[how]}" for how in ("failed", "skipped") if how in outcome)
            missing.setdefault(reason, []).append(part)
    if missing:
        lines = [f"- {reason}: {', '.join(names)}" for reason, names in missing.items()]
        sections.append("## Not measured\n\n" + "\n".join(lines))
    return "\n".join(section.rstrip() + "\n" for section in sections)


def title(part: str) -> str:
    """The heading of a part."""
    kind, *rest = part.split("-")
    return TITLES[kind].format(*(f"{word[:-1]},000" if word[:-1].isdigit() else word for word in rest))


def body(outcome: Mapping[str, Any], most: int | None) -> str:
    """The text under a heading: a table of at most `most` rows, and what it was measured on."""
    machine = ", ".join(f"{name} {value}" if name != "device" else value for name, value in outcome["machine"].items())
    return f"{table(outcome['rows'][:most])}\n{machine}. The part took {outcome['seconds']} s.\n"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table."""
    names = [name for name in dict.fromkeys(key for row in rows for key in row) if name not in LEFT_OUT]
    lines = [f"| {' | '.join(name.replace('_', ' ') for name in names)} |", f"| {' | '.join('---' for _ in names)} |"]
    lines += [f"| {' | '.join(shown(name, row.get(name)) for name in names)} |" for row in rows]
    return "\n".join(lines) + "\n"


def shown(name: str, value: Any) -> str:
    """A number as a person reads it."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if "share" in name:
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
