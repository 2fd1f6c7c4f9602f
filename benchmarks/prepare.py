"""How long the stages before training take, and how much memory, on made-up corpora of 10 thousand pairs and more.

    python -m benchmarks.prepare --pairs 10000,100000,1000000 --json prepare.json
    python -m benchmarks.prepare --pairs 100000 --peers      # also subword-nmt's own commands

The corpus has 300,000 word types a side with the frequencies of Zipf's law, and 26 words a line. Each stage runs as
DVC runs it, in a folder of its own. Memory is the largest sum over the processes of a stage, shared pages counted once.
The start-up of a program is its time on 100 pairs, in one process; costs per pair and per word type are without it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from transformer.files import write_json

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("filter", "tokenise", "learn_bpe", "build_vocab", "encode")
TYPES, MERGES = 300_000, 32_000
START_UP_PAIRS = 100
LETTERS = np.array(list("etaoinshrdlucmfwypvbgkqjxz"))
PEERS = {
    "subword-nmt learn-joint-bpe-and-vocab": "subword-nmt learn-joint-bpe-and-vocab --input {src} {tgt} -s 32000 "
    "-o codes --write-vocabulary vocab.src vocab.tgt --num-workers {cores}",
    "subword-nmt apply-bpe": "subword-nmt apply-bpe -c codes --num-workers {cores} < {src} > bpe.src && "
    "subword-nmt apply-bpe -c codes --num-workers {cores} < {tgt} > bpe.tgt",
}


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", default="10000,100000", metavar="N,N,...", help="sizes of the corpus")
    parser.add_argument("--peers", action="store_true", help="also subword-nmt on the same text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    return parser.parse_args()


def word_types(seed: int) -> np.ndarray:
    """TYPES different words of 2 to 12 letters, the more frequent ones shorter."""
    chance, words = np.random.default_rng(seed), []
    known: set[str] = set()
    while len(words) < TYPES:
        length = 2 + int(chance.poisson(1 + 6 * min(1.0, len(words) / 5000)))
        word = "".join(LETTERS[np.minimum(chance.geometric(0.12, min(length, 12)) - 1, 25)])
        if word not in known:
            known.add(word)
            words.append(word)
    return np.array(words)


def write_corpus(folder: Path, pairs: int) -> None:
    """A corpus of so many training pairs, 1,000 to validate and 1,000 to test, in the form of the stage download."""
    folder.mkdir(parents=True)
    write_json(folder / "train.files.json", [])
    chance = np.random.default_rng(pairs)
    share = 1 / np.arange(1, TYPES + 1)
    sums = np.cumsum(share / share.sum())
    for seed, side in enumerate(("src", "tgt")):
        words = word_types(seed)
        for split, count in (("train", pairs), ("valid", 1000), ("test", 1000)):
            with open(folder / f"{split}.{side}", "w", encoding="utf-8", newline="\n") as file:
                for lengths in lines_of(chance, count):
                    drawn = words[np.searchsorted(sums, chance.random(int(lengths.sum())))].tolist()
                    start = 0
                    for length in lengths.tolist():
                        file.write(f"{' '.join(drawn[start : start + length])}.\n".capitalize())
                        start += length


def lines_of(chance: np.random.Generator, count: int) -> Iterator[np.ndarray]:
    """The numbers of words of `count` lines, in parts."""
    for start in range(0, count, 10_000):
        yield np.clip(chance.lognormal(3.1, 0.55, min(10_000, count - start)), 1, 80).astype(int)


def measured(command: list[str] | str, folder: Path) -> tuple[float, float]:
    """Seconds and peak MB of a command, or a line of the shell, and its processes."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "DVC_ROOT": str(folder)}
    start, most = time.perf_counter(), 0.0
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, shell=isinstance(command, str), stdout=log, stderr=log)
        while process.poll() is None:
            most = max(most, memory(process.pid))
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{command} failed: {(folder / 'log').read_text()[-500:]}")
    return time.perf_counter() - start, most


def memory(pid: int) -> float:
    """MB of a process and its children; a page that several have counts once."""
    try:
        process = psutil.Process(pid)
        both = [process, *process.children(recursive=True)]
        return sum(member.memory_full_info().pss for member in both) / 2**20
    except (psutil.NoSuchProcess, psutil.AccessDenied, AttributeError):
        return 0.0


def rows_of(pairs: int, peers: bool) -> Iterator[dict]:
    """A row for each stage, and for each other program."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder / "data/raw", pairs)
        recipe = (ROOT / "recipes/toy.yaml").read_text(encoding="utf-8")
        text = recipe.replace("bpe_merges: 2000", f"bpe_merges: {MERGES}")
        (folder / "params.yaml").write_text(text, encoding="utf-8")
        for copied in ("dvc.yaml", "versions.yaml"):
            (folder / copied).write_text((ROOT / copied).read_text(encoding="utf-8"), encoding="utf-8")
        for stage in STAGES:
            seconds, megabytes = measured([sys.executable, "-m", f"pipeline.{stage}"], folder)
            yield {"pairs": pairs, "program": stage, "seconds": seconds, "memory_mb": megabytes, "types": types(folder)}
        for program, command in PEERS.items() if peers else ():
            line = command.format(src="data/raw/train.src", tgt="data/raw/train.tgt", cores=os.cpu_count())
            seconds, megabytes = measured(line, folder)
            yield {"pairs": pairs, "program": program, "seconds": seconds, "memory_mb": megabytes, "types": 0}


def types(folder: Path) -> int:
    """The number of word types that tokenise counted; 0 before it."""
    counts = folder / "data/tokens/counts.txt"
    return counts.read_bytes().count(b"\n") if counts.is_file() else 0


def main() -> None:
    asked, rows = options(), []
    start_up = {row["program"]: row["seconds"] for row in rows_of(START_UP_PAIRS, asked.peers)}
    print(f"{'pairs':>9}  {'program':40} {'seconds':>8} {'MB':>7} {'us/pair':>8} {'us/type':>8}")
    for pairs in map(int, asked.pairs.split(",")):
        for row in rows_of(pairs, asked.peers):
            cost = 1e6 * (row["seconds"] - start_up[row["program"]])
            row |= {"us_per_pair": cost / pairs, "us_per_type": cost / row["types"] if row["types"] else 0.0}
            rows.append(row)
            print(
                f"{pairs:>9,}  {row['program']:40} {row['seconds']:>8.1f} {row['memory_mb']:>7.0f} "
                f"{row['us_per_pair']:>8.1f} {row['us_per_type']:>8.1f}",
                flush=True,
            )
    if asked.json:
        write_json(asked.json, {"cores": os.cpu_count(), "rows": rows})


if __name__ == "__main__":
    main()
