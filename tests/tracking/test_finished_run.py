"""What a finished run contains is read from files that git and DVC hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.tiny import ROOT

from pipeline.tracking import content as content
from pipeline.workflow.dvc_lock import Result
from transformer.files import write_json

LOCK = """
stages:
  retired:
    params: {params.yaml: {warmup: 7}}
    outs: [{path: data/model}]
  train:
    deps: [{path: data/ids}]
    params: {params.yaml: {warmup: 100, dropout: 0.25}}
    outs: [{path: data/checkpoints}]
  average:
    deps: [{path: data/checkpoints}]
    outs: [{path: data/model}]
  compare_engines:
    deps: [{path: data/model}]
    params: {params.yaml: {length_penalty: 9.0}}
    outs: [{path: reports/engines.json}]
  record:
    deps: [{path: data/model}]
    params: {params.yaml: {beam_size: 63}}
    outs: [{path: data/run.json}]
"""


@pytest.fixture
def results(tmp_path: Path) -> Result:
    """A work tree in which params.yaml was edited after train had run, and a stage of the past is in dvc.lock."""
    (tmp_path / "dvc.lock").write_text(LOCK)
    (tmp_path / "dvc.yaml").write_text("stages: {train: , average: , compare_engines: , record: }")
    (tmp_path / "params.yaml").write_text((ROOT / "recipes/toy.yaml").read_text(encoding="utf-8"))
    return Result(root=tmp_path)


def test_params_are_those_that_the_stages_ran_with(results):
    params, toy = content.recorded_params(results), vars(results.params)
    assert (params["warmup"], params["dropout"]) == (100, 0.25)
    assert (params["beam_size"], params["length_penalty"]) == (toy["beam_size"], toy["length_penalty"])


def test_the_code_and_data_of_a_run_are_those_of_dvc_lock(results, tmp_path):
    hashes = content.stage_hashes(results)
    assert hashes.keys() == {"dvc_train", "dvc_average"}
    (tmp_path / "dvc.lock").write_text(LOCK.replace("data/ids", "data/other").replace("9.0", "8.0"))
    changed = content.stage_hashes(results)
    assert (changed["dvc_train"] != hashes["dvc_train"], changed["dvc_average"]) == (True, hashes["dvc_average"])


def test_the_curve_of_the_model_that_translates_back_is_added(results, tmp_path):
    for path in ("reports/training.csv", content.BACK):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("step,train_loss,valid_loss\n10,2.5,\n20,2.0,1.5\n")
    assert content.curve(results) == [
        {"step": 10, "train_loss": 2.5, "valid_loss": None},
        {"step": 20, "train_loss": 2.0, "valid_loss": 1.5},
        {"step": 10, "back_train_loss": 2.5, "back_valid_loss": None},
        {"step": 20, "back_train_loss": 2.0, "back_valid_loss": 1.5},
    ]
    (tmp_path / content.BACK).unlink()
    assert json.dumps(content.curve(results)).count("back_") == 0


def scored(folder: Path, beam_size: int, translations: list[str]) -> Result:
    """Result that have what a comparison reads: params, translations of the test set, scores, signatures."""
    toy = (ROOT / "recipes/toy.yaml").read_text(encoding="utf-8")
    texts = {
        "params.yaml": toy.replace("beam_size: 4", f"beam_size: {beam_size}"),
        "dvc.yaml": "stages: {train: }",
        "dvc.lock": LOCK,
        "data/raw/test.tgt": "a b c d\ne f g h\n",
        "data/hypotheses/test.hyp": "".join(f"{line}\n" for line in translations),
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    for name in ("scores", "signatures"):
        write_json(folder / f"reports/{name}.json", {"bleu": 1.0})
    return Result(root=folder)


def test_an_experiment_has_its_difference_from_the_baseline(tmp_path):
    baseline = scored(tmp_path / "baseline", 4, ["a b c d", "e f g h"])
    experiment = scored(tmp_path / "experiment", 1, ["a b c d", "x"])
    scores = content.compare_with_baseline(experiment, baseline)
    assert scores.keys() == {"delta_bleu", "p_randomisation"}
    assert scores["delta_bleu"] < 0
    assert content.compare_with_baseline(baseline, baseline) == {}  # the same configuration
