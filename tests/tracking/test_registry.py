"""The registry: a version for each configuration, which challenges the champion once, by its gain on valid."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import pytest
from mlflow import pyfunc
from support.runs import configuration, opened, record
from support.tiny import TEXT, model_folder

from pipeline.tracking import registry
from pipeline.tracking.champion import champion_of
from pipeline.tracking.content import FinishedRun
from pipeline.tracking.registry import (
    CHALLENGED,
    MODEL,
    Candidate,
    find_version,
    has_files,
    model_card,
    model_name,
    register,
    registered_version,
)
from pipeline.tracking.store import Store, StoreError
from transformer.inference.translator import Translator

OPTIONS = {"beam_size": 3, "length_penalty": 1.5, "extra_length": 20}
REFERENCES = [" ".join(random.Random(line).sample("abcdefghijklmnop", 8)) for line in range(40)]


def damaged(words: int) -> list[str]:
    """The references with so many wrong words at the end of each line."""
    return [" ".join([*line.split()[: 8 - words], *"xyzuvw"[:words]]) for line in REFERENCES]


@pytest.fixture
def store(root: Path, key: str) -> Store:
    """A store."""
    return opened(root)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model folder."""
    return model_folder(tmp_path_factory.mktemp("models") / "model")


def registered(store: Store, name: str, number: int, folder: Path, hypotheses=REFERENCES, valid="x", **changed) -> str:
    """Register the model of a configuration as the version `number`; returns the message. changed: of Candidate."""
    config = f"{name}{number}"
    texts = {"valid.hyp": "".join(f"{line}\n" for line in hypotheses)}
    run = record(store.root, {**configuration(config, config), "texts": texts})
    fields = {
        "name": name,
        "files": {file.name: file for file in folder.iterdir()},
        "card": f"# card of {config}\n",
        "tags": {
            "config_key": config,
            "options": json.dumps(OPTIONS),
            "valid_sha256": valid,
            "valid_bleu": str(100 - sum(ours != theirs for ours, theirs in zip(hypotheses, REFERENCES, strict=False))),
        },
        "engines_agree": True,
        "hypotheses": hypotheses,
        "references": REFERENCES,
        "target": "en",
    }
    return register(store, run.info.run_id, Candidate(**{**fields, **changed}))


def champion(store: Store, name: str) -> str:
    """The number of the champion."""
    alias = champion_of(store, name)
    return str(alias.version) if alias else ""


CHALLENGES = {
    "too small": (
        "x",
        [*damaged(2)[:4], *damaged(4)[4:6], *damaged(3)[6:]],
        "",
        "its difference is not significant (+",
    ),
    "worse": ("x", damaged(5), "", "it is significantly worse (-"),
    "better": ("x", REFERENCES, "2", "It is the champion: it is significantly better on valid than version 1"),
}


@pytest.mark.parametrize("case", CHALLENGES)
def test_only_a_significant_gain_on_the_same_data_replaces(store, key, model, case):
    valid, hypotheses, number, message = CHALLENGES[case]
    assert "It is the first version" in registered(store, key, 1, model, damaged(3))
    assert champion(store, key) == ""
    answer = registered(store, key, 2, model, hypotheses, valid)
    assert message in answer
    assert champion(store, key) == number
    assert ("MLflow's page moves the alias" in answer) == (number == "")


def test_versions_on_other_validation_data_are_not_compared(store, key, model):
    registered(store, key, 1, model, damaged(3))
    assert "It is the first version on this validation data" in registered(store, key, 2, model, damaged(5), "y")
    assert "significantly better on valid than version 2" in registered(store, key, 3, model, damaged(2), "y")
    assert "version 3 was measured on other validation data" in registered(store, key, 4, model, REFERENCES, "x")
    assert champion(store, key) == "3"


def test_a_champion_is_challenged_by_the_bleu_of_its_language(store, key, model):
    """By tokens with spaces between them, each Chinese line is one token, and a better model is never better."""
    lines = ["一只狗在公园里跑。", "那个女人今天在家读书。"] * 10
    worse = [line[:4] + "猫" + line[5:] for line in lines]
    registered(store, key, 1, model, worse, references=lines, target="zh")
    assert "significantly better" in registered(store, key, 2, model, lines, references=lines, target="zh")


def test_without_a_champion_the_best_version_is_challenged(store, key, model):
    for number, hypotheses in enumerate((damaged(2), damaged(6)), start=1):
        registered(store, key, number, model, [*REFERENCES[: 3 - number], *hypotheses[3 - number :]])
    answer = registered(store, key, 3, model, damaged(3))
    assert "significantly worse" in answer
    assert "against version 1" in answer
    assert find_version(store, key).version == find_version(store, f"{key}/3").version


@pytest.mark.parametrize("agree", [False, None])
def test_a_model_whose_exports_differ_never_challenges(store, key, model, agree):
    assert "It is not champion" in registered(store, key, 1, model, damaged(5), engines_agree=agree)
    assert champion(store, key) == ""
    registered(store, key, 2, model, damaged(3))
    registered(store, key, 3, model)
    assert "It is not champion" in registered(store, key, 4, model, engines_agree=agree)
    assert champion(store, key) == "3"


def files_of(folder: Path) -> dict[str, Path]:
    """The files of a model folder."""
    return {file.name: file for file in folder.iterdir()}


@pytest.mark.parametrize("lost", ["all", "weights.safetensors", "half of weights.safetensors"])
def test_files_that_were_lost_are_stored_again_in_the_same_version(store, key, model, lost):
    """Without another challenge: a person may have moved the alias since."""
    registered(store, key, 1, model)
    version = store.client.get_model_version(key, "1")
    place = Path(store.client.get_logged_model(version.tags[MODEL]).artifact_location)
    files = {path.relative_to(place) for path in place.rglob("*")}
    assert has_files(store, version, files_of(model))
    if lost == "all":
        shutil.rmtree(place)
    else:
        file = place / "artifacts/model/weights.safetensors"
        file.write_bytes(file.read_bytes()[:100]) if lost.startswith("half") else file.unlink()
    assert not has_files(store, version, files_of(model))
    run = store.search(f"tags.config_key = '{key}1'")[0]
    candidate = Candidate(key, files_of(model), "", version.tags, True, [], [], "en")
    assert register(store, run.info.run_id, candidate, version) == f"Stored the files of models:/{key}/1 again."
    assert {path.relative_to(place) for path in place.rglob("*")} == files
    assert has_files(store, version, files_of(model))
    assert champion(store, key) == ""


def test_a_version_whose_challenge_was_interrupted_challenges_later(store, key, model, monkeypatch):
    def away(*words) -> str:
        raise StoreError("the server went away")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "challenge", away)
        with pytest.raises(StoreError):
            registered(store, key, 1, model)
    version = store.client.get_model_version(key, "1")
    assert CHALLENGED not in version.tags
    candidate = Candidate(key, files_of(model), "", version.tags, True, REFERENCES, REFERENCES, "en")
    assert "It is the first version" in register(store, version.run_id, candidate, version)
    assert CHALLENGED in store.client.get_model_version(key, "1").tags


def test_a_version_serves_with_the_options_of_its_scores(store, key, model):
    registered(store, key, 1, model)
    version = store.client.get_model_version(key, "1")
    assert version.description == f"# card of {key}1\n"
    loaded = pyfunc.load_model(store.client.get_model_version_download_uri(key, "1"))
    assert loaded.predict([TEXT[0]]) == Translator.load(model).translate([TEXT[0]], **OPTIONS)


def test_a_model_is_found_until_it_is_deleted(store, key, model):
    params = {"corpus": key, "source": "de", "target": "en"}
    name = model_name(params)
    assert (name, registered_version(store, params, f"{name}1")) == (f"{key}-de-en", None)
    assert model_name({**params, "corpus": "corpora/l'été"}) == "l_été-de-en"
    registered(store, name, 1, model)
    version = registered_version(store, params, f"{name}1")
    assert version is not None
    assert registered_version(store, params, f"{name}2") is None
    store.client.delete_registered_model(name)
    assert registered_version(store, params, f"{name}1") is None


def test_the_card_lists_scores_data_params_and_origin():
    params = {"corpus": "corpora/toy", "source": "de", "target": "en", "warmup": 400}
    data = [{"name": "train.src", "lines": 3000, "sha256": "abc"}]
    tags = {"recorded_at": "01", "signature_bleu": "a|b"}
    card = model_card(FinishedRun(params, "t", "c", [], {"bleu": 31.5, "valid_bleu": 32.04}, tags, data))
    for row in ("| bleu | 31.5 a\\|b |", "| train.src | 3,000 lines, sha256 abc |", "| warmup | 400 |"):
        assert row in card
    assert re.match(r"# toy-de-en, 32\.0 BLEU on valid\n\nTranslates de to en", card)
    assert "| recorded_at | 01 |" in card
