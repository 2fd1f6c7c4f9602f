"""The parts of the check of a GPU. Each returns plain numbers; `benchmarks.gpu` runs each in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.programs import synchronise, train_config
from transformer.decoding.beam_search import beam_search
from transformer.model.config import TransformerConfig
from transformer.model.transformer import Transformer
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import SPECIALS
from transformer.training.config import Precision
from transformer.training.distributed import World
from transformer.training.train_step import Trainer, seed_everything

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY = 32_000
DEVICE = torch.device("cuda")
DECODED_BATCHES = (1, 128, 512)  # sentences at a time
Rows = list[dict[str, Any]]


class Skipped(Exception):
    """Raised by a part that cannot run on this machine, with the reason."""


def needs(*modules: str) -> None:
    """Raise Skipped if a module is not installed."""
    for name in modules:
        if find_spec(name) is None:
            raise Skipped(f"the package {name} is not installed")


@contextmanager
def made_up_pairs(count: int = 100_000) -> Iterator[Path]:
    """A folder with ids and vocabulary: random subwords in pairs as long as those of WMT14 (mean 26, Zipf's law)."""
    chance = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lengths = np.clip(chance.lognormal(3.1, 0.65, (count, 2)), 1, 100).astype(int)
        lengths[:, 1] = np.clip(lengths[:, 0] * chance.normal(1.0, 0.15, count), 1, 100)

        def ids(length: int) -> list[int]:
            return np.minimum(chance.zipf(1.2, length) + 3, VOCABULARY - 1).tolist()

        rows = ((ids(s), ids(t), row) for row, (s, t) in enumerate(lengths, start=1))
        Pairs.save_rows(folder, "train", rows, VOCABULARY)
        words = [*SPECIALS, *(f"▁w{number}" for number in range(VOCABULARY - len(SPECIALS)))]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        yield folder


def tests() -> Rows:
    """The tests that are marked gpu."""
    needs("pytest", "hypothesis", "spacy", "subword_nmt")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests"], cwd=ROOT, capture_output=True, text=True
    )
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", done.stdout)}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return [counts | {"exit status": done.returncode, "failed tests": " ".join(failed)}]


def losses(updates: int = 20) -> Rows:
    """The losses of updates without dropout on this GPU, against those of a CPU in float64."""
    with made_up_pairs(2_000) as folder:
        expected = trained(folder, "float64", torch.device("cpu"), updates)
        rows = []
        for precision in ("float64", "float32", "bfloat16"):
            curve = trained(folder, precision, DEVICE, updates)
            worst = max(abs(a - b) / abs(b) for a, b in zip(curve, expected, strict=True))
            row = {"precision": precision, "updates": updates, "first loss": curve[0], "last loss": curve[-1]}
            rows.append(row | {"largest relative difference": worst})
        return rows


def trained(folder: Path, precision: Precision, device: torch.device, updates: int) -> list[float]:
    """The losses of updates of a small model without dropout, in nats per target token."""
    pairs = Pairs.load(folder, "train")
    seed_everything(1)
    model = Transformer(TransformerConfig(VOCABULARY, 101, 128, 512, 4, 2, 0.0, "pre", "sinusoidal", True))
    config = train_config(4000, 20, precision)
    trainer = Trainer(model, pairs, pairs, World(device=device), config)
    results = [trainer.update(step) for step in range(1, updates + 1)]
    return [float(result.loss) / result.tokens for result in results]


def speed(size: str, batch_tokens: int) -> Callable[[], Rows]:
    """The part that measures the training speed of a size, with and without compile, beside torch's own layers."""
    line = f"--size {size} --batch-tokens {batch_tokens} --rounds 3 --seconds 10 --programs ours compiled torch"
    return lambda: benchmark("train", *line.split())


def benchmark(module: str, *options: str) -> Rows:
    """The rows of another benchmark on this GPU."""
    needs("tqdm", "ruamel.yaml", "safetensors")
    with made_up_pairs() as folder, tempfile.TemporaryDirectory() as out:
        paths = ["--ids", str(folder), "--vocab", str(folder / "vocab.txt"), "--json", f"{out}/rows.json"]
        command = [sys.executable, "-m", f"benchmarks.{module}", "--device", DEVICE.type, *paths, *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().split("\n")[-1])
        return json.loads(Path(out, "rows.json").read_text(encoding="utf-8"))


@torch.inference_mode()
def decoding(seconds: float = 5.0) -> Rows:
    """Sentences per second of this project's search, base model with random weights, 30 subwords in and out."""
    chance, rows = np.random.default_rng(1), []
    model = Transformer(TransformerConfig(VOCABULARY, 512, 512, 2048, 8, 6)).eval().to(DEVICE)
    for precision, compute in (("float32", None), ("bfloat16", torch.bfloat16)):
        model.compute = compute
        for beam_size in (1, 4):
            for batch in DECODED_BATCHES:
                sentences = torch.from_numpy(chance.integers(4, VOCABULARY, (batch, 30))).to(DEVICE)
                search = partial(beam_search, [model], sentences, limits=torch.full((batch,), 30, device=DEVICE))
                search = partial(search, beam_size=beam_size, length_penalty=0.6, min_length=30)
                search()
                start, count = time.perf_counter(), 0
                while time.perf_counter() - start < seconds:
                    search()
                    count += batch
                synchronise(DEVICE)
                rate = count / (time.perf_counter() - start)
                rows.append({"precision": precision, "beam": beam_size, "batch": batch, "sentences/s": rate})
    return rows


def recipe(name: str) -> Callable[[], Rows]:
    """The part that runs `dvc repro` of a recipe on all GPUs, in a clone of the last commit."""

    def run() -> Rows:
        needs("dvc", "mlflow", "spacy", "sacrebleu")
        if name == "multi30k" and not os.environ.get("CORPUS_MIRROR"):
            raise Skipped("set CORPUS_MIRROR to a folder or address with the files of corpora/multi30k.json")
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "project"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True)
            shutil.copy(place / f"recipes/{name}.yaml", place / "params.yaml")
            start = time.perf_counter()
            done = subprocess.run(
                ["dvc", "repro"], cwd=place, env=os.environ | {"DEVICES": "gpu"}, capture_output=True, text=True
            )
            if done.returncode:
                raise RuntimeError((done.stderr or done.stdout).strip().split("\n")[-1])
            scores = json.loads((place / "reports/scores.json").read_text(encoding="utf-8"))
            row = {"recipe": name, "seconds": time.perf_counter() - start}
            return [row | {"BLEU on valid": scores["valid_bleu"], "BLEU on test": scores["bleu"]}]

    return run


PARTS: dict[str, Callable[[], Rows]] = {
    "tests": tests,
    "losses": losses,
    **{f"speed-{size}-{tokens}k": speed(size, 1000 * tokens) for size in ("base", "big") for tokens in (25, 100)},
    "decoding": decoding,
    "toy": recipe("toy"),
    "multi30k": recipe("multi30k"),
}
