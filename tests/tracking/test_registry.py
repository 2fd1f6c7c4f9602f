"""The registry: a version is never written again, and becomes champion by a significant gain on the same valid data."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from mlflow import pyfunc
from support.runs import configuration, opened, record
from support.tiny import TEXT, model_folder

from pipeline.tracking import registry
from pipeline.tracking.champion import Gain, challenge, champion_of, promote, roll_back
from pipeline.tracking.content import FinishedRun
from pipeline.tracking.model_card import model_card
from pipeline.tracking.registry import Candidate, gain, model_name, register
from pipeline.tracking.store import Store
from pipeline.workflow.dvc_lock import Result
from transformer.inference.translator import Translator

OPTIONS = {"beam_size": 3, "length_penalty": 1.5, "extra_length": 20}


@pytest.fixture
def store(root: Path, key: str) -> Store:
    """A store."""
    return opened(root)


def gain_of(delta: float, p_value: float) -> Callable[[Sequence[str]], Gain]:
    """A `gain_over` that checks which translations it gets."""

    def gain_over(lines: Sequence[str]) -> Gain:
        assert lines == ["translation of 1"]
        return Gain(delta, p_value)

    return gain_over


def version(store: Store, name: str, key: str, valid: str = "x"):
    """A new version of a registered model, without files, whose run has translations of valid."""
    fields = configuration(key, key)
    run = record(store.root, {**fields, "texts": {"valid.hyp": f"translation of {key.removeprefix(name)}\n"}})
    if not store.client.search_registered_models(f"name = '{name}'"):
        store.client.create_registered_model(name)
    number = store.client.create_model_version(name, "s3://nowhere", run.info.run_id, {"valid_sha256": valid}).version
    return store.client.get_model_version(name, str(number))


def champion(store: Store, name: str) -> str:
    """The number of the champion."""
    alias = champion_of(store, name)
    return str(alias.version) if alias else ""


CHALLENGES = [
    ("x", (5.0, 0.06), "1", "its difference is not significant (+5.00 BLEU on valid against version 1, p = 0.060)"),
    ("x", (-5.0, 0.01), "1", "it is significantly worse (-5.00 BLEU on valid against version 1, p = 0.010)"),
    ("y", (5.0, 0.01), "1", "version 1, was measured on other validation data"),
    ("x", (0.9, 0.01), "2", "It is the champion: it is significantly better on valid than the former one, version 1"),
]


@pytest.mark.parametrize(
    ("valid", "numbers", "number", "message"), CHALLENGES, ids=["too small", "worse", "other data", "better"]
)
def test_only_a_significant_gain_on_the_same_data_replaces(store, key, valid, numbers, number, message):
    assert challenge(store, version(store, key, f"{key}1"), gain_of(0, 1)) == (
        "It is the champion, since it is the first version."
    )
    answer = challenge(store, version(store, key, f"{key}2", valid), gain_of(*numbers))
    assert message in answer
    assert champion(store, key) == number
    assert (f"`python -m pipeline promote {key} 2`" in answer) == (number == "1")


def test_without_a_champion_a_later_version_is_challenger_only(store, key):
    challenge(store, version(store, key, f"{key}1"), gain_of(0, 1))
    store.client.delete_registered_model_alias(key, "champion")
    assert "a person decides" in challenge(store, version(store, key, f"{key}2"), gain_of(9, 0.001))
    assert champion(store, key) == ""
    assert store.client.get_model_version_by_alias(key, "challenger").version == 2


def test_a_promotion_is_rolled_back_and_not_repeated_by_record(store, key):
    for number in (1, 2):
        challenge(store, newest := version(store, key, f"{key}{number}"), gain_of(9, 0.001))
    assert roll_back(store, key) == ("2", "1")
    newest = store.client.get_model_version(key, "2")
    assert "it was rolled back" in challenge(store, newest, gain_of(9, 0.001))
    with pytest.raises(ValueError, match="has no former champion"):
        roll_back(store, key)
    store.client.delete_model_version(key, "1")
    assert "a person decides" in challenge(store, newest, gain_of(9, 0.001))
    promote(store, key, "2")
    assert champion(store, key) == "2"
    with pytest.raises(ValueError, match=r"^nobody is not a registered model\. Registered are: .*test_a_promotion"):
        roll_back(store, "nobody")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> tuple[Path, ...]:
    """Two models."""
    return tuple(model_folder(tmp_path_factory.mktemp("models") / str(seed) / "model", seed=seed) for seed in (7, 8))


def registered(store: Store, name: str, folder: Path, config_key: str, **changed) -> str:
    """Register the model of a configuration; returns the message. changed: other fields of Candidate."""
    record(store.root, {**configuration(config_key, config_key), "texts": {"valid.hyp": "a\n"}})
    fields = {"options": OPTIONS, "valid_sha256": "x", "card": f"# card of {config_key}\n", "engines_agree": True}
    fields |= {"name": name, "folder": folder, "config_key": config_key, "valid_bleu": 30.0}
    return register(store, Candidate(**{**fields, "gain_over": lambda lines: Gain(9.0, 0.001), **changed}))


def test_a_version_is_never_written_again(store, key, models, monkeypatch):
    """Other search options or code are another version."""
    numbers, files = [], {}
    for config, beam_size, code in (("a", 1, "x"), ("b", 3, "x"), ("a", 1, "x"), ("d", 1, "y")):
        monkeypatch.setattr(registry, "code_sha256", lambda code=code: code)
        options = {**OPTIONS, "beam_size": beam_size}
        numbers.append(re.findall(r"/(\d+)\.", registered(store, key, models[0], f"{key}{config}", options=options))[0])
        now = {path: path.read_bytes() for path in (store.root / "mlartifacts/models").rglob("*") if path.is_file()}
        assert {path: now[path] for path in files} == files
        files = now
    assert numbers == ["1", "2", "1", "3"]
    first = store.client.get_model_version(key, "1")
    assert (first.tags["config_key"], first.description) == (f"{key}a", f"# card of {key}a\n")
    loaded = pyfunc.load_model(store.client.get_model_version_download_uri(key, "2"))
    assert loaded.predict([TEXT[0]]) == Translator.load(models[0]).translate([TEXT[0]], **OPTIONS)


def test_a_model_whose_exports_differ_is_not_champion(store, key, models, capfd):
    steps = [(0, None, ""), (0, True, "1"), (1, True, "2"), (1, False, "1"), (0, False, "")]
    for model, agree, number in steps:
        message = registered(store, key, models[model], f"{key}{model}", engines_agree=agree)
        assert champion(store, key) == number, message
        assert ("It is not champion" in message) == (not agree)
    assert "force" not in "".join(registry.NO_CHAMPION.values())
    assert "pip version" not in capfd.readouterr().err  # MLflow's warning in an environment without pip


def test_a_version_has_the_options_that_made_its_scores(store, models, monkeypatch):
    """Those of the run: params.yaml may have been edited since, so it is not read."""
    candidates: list[Candidate] = []
    monkeypatch.setattr(registry, "register", lambda store, candidate: candidates.append(candidate))
    results = SimpleNamespace(
        scores=lambda: {"valid_bleu": 30.0},
        signatures=dict,
        folder=lambda path: {file.name: file for file in models[0].iterdir()},
        raw=lambda *words: "",
        sha256=lambda path: "x",
        engines_agree=lambda: None,
    )
    params = {"corpus": "toy", "source": "de", "target": "en", "warmup": 9, **OPTIONS}
    registry.register_model(store, cast(Result, results), FinishedRun(params, "t", "c", [], {}, {}), {})
    assert [(candidate.name, candidate.options) for candidate in candidates] == [("toy-de-en", OPTIONS)]


def test_own_files_have_a_registered_model_for_each_valid_set():
    def name(corpus: str, valid: str) -> str:
        params = {"corpus": corpus, "source": "de", "target": "en"}
        return model_name(cast(Result, SimpleNamespace(sha256=lambda _: valid, raw=lambda *_: "")), params)

    assert name("toy", "1") == name("toy", "2") == "toy-de-en"
    assert re.fullmatch(r"files-de-en-[0-9a-f]{8}", name("files", "1"))
    assert name("files", "1") != name("files", "2")


def test_a_champion_is_challenged_by_the_bleu_of_its_language():
    """By tokens with spaces between them, each Chinese line is one token, and a better model is never better."""
    lines = ["一只狗在公园里跑。", "那个女人今天在家读书。"] * 10
    results = SimpleNamespace(hypotheses=lambda split: "hyp", raw=lambda side, split: "ref", lines=lambda path: lines)
    better = gain(cast(Result, results), {"target": "zh"}, [line[:4] + "猫" + line[5:] for line in lines])
    assert better.delta > 10
    assert better.p_value < 0.05


def test_a_configuration_without_a_run_is_not_registered(store, key, models):
    candidate = Candidate(key, models[0], OPTIONS, "unknown", 30.0, "x", "", True, gain_of(0, 1))
    assert register(store, candidate).startswith("No MLflow run has config_key unknown. Nothing was")


def test_the_card_lists_scores_data_params_and_origin():
    params = {"source": "de", "target": "en", "warmup": 400}
    data = [{"name": "train.src", "lines": 3000, "sha256": "abc"}]
    finished = FinishedRun(params, "t", "c", [], {}, {}, data)
    card = model_card("toy-de-en", {"bleu": 31.5, "valid_bleu": 32.04}, {"bleu": "a|b"}, finished, {"git_commit": "01"})
    for row in ("| bleu | 31.5 a\\|b |", "| train.src | 3,000 lines, sha256 abc |", "| warmup | 400 |"):
        assert row in card
    assert card.startswith("# toy-de-en, 32.0 BLEU on valid\n\nTranslates de to en")
    assert "| git_commit | 01 |" in card
