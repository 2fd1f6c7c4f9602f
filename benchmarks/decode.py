"""Translation speed of this project and of CTranslate2, measured together on the same sentences.

All models have one shape and random weights. All translations have the same number of subwords: </s> is not allowed
before. Each program has its own process. The processes take turns, round after round; results are medians of rounds.

    python -m benchmarks.decode --beam-size 1 4 --batch 1 128 --json speed.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.decoders import KINDS, OFFERED
from benchmarks.processes import LOG, alternate, workers
from benchmarks.programs import SIZES
from benchmarks.table import rate, text_table
from pipeline.workflow.stage import require, run
from transformer.files import Mistake

COLUMNS = {
    "program": ("program", "{}"),
    "precision": ("precision", "{}"),
    "beam_size": ("beam", "{}"),
    "batch": ("batch", "{}"),
    "sentences_per_second": ("sentences/s", "{:,.1f}"),
    "tokens_per_second": ("target tokens/s", "{:,.0f}"),
    "ratio": ("ours is x times", "{:.2f}"),
}


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--text", type=Path, default=Path("data/raw/test.src"), metavar="PATH", help="lines to translate")
    add("--codes", type=Path, default=Path("data/bpe.codes"), metavar="PATH", help="merges")
    add("--vocab", type=Path, default=Path("data/vocab.txt"), metavar="PATH", help="vocabulary")
    add("--language", default="de", help="language of the lines")
    add("--size", choices=tuple(SIZES), default="tiny")
    add("--beam-size", type=int, nargs="+", default=[1, 4], metavar="N")
    add("--batch", type=int, nargs="+", default=[1, 128], metavar="N", help="sentences at a time")
    add("--steps", type=int, default=16, metavar="N", help="subwords of every translation")
    add("--programs", nargs="+", choices=tuple(KINDS), default=[*KINDS], help="default: both")
    add("--rounds", type=int, default=3, metavar="N")
    add("--seconds", type=float, default=5.0, metavar="S", help="length of a round; its last call is finished")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    return parser.parse_args()


def measure(asked: argparse.Namespace, beam_size: int, batch: int) -> list[dict]:
    """The rows of all programs at one beam size and batch size."""
    paths = {name: str(getattr(asked, name)) for name in ("text", "codes", "vocab")}
    plain = {name: getattr(asked, name) for name in ("language", "size", "steps", "device")}
    common = {"worker": "benchmarks.decode_worker", **paths, **plain, "beam_size": beam_size, "batch": batch}
    settings = [
        common | {"program": name, "precision": precision}
        for name in asked.programs
        for precision in OFFERED.get(name, ("float32",))
    ]
    with workers(settings) as started:
        alternate(started, asked.rounds, asked.seconds)
        kept = ("program", "precision", "size", "beam_size", "batch", "device")
        return [
            {key: worker.setting[key] for key in kept}
            | {
                "sentences_per_second": rate(worker.rounds, "sentences"),
                "tokens_per_second": rate(worker.rounds, "target_tokens"),
                "rounds": [counts["sentences"] / counts["seconds"] for counts in worker.rounds],
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
    asked = options()
    require(asked.text, asked.codes, asked.vocab)
    rows = [row for batch in asked.batch for beam in asked.beam_size for row in measure(asked, beam, batch)]
    if not rows:
        raise Mistake(f"no program could be measured; {LOG} has their errors")
    rows = with_ratios(rows)
    print(text_table(rows, COLUMNS))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
