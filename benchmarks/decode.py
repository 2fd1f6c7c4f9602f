"""Translation speed of this project and of other programs, measured together on the same sentences.

All models have one shape and random weights. All translations have the same number of subwords: </s> is not allowed
before. Each program has its own process. The processes take turns, round after round; results are medians of rounds.

    python -m benchmarks.decode --beam-size 1,4 --batch 1,128 --json speed.json

With --model FOLDER, a trained model is measured: the engine ctranslate2 of the stage translate, from text to text,
against direct calls of CTranslate2 on subwords.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

from benchmarks.decoders import KINDS, OFFERED, PLACES
from benchmarks.engine import engine_rows
from benchmarks.flops import SIZES
from benchmarks.processes import alternate, workers
from benchmarks.table import rate, text_table
from pipeline.stage import require, run

COLUMNS = {
    "program": ("program", "{}"),
    "precision": ("precision", "{}"),
    "beam_size": ("beam", "{}"),
    "batch": ("batch", "{}"),
    "sentences_per_second": ("sentences/s", "{:,.1f}"),
    "tokens_per_second": ("target tokens/s", "{:,.0f}"),
    "ratio": ("ours is x times", "{:.2f}"),
}


def numbers(text: str) -> list[int]:
    """The numbers of an option: 1,4 -> [1, 4]."""
    return [int(part) for part in text.split(",")]


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--text", type=Path, default=Path("data/raw/test.src"), metavar="PATH", help="lines to translate")
    add("--codes", type=Path, default=Path("data/bpe.codes"), metavar="PATH", help="merges")
    add("--vocab", type=Path, default=Path("data/vocab.txt"), metavar="PATH", help="vocabulary")
    add("--language", default="de", help="language of the lines")
    add("--size", choices=tuple(SIZES), default="tiny")
    add("--beam-size", type=numbers, default=[1, 4], metavar="N,N")
    add("--batch", type=numbers, default=[1, 128], metavar="N,N", help="sentences at a time")
    add("--steps", type=int, default=16, metavar="N", help="subwords of every translation")
    add("--programs", metavar="A,B", help=f"some of {', '.join(KINDS)}; default: all that are installed")
    add("--rounds", type=int, default=3, metavar="N")
    add("--seconds", type=float, default=5.0, metavar="S", help="length of a round; its last call is finished")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--model", type=Path, metavar="FOLDER", help="a trained model: measure the engine against bare CTranslate2")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    return parser.parse_args()


def chosen(given: argparse.Namespace) -> list[str]:
    """The programs to measure. Raises ValueError if --programs names one that is unknown or not installed."""
    missing = [name for name, module in PLACES.items() if find_spec(module) is None]
    names = given.programs.split(",") if given.programs else [name for name in KINDS if name not in missing]
    for name in names:
        if name not in KINDS:
            raise ValueError(f"--programs: {name!r} is not one of {', '.join(KINDS)}")
        if name in missing:
            raise ValueError(f"{name} is not installed; run `make bench-setup`")
    return names


def measure(given: argparse.Namespace, names: list[str], beam_size: int, batch: int) -> list[dict]:
    """The rows of all programs at one beam size and batch size."""
    common = {
        "worker": "benchmarks.decode_worker",
        "text": str(given.text),
        "codes": str(given.codes),
        "vocab": str(given.vocab),
        "language": given.language,
        "size": given.size,
        "steps": given.steps,
        "device": given.device,
        "beam_size": beam_size,
        "batch": batch,
    }
    settings = [
        common | {"program": name, "precision": precision}
        for name in names
        for precision in OFFERED.get(name, ("float32",))
    ]
    with workers(settings) as started:
        alternate(started, given.rounds, given.seconds)
        kept = ("program", "precision", "size", "beam_size", "batch", "device")
        return [
            {key: worker.setting[key] for key in kept}
            | {
                "sentences_per_second": rate(worker.rounds, "sentences"),
                "tokens_per_second": rate(worker.rounds, "target_tokens"),
                "rounds": [one["sentences"] / one["seconds"] for one in worker.rounds],
            }
            for worker in started
        ]


def with_ratios(rows: list[dict]) -> list[dict]:
    """The rows with a ratio: how many times as fast this project's decoder is at the same beam and batch size."""
    ours = {(row["beam_size"], row["batch"]): row["tokens_per_second"] for row in rows if row["program"] == "ours"}
    done = []
    for row in rows:
        reference = ours.get((row["beam_size"], row["batch"]))
        done.append(row | {"ratio": reference / row["tokens_per_second"] if reference else None})
    return done


def main() -> None:
    given = options()
    require(given.text, *([given.model] if given.model else [given.codes, given.vocab]))
    if given.model:
        rows = engine_rows(given.model, given.text, given.beam_size, given.rounds)
    else:
        names = chosen(given)
        rows = [row for batch in given.batch for beam in given.beam_size for row in measure(given, names, beam, batch)]
        rows = with_ratios(rows)
    if not rows:
        raise ValueError("no program could be measured; set TRACEBACK=1 to see their errors")
    print(text_table(rows, {key: form for key, form in COLUMNS.items() if key in rows[0]}))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
