"""How far two results of one configuration may differ: a tolerance and a verdict for each out.

What is made before any floating point, counts and signatures must be equal. Losses may differ by LOSS of their value (a
curve by the mean over its rows), BLEU, chrF and TER by POINTS, exact match by MATCHES of its sentences, at least two.
Weights are judged by the losses, translations by their scores; what follows from both, by both.

Another processor, or another number of threads, rounds sums differently, so the weights differ: by SPREAD on the toy
recipe. There the tolerances are WIDER. The number of tokens may differ if data/back does.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import pandas as pd

from pipeline.workflow.dvc_lock import Result
from transformer.files import read_lines

LOSS, POINTS, MATCHES = 0.02, 0.5, 0.02
WIDER = 2.5  # times LOSS, POINTS and MATCHES, where the processor or the number of threads differs
SPREAD = "losses 3.3%, exact match 1.6%, BLEU 0.5"  # measured (docs/results.md)
FACTS = "reports/environment.json"
TRAINING, CURVE, SCORES, ENGINES = (
    f"reports/{name}" for name in ("training.json", "training.csv", "scores.json", "engines.json")
)
ALL = ("losses", "valid", "test")
# By what each out is judged; an out that is not named must be equal.
RULES = {
    "data/back": ALL,
    "data/checkpoints": ("losses",),
    TRAINING: ("losses",),
    CURVE: ("losses",),
    "reports/samples.csv": ("losses",),
    "data/model": ("losses",),
    "reports/average.json": ("losses",),
    "data/ct2": ("losses",),
    "data/hypotheses": ("valid", "test"),
    SCORES: ("valid", "test"),
    "reports/curves.svg": ALL,
    "reports/report.html": ALL,
    "reports/charts": ALL,
    "reports/translations.csv": ("test",),
    "data/attention.json": ALL,
    "reports/attention.png": ALL,
    "reports/attention.svg": ALL,
    ENGINES: ("engines",),
    "data/run.json": ALL,
}
# Outs whose lines are compared.
TEXTS = ("data/hypotheses", "data/back", "reports/samples.csv")


class Difference(NamedTuple):
    """A number that differs. share: of its tolerance; more than 1 is beyond it, and infinite where there is none."""

    name: str
    change: str
    share: float


def difference(name: str, before: Mapping[str, float], after: Mapping[str, float], tolerance: float) -> Difference:
    """The difference in one number, with an absolute tolerance. A number that is missing or nan is beyond it."""
    old, new = before.get(name, math.nan), after.get(name, math.nan)
    if not tolerance or not math.isfinite(new - old):
        return Difference(name, f"{old:g} -> {new:g}", 0.0 if old == new else math.inf)
    rounded = 1e-6  # scores are rounded to four digits, so two shares of the same sentences may differ by as much
    return Difference(name, f"{new - old:+.3g} (tolerance {tolerance:.3g})", abs(new - old) / (tolerance + rounded))


class Agreement:
    """How far the results `new` are from the results `recorded` of the same configuration.

    like: whether both were trained on the same kind of processor in as many threads.
    """

    def __init__(self, recorded: Result, new: Result, like: bool = True):
        self.recorded, self.new = recorded, new
        wider = 1 if like else WIDER
        self.loss, self.points, self.matches = wider * LOSS, wider * POINTS, wider * MATCHES

    def table(self) -> pd.DataFrame:
        """A row for each recorded out: stage, out, both hashes, tolerance, the largest difference, verdict."""
        new = self.new.outs
        rows: list[dict[str, str]] = []
        for stage, entry in self.recorded.lock.items():
            for out in entry.get("outs", []):
                if (path := out["path"]) != FACTS:  # printed separately
                    md5 = new.get(path, "missing")
                    change, verdict = ("", "identical") if md5 == out["md5"] else self.judge(path, md5)
                    hashes = {"recorded": out["md5"][:10], "new": md5[:10]}
                    judged = {"tolerance": self.tolerance(path), "difference": change, "verdict": verdict}
                    rows.append({"stage": stage, "out": path, **hashes, **judged})
        return pd.DataFrame(rows)

    def judge(self, path: str, md5: str) -> tuple[str, str]:
        """The largest difference and the verdict of an out that is not identical."""
        if md5 == "missing" or path not in RULES:
            return "", "different"
        worst = max((number for rule in RULES[path] for number in self.numbers[rule]), key=lambda number: number.share)
        lines = [self.equal_lines(path)] if path in TEXTS else []
        changed = [f"{worst.name} {worst.change}"] if worst.share else []
        return "; ".join(lines + changed), "within tolerance" if worst.share <= 1 else "different"

    @cached_property
    def numbers(self) -> dict[str, list[Difference]]:
        """The differences by which outs are judged: name of a rule -> differences."""
        scores = self.scores()
        return {
            "losses": self.losses(),
            "valid": [number for number in scores if number.name == "valid_bleu"],
            "test": [number for number in scores if number.name != "valid_bleu"],
            "engines": self.engines(),
        }

    def losses(self) -> list[Difference]:
        """Of reports/training.json and the curve: losses, and the numbers of updates and tokens."""
        old, new = self.report(TRAINING)
        tolerances = {name: self.loss * abs(old[name]) for name in old if name.endswith("loss")} | {"steps": 0.0}
        # Text that is translated back has its own length. Perplexities and the best step follow from the losses.
        same_text = self.recorded.outs.get("data/back") == self.new.outs.get("data/back")
        tolerances["target_tokens"] = 0.0 if same_text else self.loss * old["target_tokens"]
        numbers = [difference(name, old, new, tolerance) for name, tolerance in tolerances.items()]
        return numbers + list(curves(self.recorded.text(CURVE), self.new.text(CURVE), self.loss))

    def scores(self) -> list[Difference]:
        """Of the scores on the validation set (valid_bleu) and the test sets."""
        old, new = self.report(SCORES)
        labels = self.raw("test.labels")
        counts = Counter(f"exact_match_{label}" for line in labels for label in set(line.split()))
        counts["exact_match"] = int(old["sentences"])
        tolerances = dict.fromkeys(old | new, self.points) | {"sentences": 0.0}
        tolerances |= {name: self.share(counts[name]) for name in old if name.startswith("exact_match")}
        return [difference(name, old, new, tolerance) for name, tolerance in tolerances.items()]

    def engines(self) -> list[Difference]:
        """Of reports/engines.json: BLEU of each engine, and the share of lines that it translates as torch does."""
        if not all(ENGINES in results.outs for results in (self.recorded, self.new)):
            return []
        old, new = self.report(ENGINES)
        lines = len(self.raw("valid.src")) or 100
        tolerances = {name: self.share(lines) if "identical" in name else self.points for name in old | new}
        tolerances.pop("engines_agree", None)  # it follows from the shares
        return [difference(name, old, new, tolerance) for name, tolerance in tolerances.items()]

    def share(self, lines: int) -> float:
        """The tolerance in percent of a share of so many lines."""
        return 100 * max(self.matches, 2 / max(lines, 2))

    def raw(self, name: str) -> list[str]:
        """The lines of a file of the corpus; none if there is no such file."""
        files = self.new.folder("data/raw")
        return list(read_lines(files[name])) if name in files else []

    def report(self, path: str) -> tuple[dict[str, float], dict[str, float]]:
        """The recorded and the new numbers of a report in JSON."""
        return json.loads(self.recorded.text(path)), json.loads(self.new.text(path))

    def equal_lines(self, path: str) -> str:
        """The share of equal lines in an out with text, in words."""
        paths = [path]
        if path == "data/back":
            paths = ["data/back/train.src"]
        elif path == "data/hypotheses":
            paths = [self.new.hypotheses(name) for name in ("valid", *self.new.params.test_sets.split())]
        try:
            old, new = (
                [line for name in paths for line in results.lines(name)] for results in (self.recorded, self.new)
            )
        except (ValueError, KeyError):
            return "lines not compared (the recorded ones are not in DVC's cache)"
        return f"{100 * sum(map(str.__eq__, old, new)) / max(len(old), len(new), 1):.1f}% of lines equal"

    def tolerance(self, path: str) -> str:
        """The tolerance of an out, in words."""
        scores = f"scores {self.points}, exact match {self.matches:.0%}"
        words = {
            "": "equal",
            "losses": f"losses {self.loss:.0%}",
            "valid": scores,
            "test": scores,
            "engines": f"BLEU {self.points}, identical lines {self.matches:.0%}",
        }
        return ", ".join(dict.fromkeys(words[rule] for rule in RULES.get(path, ("",))))


def relative(old: float, new: float) -> float:
    """The difference of two numbers as a share of the first, which may be 0."""
    if old == new:
        return 0.0
    return abs(new - old) / abs(old) if old else math.inf


def curves(old: str, new: str, tolerance: float) -> Iterator[Difference]:
    """The differences between two curves in CSV: losses by their mean relative difference, other columns exactly."""
    before, after = (pd.read_csv(io.StringIO(text)) for text in (old, new))
    if list(before.columns) != list(after.columns) or len(before) != len(after):
        yield Difference("curve", f"{before.shape} -> {after.shape} rows and columns", math.inf)
        return
    for name in before.columns:
        if name.endswith("loss") and list(before[name].isna()) == list(after[name].isna()):
            pairs = zip(before[name].dropna(), after[name].dropna(), strict=True)
            spread = [relative(old, new) for old, new in pairs] or [0.0]
            mean = sum(spread) / len(spread)
            beyond = mean / tolerance if math.isfinite(mean) else math.inf
            yield Difference(f"curve of {name}", f"{mean:.2%} (tolerance {tolerance:.0%})", beyond)
        elif not before[name].equals(after[name]):
            yield Difference(f"curve of {name}", "differs", math.inf)
