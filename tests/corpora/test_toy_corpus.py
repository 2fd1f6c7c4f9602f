"""The built-in corpus: its bytes, its sizes, its splits, and the frames that only valid and test have."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from transformer.corpora.toy.grammar import PHENOMENA, Pair, toy_corpus

SHA256 = "a36faa84684149ba062ddc35b15dbfb8ace8669e595c3b318e25479432f08084"


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Pair]]:
    return toy_corpus()


def as_bytes(corpus: dict[str, list[Pair]]) -> bytes:
    rows = [(split, p.source, p.target, p.frame, *p.phenomena) for split, pairs in corpus.items() for p in pairs]
    return "".join("\t".join(row) + "\n" for row in rows).encode()


# What is in it


def test_the_splits_have_their_sizes_and_no_pair_twice(corpus):
    assert {split: len(pairs) for split, pairs in corpus.items()} == {"train": 20_000, "valid": 500, "test": 500}
    sources = [p.source for pairs in corpus.values() for p in pairs]
    assert len(set(sources)) == len(sources), "a source occurs twice: within a split, or in two splits"
    targets = {p.target for pairs in corpus.values() for p in pairs}
    assert len(targets) == len(sources), "two sources have one translation"


def test_it_is_the_same_to_the_byte_every_time(corpus):
    assert hashlib.sha256(as_bytes(corpus)).hexdigest() == SHA256


@pytest.mark.full
def test_it_does_not_depend_on_the_hash_seed_of_the_process():
    code = "from test_toy_corpus import *; print(hashlib.sha256(as_bytes(toy_corpus())).hexdigest())"
    here, root = Path(__file__).parent, Path(__file__).parents[2]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another than that of this process
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{here}{os.pathsep}{root}"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == SHA256


def test_sentences_are_short_and_punctuated(corpus):
    for p in (p for pairs in corpus.values() for p in pairs):
        assert 5 <= len(p.source.split()) <= 13
        assert p.source[0].isupper()
        assert p.target[0].isupper()
        assert p.source[-1] == p.target[-1] in ".?"
        assert re.fullmatch(r"[^ ]+( [^ ]+)*", p.source)
        assert re.fullmatch(r"[A-Za-z'-]+(,? [A-Za-z'-]+)*[.?]", p.target)


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_each_phenomenon_has_enough_sentences_to_be_measured(corpus, split, phenomenon):
    assert sum(phenomenon in p.phenomena for p in corpus[split]) >= 60


# New combinations of known parts


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_third_of_the_sentences_have_a_frame_never_seen_in_train(corpus, split):
    seen = {p.frame for p in corpus["train"]}
    assert 0.30 <= sum(p.frame not in seen for p in corpus[split]) / len(corpus[split]) <= 0.45


def test_every_two_parts_of_an_unseen_frame_are_frequent_in_train(corpus):
    def pairs_of(frame: str) -> list[tuple]:
        return list(combinations(enumerate(frame.split()), 2))

    met = Counter(two for p in corpus["train"] for two in pairs_of(p.frame))
    rare = {two: met[two] for p in corpus["test"] for two in pairs_of(p.frame) if met[two] < 50}
    assert not rare
