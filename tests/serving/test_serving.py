"""The model in MLflow's registry and behind a real HTTP server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pandas as pd
import pytest
from mlflow import pyfunc
from support.runs import configuration, record
from support.servers import free_port
from support.tiny import ODD, TEXT, model_folder

from pipeline.tracking import registry
from pipeline.tracking.champion import Gain, promote, roll_back
from pipeline.tracking.model_card import model_card
from pipeline.tracking.model_files import save
from pipeline.tracking.registration import gain, model_name
from pipeline.tracking.registry import Candidate, register
from pipeline.tracking.results import Results
from pipeline.tracking.store import connect
from transformer.inference.translator import Translator
from transformer.serving.served_translator import Refused, ServedTranslator
from transformer.text.bpe import CACHED_WORDS

OPTIONS = {"beam_size": 3, "length_penalty": 1.5, "extra_length": 20}
PATHS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return model_folder(tmp_path_factory.mktemp("serving") / "model")


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    """`mlflow models serve` on loopback, in a folder from which this project cannot be imported; yields its address."""
    place = tmp_path_factory.mktemp("server")
    save(place / "served", folder, OPTIONS)
    port = free_port()
    command = ["mlflow", "models", "serve", "--model-uri", "served", "--env-manager", "local", "--port", str(port)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "MLFLOW_"))}
    env |= {"PATH": PATHS, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with open(place / "log", "w") as log:
        process = subprocess.Popen(command, cwd=place, env=env, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):  # tries, every 0.1 s: the server answers once it has loaded the model
        try:
            urllib.request.urlopen(f"{address}/ping").read()
            break
        except OSError:
            assert process.poll() is None, (place / "log").read_text()
            time.sleep(0.1)
    yield f"{address}/invocations"
    os.killpg(process.pid, 15)
    process.wait()


def ask(server: str, request: object) -> tuple[int, dict]:
    """Send a request; returns the status and the answer."""
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    post = urllib.request.Request(server, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(post) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_server_translates_as_the_folder_does(server, folder):
    wanted = Translator.load(folder).translate(TEXT, beam_size=2, length_penalty=1.0, extra_length=9)
    params = {"beam_size": 2, "length_penalty": 1.0, "extra_length": 9}
    assert ask(server, {"inputs": list(TEXT), "params": params}) == (200, {"predictions": wanted})
    table = {"columns": ["text"], "data": [[line] for line in TEXT]}
    assert ask(server, {"dataframe_split": table, "params": params}) == (200, {"predictions": wanted})
    assert ask(server, {"inputs": TEXT[0], "params": params}) == (200, {"predictions": wanted[:1]})


def test_a_request_without_params_uses_the_search_options_of_the_scores(server, folder):
    wanted = Translator.load(folder).translate(TEXT, **OPTIONS)
    assert ask(server, {"inputs": list(TEXT)}) == (200, {"predictions": wanted})


@pytest.mark.parametrize("name", ODD)
def test_the_server_answers_odd_lines(server, name):
    status, answer = ask(server, {"inputs": [ODD[name]], "params": {"beam_size": 1, "extra_length": 0}})
    assert status == 200
    assert len(answer["predictions"]) == 1


@pytest.mark.parametrize(
    ("request_body", "wanted"),
    [
        (b"no json", "valid JSON"),
        ({"lines": ["a"]}, "inputs"),
        ({"inputs": []}, "missing inputs"),
        ({"inputs": ["wort " * 1_001]}, "line 1 has 1,001 words; the server takes 1,000 subwords: cut it"),
        ({"inputs": ["xyz " * 1_000]}, "subwords; the server takes 1,000 subwords: cut it"),
        ({"inputs": ["a", "x y" * 50_000]}, "line 2 has 150,000 characters; the server takes 10,000: cut it"),
        ({"inputs": ["a", "x" * 2_001]}, "line 2 has a word of 2,001 characters; the server takes 2,000: cut it"),
        ({"inputs": ["a"] * 1001}, "1,001 lines; a request may have 1,000"),
        ({"inputs": ["a\ud800"]}, "\\ud800"),
        ({"inputs": ["a"], "params": {"beam_size": 0}}, "beam_size=0 must be 1 to 64"),
        ({"inputs": ["a"], "params": {"beam_size": "wide"}}, "beam_size"),
        ({"inputs": ["a"], "params": {"extra_length": -1}}, "extra_length=-1 must be 0 to 1000"),
        ({"inputs": ["a"], "params": {"length_penalty": 1e9}}, "length_penalty=1000000000.0 must be"),
    ],
)
def test_a_bad_request_gets_400_and_a_reason(server, request_body, wanted):
    status, answer = ask(server, request_body)
    assert status == 400
    assert wanted in answer["message"]
    assert ask(server, {"inputs": ["Hund"], "params": {"extra_length": 0}})[0] == 200  # the server still answers


@pytest.fixture
def served(folder, monkeypatch) -> ServedTranslator:
    """The object that MLflow's server calls, with 30 s for a request."""
    monkeypatch.delenv("TRANSLATION_DEADLINE", raising=False)
    translator = ServedTranslator()
    translator.load_context(SimpleNamespace(artifacts={"model": folder}))
    return translator


def test_a_request_is_ended_at_its_deadline_with_status_503_and_the_remedy(served):
    served.seconds = -1.0  # over before it begins
    with pytest.raises(Refused, match=r"took longer than -1 s and was ended\. Send fewer or shorter lines") as error:
        served.predict(None, pd.DataFrame({"text": list(TEXT)}), OPTIONS)
    assert error.value.get_http_status_code() == 503


def test_the_deadline_is_checked_before_each_line_and_before_each_step_of_the_search(served):
    checks = []
    served.answer(["Hund"], {**OPTIONS, "beam_size": 1, "extra_length": 0}, lambda: checks.append(0))
    short = len(checks)
    served.answer(["Hund Hund Hund"], {**OPTIONS, "beam_size": 1, "extra_length": 200}, lambda: checks.append(0))
    assert short >= 2
    assert len(checks) - short > 100


def test_nothing_is_cut_into_subwords_before_the_whole_request_is_found_to_be_permitted(served, monkeypatch):
    monkeypatch.setattr(Translator, "subwords", lambda *_: pytest.fail("cut into subwords"))
    for lines, options in ((["a", "x" * 100_000], {}), (["a"], {"beam_size": 65}), (["a"] * 1001, {})):
        with pytest.raises(ValueError, match=r"a request may have|must be 1 to 64|the server takes"):
            served.answer(lines, {**OPTIONS, **options}, lambda: None)


def test_the_server_remembers_no_words_of_past_requests(served):
    side = served.translator.source
    strings = side._spacy.vocab.strings
    merges = served.translator.merges._bpe
    request = {**OPTIONS, "beam_size": 1, "extra_length": 0}
    served.answer(["Hund"], request, lambda: None)
    before = len(strings)
    merges.cache.update({str(number): () for number in range(CACHED_WORDS)})
    served.answer([f"Hund{number}" for number in range(50)], request, lambda: None)
    assert len(strings) == before
    assert not side._tokens
    assert len(merges.cache) <= 100


def test_the_stored_model_consists_of_code_text_and_safetensors_only(folder, tmp_path):
    save(tmp_path / "served", folder, OPTIONS)
    kinds = {path.suffix for path in (tmp_path / "served").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert kinds <= {"", ".py", ".json", ".yaml", ".txt", ".md", ".codes", ".safetensors", ".jinja"}
    assert "beam_size" in (tmp_path / "served/MLmodel").read_text()  # the signature names the params
    example = json.loads((tmp_path / "served/serving_input_example.json").read_text())
    assert example["inputs"] != [""]


def scored(root: Path, config_key: str, **changed) -> None:
    """Write the run of a configuration, as the stage record does. changed: fields of recorder.Configuration."""
    assert record(root, {**configuration(config_key, config_key), **changed})


@pytest.fixture
def models(folder, tmp_path_factory) -> dict[str, Path]:
    """Two models."""
    return {"first": folder, "second": model_folder(tmp_path_factory.mktemp("second") / "model", seed=8)}


def no_gain(lines: Sequence[str]) -> Gain:
    """What Candidate.gain_over returns for two equal models."""
    return Gain(0.0, 1.0)


def registered(root: Path, folder: Path, config_key: str, **changed) -> str:
    """Register the model of a configuration; returns the message. changed: other fields of Candidate."""
    fields = {"options": OPTIONS, "valid_sha256": "x", "card": f"# card of {config_key}\n", "engines_agree": True}
    fields |= {"name": "toy-de-en", "folder": folder, "config_key": config_key, "valid_bleu": 30.0}
    return register(root, Candidate(**{**fields, "gain_over": no_gain, **changed}))


def champion(root: Path) -> str:
    """The number of the champion of toy-de-en."""
    return str(connect(root).client.get_model_version_by_alias("toy-de-en", "champion").version)


def test_a_model_replaces_the_champion_only_on_the_same_valid_data_and_by_a_significant_gain(
    models, tmp_path, fresh_process
):
    asked, messages = [], []

    def gain(delta: float, p_value: float):
        return lambda lines: asked.append(lines) or Gain(delta, p_value)

    for key, model, changed in (
        ("a", "first", {}),
        ("b", "second", {"gain_over": gain(5.0, 0.06)}),
        ("c", "second", {"gain_over": gain(5.0, 0.01), "valid_sha256": "y"}),
        ("d", "second", {"gain_over": gain(-5.0, 0.01), "options": {**OPTIONS, "beam_size": 1}}),
        ("e", "second", {"gain_over": gain(0.9, 0.01), "options": {**OPTIONS, "beam_size": 2}}),
    ):
        scored(tmp_path, key, texts={"valid.hyp": f"translation of {key}\n"})
        messages.append(registered(tmp_path, models[model], key, **changed))
    assert messages[0] == "Registered models:/toy-de-en/1. It is the champion, since there was none."
    assert (
        "2. It is the challenger of version 1: its gain of 5.00 BLEU on valid is not significant (p = 0.060"
        in messages[1]
    )
    assert (
        "3. It is the challenger of version 1: the champion was measured on other validation data. `python"
        in messages[2]
    )
    assert (
        "4. It is the challenger of version 1: it is significantly worse on valid (-5.00 BLEU, p = 0.010" in messages[3]
    )
    assert (
        "5. It is the champion: it is significantly better on valid than version 1, the champion before." in messages[4]
    )
    assert asked == [["translation of a"]] * 3
    assert champion(tmp_path) == "5"


def test_a_champion_whose_exports_turn_out_to_differ_gives_the_alias_back_to_the_former(
    models, tmp_path, fresh_process
):
    for key, model in (("a", "first"), ("b", "second")):
        scored(tmp_path, key, texts={"valid.hyp": "a\n"})
        registered(tmp_path, models[model], key, gain_over=lambda lines: Gain(9.0, 0.001))
    assert champion(tmp_path) == "2"
    registered(tmp_path, models["second"], "b", engines_agree=False)
    assert champion(tmp_path) == "1"
    scored(tmp_path, "c", texts={"valid.hyp": "c\n"})
    worse = {"options": {**OPTIONS, "beam_size": 1}, "gain_over": lambda lines: Gain(-37.0, 0.001)}
    registered(tmp_path, models["second"], "c", **worse)
    assert champion(tmp_path) == "1"


def test_a_model_that_is_not_registered_is_named_with_those_that_are(models, tmp_path, fresh_process):
    scored(tmp_path, "a")
    registered(tmp_path, models["first"], "a")
    with pytest.raises(ValueError, match=r"^toy-en-de is not a registered model\. Registered are: toy-de-en\.$"):
        roll_back(connect(tmp_path), "toy-en-de")


def test_a_promotion_is_rolled_back_by_one_command_and_not_repeated_by_record(models, tmp_path, fresh_process):
    for key, model in (("a", "first"), ("b", "second")):
        scored(tmp_path, key, texts={"valid.hyp": "a\n"})
        registered(tmp_path, models[model], key, gain_over=lambda lines: Gain(9.0, 0.001))
    assert champion(tmp_path) == "2"
    store = connect(tmp_path)
    assert roll_back(store, "toy-de-en") == ("2", "1")
    message = registered(tmp_path, models["second"], "b", gain_over=lambda lines: Gain(9.0, 0.001))
    assert "2. It is the challenger of version 1: it was rolled back." in message
    with pytest.raises(ValueError, match="toy-de-en has no former champion"):
        roll_back(store, "toy-de-en")
    promote(store, "toy-de-en", "2")
    assert champion(tmp_path) == "2"
    assert roll_back(store, "toy-de-en") == ("2", "1")


def test_a_version_is_never_written_again_and_other_options_or_code_are_another_version(
    models, tmp_path, fresh_process, monkeypatch
):
    numbers, files = [], {}
    for key, beam_size, code in (("a", 1, "x"), ("b", 3, "x"), ("a", 1, "x"), ("c", 1, "x"), ("d", 1, "y")):
        monkeypatch.setattr(registry, "code_sha256", lambda code=code: code)
        scored(tmp_path, key)
        message = registered(tmp_path, models["first"], key, options={**OPTIONS, "beam_size": beam_size})
        numbers.append(message.partition("toy-de-en/")[2][0])
        now = {path: path.read_bytes() for path in (tmp_path / "mlartifacts").rglob("*") if path.is_file()}
        assert {path: now[path] for path in files} == files
        files = now
    assert numbers == ["1", "2", "1", "1", "3"]
    assert len(list((tmp_path / "mlartifacts").rglob("weights.safetensors"))) == 3
    for run in connect(tmp_path).all_runs():  # MLflow copies scores of the run to the model
        assert len(connect(tmp_path).client.get_metric_history(run.info.run_id, "bleu")) == 1
    client = connect(tmp_path).client
    first = client.get_model_version("toy-de-en", "1")
    assert (first.tags["config_key"], first.description) == ("a", "# card of a\n")
    loaded = pyfunc.load_model(client.get_model_version_download_uri("toy-de-en", "2"))
    assert loaded.predict([TEXT[0]]) == Translator.load(models["first"]).translate([TEXT[0]], **OPTIONS)


def test_a_model_whose_exports_differ_or_were_not_compared_is_registered_but_never_champion(
    models, tmp_path, fresh_process
):
    messages = []
    for key, model, agree in (
        ("a", "first", None),
        ("a", "first", True),
        ("b", "second", False),
        ("a", "first", False),
    ):
        scored(tmp_path, key)
        messages.append(registered(tmp_path, models[model], key, engines_agree=agree))
    assert "It is not champion: compare_engines has not measured it" in messages[0]
    assert messages[1] == "Registered models:/toy-de-en/1. It is the champion, since there was none."
    assert "Registered models:/toy-de-en/2. It is not champion: data/ct2 does not translate" in messages[2]
    assert "champion" not in connect(tmp_path).client.get_registered_model("toy-de-en").aliases  # version 1 lost it


def test_own_files_have_a_registered_model_for_each_validation_set():
    def name(corpus: str, valid: str) -> str:
        found = SimpleNamespace(
            params=SimpleNamespace(corpus=corpus, source="de", target="en"), sha256=lambda _: valid, raw=lambda *_: ""
        )
        return model_name(cast(Results, found))

    assert name("toy", "1") == name("toy", "2") == "toy-de-en"
    assert re.fullmatch(r"files-de-en-[0-9a-f]{8}", name("files", "1"))
    assert name("files", "1") != name("files", "2")


def test_a_champion_is_challenged_by_the_bleu_of_its_target_language():
    """By tokens with spaces between them, each Chinese line is one token, and a better model is never better."""
    lines = ["一只狗在公园里跑。", "那个女人今天在家读书。"] * 10
    found = SimpleNamespace(
        params=SimpleNamespace(target="zh"),
        hypotheses=lambda split: "hyp",
        raw=lambda side, split: "ref",
        lines=lambda path: lines,
    )
    better = gain(cast(Results, found), [line[:4] + "猫" + line[5:] for line in lines])
    assert better.delta > 10
    assert better.p_value < 0.05


def test_a_configuration_without_a_run_is_not_registered(folder, tmp_path, fresh_process):
    assert registered(tmp_path, folder, "unknown").startswith("No MLflow run has config_key unknown. Nothing was")


def test_the_card_lists_scores_with_signatures_data_params_and_origin():
    card = model_card(
        "toy-de-en",
        ("de", "en"),
        {"warmup": 400},
        {"bleu": 31.5, "valid_bleu": 32.04},
        {"bleu": "nrefs:1|case:mixed"},
        {"train.src": "3 lines, sha256 abc"},
        {"git_commit": "0123"},
    )
    for row in (
        "| bleu | 31.5 nrefs:1\\|case:mixed |",
        "| train.src | 3 lines, sha256 abc |",
        "| warmup | 400 |",
        "| git_commit | 0123 |",
        "# toy-de-en, 32.0 BLEU on valid",
    ):
        assert row in card
