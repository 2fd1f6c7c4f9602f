"""The model behind MLflow's server."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.pyfunc import load_model, save_model
from mlflow.pyfunc.scoring_server import init
from starlette.testclient import TestClient
from support.tiny import TEXT, model_folder

from pipeline.tracking.registry import model_parts
from transformer.inference.ctranslate2_export import add_export
from transformer.inference.translator import Translator
from transformer.serving.mlflow_model import ServedTranslator
from transformer.text.bpe import CACHED_WORDS
from transformer.text.words import PIECES_OF_SERVER

OPTIONS = {"beam_size": 3, "length_penalty": 1.5, "extra_length": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model folder, as the stage average writes it."""
    folder = model_folder(tmp_path_factory.mktemp("serving") / "model")
    add_export(folder, folder, "float32")
    return folder


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory) -> TestClient:
    """MLflow's server of the stored model, whose code is this project's here."""
    place = tmp_path_factory.mktemp("server") / "served"
    save_model(place, **model_parts(folder, OPTIONS))
    return TestClient(init(load_model(str(place))))


def ask(server: TestClient, request: object) -> tuple[int, dict]:
    """Send a request; returns the status and the answer."""
    headers = {"Content-Type": "application/json"}
    answer = server.post("/invocations", content=json.dumps(request), headers=headers)
    return answer.status_code, answer.json()


def test_the_server_translates_as_the_folder_does(server, folder):
    expected = Translator.load(folder).translate(TEXT, beam_size=2, length_penalty=1.0, extra_length=9)
    params = {"beam_size": 2, "length_penalty": 1.0, "extra_length": 9}
    assert ask(server, {"inputs": list(TEXT), "params": params}) == (200, {"predictions": expected})


def test_a_request_without_params_uses_the_options_of_scores(server, folder):
    expected = Translator.load(folder).translate(TEXT, **OPTIONS)
    assert ask(server, {"inputs": list(TEXT)}) == (200, {"predictions": expected})


@pytest.mark.parametrize(
    ("request_body", "message"),
    [
        ({"inputs": ["a"], "params": {"beam_size": None}}, "beam_size=None must be a whole number"),
        ({"inputs": ["a\ud800"]}, "\\ud800"),
        ({"inputs": ["a", None]}, "Expected type str, but got NoneType"),
        ({"inputs": ["a"], "params": {"beam_size": 0}}, "beam_size=0 must be a whole number, at least 1, at most 64"),
    ],
)
def test_a_bad_request_gets_400_and_a_reason(server, request_body, message):
    status, answer = ask(server, request_body)
    assert status == 400
    assert message in answer["message"]
    assert "Traceback" not in json.dumps(answer)
    assert ask(server, {"inputs": ["Hund"], "params": {"extra_length": 0}})[0] == 200  # the server still answers


@pytest.fixture
def served(folder) -> ServedTranslator:
    """The object that MLflow's server calls."""
    translator = ServedTranslator()
    translator.load_context(SimpleNamespace(artifacts={"model": folder}))
    return translator


def test_requests_are_translated_one_at_a_time(served, monkeypatch):
    locked = []
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: locked.append(served.one_at_a_time.locked()))
    served.predict(None, ["Hund"], OPTIONS)
    assert (locked, served.one_at_a_time.locked()) == ([True], False)


def test_the_server_remembers_few_words_of_past_requests(served, monkeypatch):
    side = served.translator.source
    strings, merges = side._spacy.vocab.strings, served.translator.merges._bpe
    assert side.most_pieces == PIECES_OF_SERVER
    monkeypatch.setattr(side, "most_pieces", 20)
    request = {**OPTIONS, "beam_size": 1, "extra_length": 0}
    served.predict(None, ["Hund"], request)
    before = len(strings)
    merges.cache.update({str(number): () for number in range(CACHED_WORDS)})
    served.predict(None, [f"Hund{number}" for number in range(50)] + ["x" * 900], request)
    assert len(strings) == before
    assert len(side._tokens) <= 20
    assert len(merges.cache) <= 100
    assert not [word for word in (*side._tokens, *merges.cache) if len(word) == 900]


def test_a_stored_model_is_code_text_and_safetensors_only(folder, tmp_path):
    save_model(tmp_path / "served", **model_parts(folder, OPTIONS))
    files = [path for path in (tmp_path / "served").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    kinds = {path.suffix for path in files}
    assert kinds <= {"", ".py", ".json", ".yaml", ".txt", ".md", ".codes", ".safetensors", ".sha256", ".jinja", ".bin"}
    assert [path.name for path in files if path.suffix == ".bin"] == ["model.bin"]  # CTranslate2's own format
    assert "beam_size" in (tmp_path / "served/MLmodel").read_text()  # the signature names the params
    example = json.loads((tmp_path / "served/serving_input_example.json").read_text())
    assert example["inputs"] != [""]
