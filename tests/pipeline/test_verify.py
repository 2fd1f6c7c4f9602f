"""How `python -m pipeline verify` judges a repetition: identical, within tolerance or different."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.commands import verify
from pipeline.commands.verify import as_recorded, compared, differences
from pipeline.shared.results import WorkTree

CURVE = "step,train_loss,valid_loss\n10,{},\n20,{},3.0\n"
SCORES = {"bleu": 40.0, "valid_bleu": 41.0}


def tree(folder: Path, scores: dict, curve: str, hashes: dict[str, str]) -> WorkTree:
    """Results in a folder: reports, and a dvc.lock with these hashes (path of an out -> md5)."""
    (folder / "reports").mkdir(parents=True)
    (folder / "reports/scores.json").write_text(json.dumps(scores))
    (folder / "reports/training.csv").write_text(curve)
    (folder / "reports/environment.json").write_text(json.dumps({"torch": "2.13.0+cpu", "cpu": "A"}))
    stages = {"encode": "data/ids", "train": "reports/training.csv", "average": "data/model"}
    stages |= {"score": "reports/scores.json", "record": "data/run.json"}
    lock = {name: {"outs": [{"path": path, "md5": hashes.get(path, "0" * 31 + "a")}]} for name, path in stages.items()}
    YAML().dump({"stages": lock}, folder / "dvc.lock")
    return WorkTree(root=folder)


@pytest.mark.parametrize(
    ("scores", "curve", "other", "wanted"),
    [
        (SCORES, CURVE.format(5, 4), [], {}),
        (SCORES | {"bleu": 40.4}, CURVE.format(5.05, 4),
         ["reports/training.csv", "data/model", "reports/scores.json", "data/run.json"],
         dict.fromkeys(("average", "score", "train", "record"), "within tolerance")),
        (SCORES | {"bleu": 38.9}, CURVE.format(5, 4), ["data/model", "reports/scores.json"],
         {"average": "different", "score": "different"}),
        (SCORES, CURVE.format(6, 4), ["reports/training.csv"], {"train": "different"}),
        (SCORES, CURVE.format(5, 4), ["data/ids"], {"encode": "different"}),  # text is not rounded
    ],
)  # fmt: skip
def test_numbers_have_a_tolerance_and_text_has_none(tmp_path, scores, curve, other, wanted):
    recorded = tree(tmp_path / "recorded", SCORES, CURVE.format(5, 4), {})
    new = tree(tmp_path / "new", scores, curve, dict.fromkeys(other, "0" * 31 + "b"))
    table = compared(recorded, new)
    verdicts = dict(zip(table["stage"], table["verdict"], strict=True))
    assert verdicts == dict.fromkeys(("encode", "train", "average", "score", "record"), "identical") | wanted


def test_an_out_that_the_repetition_does_not_write_is_different(tmp_path):
    recorded = tree(tmp_path / "recorded", SCORES, CURVE.format(5, 4), {})
    new = tree(tmp_path / "new", SCORES, CURVE.format(5, 4), {})
    lock = YAML(typ="safe").load(tmp_path / "new/dvc.lock")
    del lock["stages"]["average"]
    YAML().dump(lock, tmp_path / "new/dvc.lock")
    table = compared(recorded, new).set_index("stage")
    assert (table.loc["average", "new"], table.loc["average", "verdict"]) == ("missing", "different")


def test_a_repetition_uses_the_recorded_numbers_of_threads_and_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "cores", lambda: 4)
    recorded = tree(tmp_path / "recorded", SCORES, CURVE.format(5, 4), {})
    facts = tmp_path / "recorded/reports/environment.json"
    for device, threads, devices, wanted in (
        ("CPU", 1, 2, {"OMP_NUM_THREADS": "1", "DEVICES": "2"}),
        ("CPU", 8, 1, {}),  # more than there are
        ("NVIDIA H200", 1, 1, {}),
    ):
        facts.write_text(json.dumps({"device": device, "threads": threads, "devices": devices}))
        assert as_recorded(recorded) == wanted


def test_each_fact_of_the_environment_that_differs_is_listed(tmp_path):
    recorded = tree(tmp_path / "recorded", SCORES, CURVE.format(5, 4), {})
    assert differences(recorded, {"torch": "2.13.0", "cpu": "A"}).empty  # a local build is the same version
    rows = differences(recorded, {"torch": "2.13.0", "cpu": "B", "devices": 2}).to_dict("records")
    assert rows == [
        {"fact": "cpu", "recorded": "A", "here": "B"},
        {"fact": "devices", "recorded": "not recorded", "here": "2"},
    ]
