"""The registry: the version of a recorded result, with its card, search settings and code, and how it is read."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
from mlflow import MlflowClient, pyfunc
from support.results import commit_result, start_project
from support.runs import opened
from support.tiny import ROOT, TEXT

from pipeline.results.serve import find_model
from pipeline.tracking.content import FinishedRun
from pipeline.tracking.registry import model_card, model_name, model_parts, version_of
from pipeline.tracking.store import Store, StoreError
from pipeline.tracking.write import ELSEWHERE, write_missing
from pipeline.workflow.dvc_lock import Result
from transformer.decoding.config import SearchConfig
from transformer.files import Mistake
from transformer.inference.translator import Translator

OPTIONS = {"beam_size": 3, "length_penalty": 1.5, "extra_length": 20}
NAME = "own-de-en"
ORIGIN = {"recorded_at": "01"}


@pytest.fixture(scope="module")
def store(tmp_path_factory, model) -> Iterator[Store]:
    """A store with the run of a result and version 1, in a project that is the current folder."""
    folder = tmp_path_factory.mktemp("project").resolve()
    start_project(folder)
    commit_result(folder, "first", model, **OPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("MLFLOW_", "DVC_"))]:
            patch.delenv(name)
        patch.chdir(folder)
        store = opened(folder)
        assert write_missing(store, Result(), ORIGIN) == (True, f"Registered models:/{NAME}/1.")
        yield store


def test_a_version_has_the_card_and_whether_engines_agree(store):
    version = store.client.get_model_version(NAME, "1")
    assert version.description.startswith(f"# {NAME}, 100.0 BLEU on valid\n")
    assert version.tags == {"engines": "agree"}
    assert version_of(store, version.run_id).version == version.version


def test_a_registered_model_has_the_knobs_and_scores_of_its_run(store):
    run = store.client.get_run(store.client.get_model_version(NAME, "1").run_id)
    model = store.client.get_logged_model(run.outputs.model_outputs[0].model_id)
    assert model.params == run.data.params
    assert {metric.key: metric.value for metric in model.metrics} == {"bleu": 100.0, "valid_bleu": 100.0}
    assert model.experiment_id == run.info.experiment_id
    assert len(store.client.get_metric_history(run.info.run_id, "bleu")) == 1


def test_mlflow_translates_with_the_settings_of_the_scores(store, model):
    loaded = pyfunc.load_model(f"models:/{NAME}/1")
    assert loaded.predict([TEXT[0]]) == Translator.load(model).translate([TEXT[0]], **OPTIONS)


def test_serve_reads_the_newest_version_an_alias_or_a_number(store, model, tmp_path):
    (lines,) = re.findall("^from mlflow.*?(?=^```)", (ROOT / "docs/serving.md").read_text(), re.DOTALL | re.MULTILINE)
    exec(lines.replace("toy-de-en", NAME), {})
    own = find_model("workspace", tmp_path / "workspace")
    for place, name in enumerate((NAME, f"{NAME}@champion", f"{NAME}/1")):
        entry = find_model(f"models:/{name}", tmp_path / str(place))
        assert (entry.search, entry.origin) == (SearchConfig(**OPTIONS), {"version": "1", **own.origin})
        assert (entry.folder / "weights.safetensors").read_bytes() == (model / "weights.safetensors").read_bytes()


def test_serve_refuses_a_model_that_another_program_registered(store, model, tmp_path):
    pyfunc.save_model(tmp_path / "saved", **model_parts(model, OPTIONS))
    store.client.create_registered_model("foreign")
    store.client.create_model_version("foreign", str(tmp_path / "saved"))
    with pytest.raises(Mistake, match="was not registered by the stage `record`"):
        find_model("models:/foreign", tmp_path / "fetched")


def test_a_model_is_registered_again_once_its_version_is_deleted(store, monkeypatch):
    """With the files that were lost, also after a store that failed; the run keeps its end."""

    def files() -> set[str]:
        return {path.name for path in (store.root / "mlartifacts").rglob("*") if path.is_file()}

    def fail(*words: object, **named: object) -> None:
        raise OSError("the server went away")

    (run,) = store.search("")
    shutil.rmtree(store.root / "mlartifacts")
    assert write_missing(store, Result(), ORIGIN) == (False, "The store has the run and its model.")
    store.client.delete_registered_model(NAME)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_model_artifacts", fail)
        with pytest.raises(StoreError, match="the server went away"):
            write_missing(store, Result(), ORIGIN)
    assert version_of(store, run.info.run_id) is None
    assert write_missing(store, Result(), ORIGIN) == (True, f"Registered models:/{NAME}/1.")
    assert {"report.html", "weights.safetensors"} <= files()
    (again,) = store.search("")
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")
    assert again.info.end_time == run.info.end_time


def test_where_files_are_kept_elsewhere_nothing_is_registered(store):
    elsewhere = replace(store, takes_artifacts=False)
    assert write_missing(elsewhere, Result(), ORIGIN) == (False, ELSEWHERE)


def test_the_name_of_a_model_has_no_character_that_mlflow_refuses():
    assert model_name({"corpus": "corpora/l'été", "source": "de", "target": "en"}) == "l_été-de-en"


def test_the_card_lists_scores_data_params_and_origin():
    params = {"corpus": "corpora/toy", "source": "de", "target": "en", "warmup": 400}
    data = [{"name": "train.src", "lines": 3000, "sha256": "abc"}]
    tags = {"recorded_at": "01", "signature_bleu": "a|b"}
    card = model_card(FinishedRun(params, "t", "c", [], {"bleu": 31.5, "valid_bleu": 32.04}, tags, data))
    for row in ("| bleu | 31.5 a\\|b |", "| train.src | 3,000 lines, sha256 abc |", "| warmup | 400 |"):
        assert row in card
    assert re.match(r"# toy-de-en, 32\.0 BLEU on valid\n\nTranslates de to en", card)
    assert "| recorded_at | 01 |" in card
