"""Results of version 0.1.0, before the rooms: today's commands read them, and today's package loads their models.

support/results_0.1.bundle is a git bundle. Branch main: a small project that version 0.1.0 ran. refs/exps/: its
experiments narrow (beam_size=1) and slow (warmup=8). Branch cache: the files of DVC's cache that commands read.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support.projects import command, reader, runs
from support.runs import start
from support.tiny import ROOT, stage

from pipeline.params import Params, of_before
from transformer import Translator
from transformer.files import read_lines

pytestmark = pytest.mark.full
BUNDLE = ROOT / "tests/support/results_0.1.bundle"
EXPERIMENTS = "refs/exps/*:refs/exps/*"
COMMAND = (sys.executable, "-m", "pipeline")
TEXT_OUTS = ("data/raw", "data/tokens", "data/bpe.codes", "data/vocab.txt", "data/ids")


def unpacked(folder: Path) -> Path:
    """The project as version 0.1.0 left it, with its own code and without the experiments."""
    command(folder.parent, "git", "clone", "-q", "--branch", "main", str(BUNDLE), str(folder))
    cache = folder / ".dvc/cache"
    cache.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "origin/cache"], cwd=folder, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=cache, check=True, input=archive)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The project and its experiments, with today's code in place of version 0.1.0's."""
    folder = unpacked(tmp_path_factory.mktemp("before") / "project")
    command(folder, "git", "fetch", "-q", str(BUNDLE), EXPERIMENTS)
    for name in ("pipeline", "transformer"):
        shutil.rmtree(folder / name)
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def summary(project) -> str:
    """What `python -m pipeline summary` prints."""
    return command(project, *COMMAND, "summary")


@pytest.fixture(scope="module")
def tracked(project) -> str:
    """What the first `python -m pipeline track` prints."""
    return command(project, *COMMAND, "track")


def out(project: Path, path: str, place: Path) -> Path:
    """Copy an out of the commit main from DVC's cache to `place`; returns `place`."""
    cache, lock = project / ".dvc/cache/files/md5", YAML(typ="safe").load(project / "dvc.lock")
    (md5,) = [one["md5"] for entry in lock["stages"].values() for one in entry["outs"] if one["path"] == path]
    if not md5.endswith(".dir"):
        shutil.copy(cache / md5[:2] / md5[2:], place)
        return place
    place.mkdir()
    for one in json.loads((cache / md5[:2] / md5[2:]).read_text()):
        shutil.copy(cache / one["md5"][:2] / one["md5"][2:], place / one["relpath"])
    return place


def test_summary_lists_each_configuration_with_its_scores_and_knobs(summary):
    head, *lines = summary.partition("\n\n")[0].split("\n")
    assert head.split() == ["name", "bleu", "valid_bleu", "warmup", "beam_size"]
    assert {tuple(line.split()) for line in lines} == {
        ("narrow", "1.09", "0.54", "4", "1"),
        ("e61ec9c479", "0.00", "0.00", "4", "4"),
        ("slow", "0.00", "0.00", "8", "4"),
    }


def test_compare_gives_the_differences_with_p_values(project):
    command(project, *COMMAND, "compare", "main", "narrow", "slow")
    main, narrow, slow = json.loads((project / "reports/comparison.json").read_text())["systems"]
    assert [main["name"], narrow["name"], slow["name"]] == ["main", "narrow", "slow"]
    assert (narrow["delta"], slow["delta"]) == (1.09, 0.0)
    assert 0 < narrow["p_bootstrap"] < narrow["p_randomisation"] < slow["p_randomisation"] == 1


def test_track_writes_a_run_with_params_scores_and_curve_for_each_configuration(project, tracked):
    assert tracked.startswith("3 made")
    found = {(run.data.params["warmup"], run.data.params["beam_size"]): run for run in runs(project)}
    main, narrow, slow = (found[knobs] for knobs in (("4", "4"), ("4", "1"), ("8", "4")))
    assert [run.info.run_name for run in (narrow, slow)] == ["narrow", "slow"]
    added = {
        one.name: of_before(one.metadata["before"], {"corpus": "files"})
        for one in fields(Params)
        if one.metadata["before"] is not None
    }
    knobs = added | YAML(typ="safe").load(project / "params.yaml")
    for run, change in ((main, {}), (narrow, {"beam_size": 1}), (slow, {"warmup": 8})):
        assert run.data.params == {knob: str(value) for knob, value in {**knobs, **change}.items()}
    assert [run.data.metrics["bleu"] for run in (main, narrow, slow)] == [0.0, 1.0869, 0.0]
    losses = [run.data.metrics["train_loss"] for run in (main, narrow, slow)]
    assert losses == pytest.approx([1.87388, 1.87388, 1.76105], abs=1e-5)
    assert main.data.metrics["chrf"] == 9.6774
    curve = csv.DictReader((project / "reports/training.csv").read_text().split("\n"))
    points = reader(project).get_metric_history(main.info.run_id, "train_loss")
    assert {point.step: point.value for point in points} == {
        int(row["step"]): float(row["train_loss"]) for row in curve
    }


def test_a_second_track_changes_nothing(project, tracked):
    before = [run.to_dictionary() for run in runs(project)]
    assert command(project, *COMMAND, "track").startswith("3 there")
    assert [run.to_dictionary() for run in runs(project)] == before


def test_each_registered_model_contains_the_folder_that_its_description_names(project, tracked):
    client = reader(project)
    versions = client.search_model_versions("name LIKE 'files-de-en-%'")
    assert len(versions) == 3  # main and narrow share a model, and have other search options
    for one in versions:
        place = Path(client.get_logged_model(one.source.removeprefix("models:/")).artifact_location)
        artifacts = YAML(typ="safe").load(place / "MLmodel")["flavors"]["python_function"]["artifacts"]
        assert (place / artifacts["model"]["path"] / "model.json").is_file()


def test_a_command_runs_under_its_old_name_and_prints_the_new_one(project, summary):
    done = stage("summary", project)
    assert done.returncode == 0
    assert done.stdout == summary
    assert done.stderr == "python -m pipeline.summary is now: python -m pipeline summary\n"


def test_a_model_folder_translates_the_test_set_as_it_did(project, tmp_path):
    knobs = YAML(typ="safe").load(project / "params.yaml")
    options = {name: knobs[name] for name in ("beam_size", "length_penalty", "extra_length")}
    sources = list(read_lines(out(project, "data/raw", tmp_path / "raw") / "test.src"))
    translations = list(read_lines(out(project, "data/test.hyp", tmp_path / "test.hyp")))
    translator = Translator.load(out(project, "data/model", tmp_path / "model"))
    assert translator.translate(sources, **options) == translations


def test_the_translator_is_imported_from_its_old_place_with_a_warning(monkeypatch):
    monkeypatch.delitem(sys.modules, "transformer.translator", raising=False)
    with pytest.warns(FutureWarning, match="from transformer import Translator"):
        from transformer.translator import Translator as Old
    assert Old is Translator


def test_verify_repeats_a_commit_with_its_own_code_and_finds_the_same_text(project):
    output = command(project, *COMMAND, "verify", "main", status=(0, 2))
    verdicts = dict(re.findall(r"(\S+) +\w{10} +\w{10} .* (identical|within tolerance)", output))
    assert [verdicts[path] for path in TEXT_OUTS] == ["identical"] * len(TEXT_OUTS)
    assert "data/row.json" in verdicts  # the out of stage register, which today's pipeline does not have


LOAD = """
import json, sys
import mlflow
from transformer.inference import translator
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model("models:/files-de-en/1")
print(json.dumps([sys.modules["transformer.inference.translator"].__file__, model.predict(["eins zwei."])]))
"""


def test_a_registered_model_is_loaded_by_todays_package(tmp_path):
    old = unpacked(tmp_path / "old")
    assert command(old, sys.executable, "-m", "pipeline.track").startswith("1 made")
    process = start(LOAD, f"sqlite:///{old / 'mlflow.db'}", cwd=tmp_path)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    module, translations = json.loads(output.strip().split("\n")[-1])
    assert Path(module) == ROOT / "transformer/inference/translator.py"
    assert translations == Translator.load(out(old, "data/model", tmp_path / "model")).translate(["eins zwei."])
