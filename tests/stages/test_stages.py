"""Stages run one by one on a small corpus: warm starts, averages, messages, mistakes of the user."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.projects import SPLITS, finished_project, params_file
from support.stages import message_of, training_place
from support.tiny import model_folder, stage

from pipeline.train import overfitting_remark
from transformer.files import read_lines, sha256
from transformer.inference.translation import SentencePair, Translation
from transformer.model.cpu import multiplies_bfloat16
from transformer.text.marks import SPACE
from transformer.text.placeholders import NUMBERS
from transformer.text.word_counts import SeenWords


@pytest.fixture(scope="module")
def project(shared_folder) -> Path:
    """A small project that was run once, which no test here changes."""
    return finished_project(shared_folder)


def test_text_is_normalised_and_only_the_source_lower_cased(tmp_path):
    (tmp_path / "data/raw").mkdir(parents=True)
    for split in SPLITS:
        for side in ("src", "tgt"):
            (tmp_path / f"data/raw/{split}.{side}").write_text("Ein Hu\u00adnd fu\u0308r\ufeff.\n", encoding="utf-8")
    (tmp_path / "data/raw/train.files.json").write_text("[]")
    params_file(tmp_path, lowercase_source=True)
    assert stage("filter", tmp_path).returncode == 0
    assert stage("tokenise", tmp_path).returncode == 0
    assert list(read_lines(tmp_path / "data/tokens/valid.src")) == ["▁ein ▁hund ▁für ."]
    assert list(read_lines(tmp_path / "data/tokens/valid.tgt")) == ["▁Ein ▁Hund ▁für ."]
    assert list(read_lines(tmp_path / "data/tokens/words.txt")) == [". 1", "ein 1", "für 1", "hund 1"]
    assert list(read_lines(tmp_path / "data/filtered/train.src")) == ["Ein Hu\u00adnd fu\u0308r\ufeff."]
    params_file(tmp_path, normalise="none")
    assert stage("tokenise", tmp_path).returncode == 0
    assert "hu\u00adnd" in (tmp_path / "data/tokens/valid.src").read_text().lower()


def test_placeholders_of_both_sides_are_numbers_from_tokens_to_vocabulary(tmp_path):
    (tmp_path / "data/raw").mkdir(parents=True)
    for split in SPLITS:
        (tmp_path / f"data/raw/{split}.src").write_text("{Name} hat %s\nnur {hier}\n")
        (tmp_path / f"data/raw/{split}.tgt").write_text("%s has {Name}\nonly\n")
    (tmp_path / "data/raw/train.files.json").write_text("[]")
    params_file(tmp_path, placeholders=True, min_count=2)
    for name in ("filter", "tokenise", "learn_bpe", "build_vocab", "encode"):
        assert stage(name, tmp_path).stderr == ""
    for split in ("train", "valid"):
        assert next(read_lines(tmp_path / f"data/tokens/{split}.src")) == "▁ ① ▁hat ▁ ②"
        assert next(read_lines(tmp_path / f"data/tokens/{split}.tgt")) == "▁ ② ▁has ▁ ①"
    assert [*read_lines(tmp_path / "data/tokens/train.src")][1] == "▁nur ▁{ hier }"
    assert not set(NUMBERS) & set((tmp_path / "data/bpe.codes").read_text())
    assert {*NUMBERS, SPACE} <= set(read_lines(tmp_path / "data/vocab.txt"))
    assert [*read_lines(tmp_path / "data/ids/valid.target.txt")] == ["② has ①", "only"]
    assert json.loads((tmp_path / "data/ids/corpus.json").read_text())["placeholders"] is True
    assert json.loads((tmp_path / "data/filtered/filter.json").read_text())["odd"]["placeholders"]["pairs"] == 1
    params_file(tmp_path, placeholders=True, init_from=str(model_folder(tmp_path / "model")))
    assert "model was trained with placeholders=false. Set it here too." in stage("build_vocab", tmp_path).stderr


def test_encode_says_that_the_vocabulary_is_of_another_text(project, place):
    for name in ("tokens", "raw", "filtered"):
        shutil.copytree(project / "data" / name, place / "data" / name)
    shutil.copy(project / "data/bpe.codes", place / "data/bpe.codes")
    assert "are not in" not in stage("encode", place).stdout
    (place / "data/vocab.txt").write_text("<pad>\n<unk>\n<s>\n</s>\n.\n")
    done = stage("encode", place)
    assert re.search(r"^[78]\d\.\d% of the source subwords of train are not in data/vocab\.txt, so", done.stdout, re.M)


def test_the_page_of_a_corpus_is_there_before_training(project, place):
    for name in ("filtered", "subwords.json"):
        (shutil.copytree if name == "filtered" else shutil.copy)(project / "data" / name, place / "data" / name)
    assert stage("inspect", place).stdout == "written to reports/data.html\n"
    page = (place / "reports/data.html").read_text(encoding="utf-8")
    assert page == (project / "reports/data.html").read_text(encoding="utf-8")
    assert "<h1>Corpus <span>own, de to en</span></h1>" in page
    assert page.count('<td data-label="source"') == 10
    line = next(read_lines(project / "data/raw/train.src"))
    assert f'<td data-label="line">1</td><td></td>\n<td data-label="source" dir="auto">{line}</td>' in page


@pytest.mark.parametrize(("last", "said"), [(2.5, True), (2.3, False), (2.0, False)])
def test_train_says_when_it_learned_the_text_by_heart(last, said):
    remark = overfitting_remark({"valid_loss": last, "best_valid_loss": 2.0})
    assert ("rose from 2.00 to 2.50" in remark) == said == bool(remark)


def first_loss(folder: Path) -> float:
    """The training loss in the first row of training.csv."""
    with open(folder / "reports/training.csv") as file:
        return float(next(csv.DictReader(file))["train_loss"])


@pytest.mark.full
def test_a_training_can_start_from_a_model_folder(project, place):
    model = project / "data/model"
    params_file(place, init_from=str(model), bpe_merges=3)
    shutil.copytree(project / "data/tokens", place / "data/tokens")
    for name in ("learn_bpe", "build_vocab"):
        assert f"taken over from {model}" in stage(name, place).stdout
    assert (place / "data/bpe.codes").read_bytes() == (model / "bpe.codes").read_bytes()
    assert (place / "data/vocab.txt").read_bytes() == (model / "vocab.txt").read_bytes()
    assert stage("train", place).returncode == 0
    assert first_loss(place) < first_loss(project)
    (folder,) = place.glob("work/train-*")
    (cold,) = project.glob("work/train-*")
    assert folder.name != cold.name  # another initial model makes another training


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "vocabulary", "message"),
    [
        ({"d_ff": 64}, None, "has d_ff=32, this training has d_ff=64. Training did not start. Make them equal"),
        ({"key_size": 3}, None, "has key_size=8, this training has key_size=3. Training did not start"),
        ({}, "<pad>", "has another vocabulary than data/vocab.txt"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(project, place, changes, vocabulary, message):
    params_file(place, **{"init_from": str(project / "data/model"), **changes})
    if vocabulary:
        text = (place / "data/vocab.txt").read_text(encoding="utf-8").split("\n")
        text[-2] = "another"
        (place / "data/vocab.txt").write_text("\n".join(text), encoding="utf-8")
    done = stage("train", place)
    assert done.returncode == 1
    assert done.stderr.startswith("error: init_from=")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (place / "work").exists()


@pytest.mark.full
def test_the_model_is_the_mean_of_the_chosen_checkpoints(project, place):
    params_file(place, best_by="bleu", keep=3, average_last=2)
    shutil.copytree(project / "data/tokens", place / "data/tokens")
    assert stage("train", place).returncode == 0
    for name in ("bpe.codes", "vocab.txt"):
        shutil.copy(project / f"data/{name}", place / "data" / name)
    record = json.loads((place / "data/checkpoints/checkpoints.json").read_text())
    assert sorted(record["scores"]) == ["12", "4", "8"]
    best = sorted(map(int, record["scores"]), key=lambda step: (record["scores"][str(step)], step))[:2]
    weights, updates = {}, ", ".join(map(str, sorted(best)))
    messages = {
        "last": "The model is the mean of updates 8, 12.",
        "best": f"The model is the mean of updates {updates}.",
    }
    for average, message in messages.items():
        params_file(place, best_by="bleu", keep=3, average_last=2, average=average)
        assert message in stage("average", place).stdout
        weights[average] = sha256(place / "data/averaged/weights.safetensors")
    spoilt = place / "data/checkpoints/00000004.safetensors"
    save_file({name: 0 * weight + 1 for name, weight in load_file(spoilt).items()}, spoilt)
    losses = {}
    for average in ("last", "valid"):
        params_file(place, best_by="bleu", keep=3, average_last=3, average=average)
        printed = stage("average", place).stdout
        losses[average] = json.loads((place / "reports/average.json").read_text())
        assert f"Its validation loss is {losses[average]['averaged_valid_loss']:.4f} nats per subword" in printed
        assert ("Averaging makes this model worse. Set average=valid.\n" in printed) == (average == "last")
    curve = (place / "reports/training.csv").read_text().splitlines()
    last = float(curve[-1].split(",")[curve[0].split(",").index("valid_loss")])
    assert losses["last"]["averaged"] == 3 > losses["valid"]["averaged"]
    assert losses["last"]["last_checkpoint_valid_loss"] == pytest.approx(last, abs=1e-5)
    assert losses["valid"]["averaged_valid_loss"] <= last + 1e-5 < losses["last"]["averaged_valid_loss"]


@pytest.mark.full
def test_the_log_shows_progress_precision_and_a_long_warmup(project, place):
    params_file(place, precision="bfloat16", warmup=1200)
    done = stage("train", place)
    message = "This machine has no instructions for bfloat16. Training computes in float32, which is faster here."
    assert (message in done.stderr) == (not multiplies_bfloat16(torch.device("cpu")))
    pattern = r"update 8 of 12 · loss \d\.\d+ · rate \d\.\d+e-\d+ · [\d,]+ tokens/s · valid \d\.\d+ · 0:00:\d\d left"
    assert re.search(pattern, done.stdout), done.stdout
    assert "warmup=1200 is longer than max_steps=12" in done.stderr
    assert "at 1% of its peak" in done.stderr


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("learn_bpe", {"init_from": "nowhere"}, "init_from=nowhere is not a model folder: it has no model.json"),
        ("train", {"warmup": 0}, "warmup=0 must be greater than or equal to 1"),
        (
            "download",
            {"corpus": "toy"},
            "corpus=toy is neither a folder with the files of train, valid and the test sets, nor ",
        ),
        ("download", {"source": "en"}, "source and target are both en"),
        ("filter", {}, "data/raw/train.src is missing. Run `dvc repro`, which makes it."),
        ("tokenise", {}, "data/filtered/train.src is missing"),
        ("average", {}, "data/checkpoints is missing"),
        ("translate", {}, "data/averaged is missing"),
        ("attention", {}, "data/averaged is missing. Run `dvc repro`, which makes it."),
    ],
)
def test_a_mistake_ends_in_one_line_and_leaves_nothing(tmp_path, monkeypatch, name, changes, message):
    params_file(tmp_path, **changes)
    for path in ("data/ids", "data/vocab.txt", "data/tokens") if name in ("train", "learn_bpe") else ():
        (tmp_path / path).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    assert message in message_of(import_module(f"pipeline.{name}").main)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.full
def test_devices_without_work_are_warned_of_at_the_start(project, tmp_path):
    place = training_place(project, tmp_path / "place", batch_tokens=256, device_tokens=256)
    done = stage("train", place, env={"DEVICES": "2"})
    assert done.returncode == 0, done.stderr
    assert "of 2 processes have nothing to compute in an update: device_tokens=256 cuts" in done.stdout + done.stderr


def test_translate_holds_a_limited_number_of_lines(monkeypatch, tmp_path):
    """Hypotheses of a large test set are written as they come."""
    calls: list[int] = []

    def copy(lines: list[str], *_: object, **settings: object) -> list[list[SentencePair]]:
        calls.append(len(lines))
        return [[SentencePair(line, Translation(line, 0.0, 0.0, ()))] for line in lines]

    subwords = lambda lines: [line.split() for line in lines]  # noqa: E731
    seen = SeenWords(None)
    made = {"translate_sentences": copy, "translate": lambda lines, *_, **how: lines}
    translator = SimpleNamespace(**made, subwords=subwords, seen_words=seen)
    monkeypatch.setattr("pipeline.translate.Translator.load", lambda folder, engine: translator)
    monkeypatch.setattr("pipeline.translate.CHUNK_LINES", 5)
    (tmp_path / "data/raw").mkdir(parents=True)
    (tmp_path / "data/averaged").mkdir()
    for split in ("valid", "test"):
        (tmp_path / f"data/raw/{split}.src").write_text("".join(f"line {n}\n" for n in range(12)))
    params_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["translate"])
    import_module("pipeline.translate").main()
    assert calls == [5, 5, 2, 5, 5, 2]
    assert len(list(read_lines(tmp_path / "data/hypotheses/test.hyp"))) == 12
