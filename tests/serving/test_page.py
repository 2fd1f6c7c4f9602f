"""The page translates as the translator does, refuses what it must, and shows subwords, alignment and attention."""

from __future__ import annotations

import json
import math
import shutil
import signal
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from starlette.testclient import TestClient
from support.browsers import opened_window
from support.projects import command
from support.results import commit_result, start_project
from support.servers import free_port, start_server
from support.stages import message_of
from support.tiny import TEXT, model_folder

from pipeline.results import serve
from pipeline.results.serve import find_model
from transformer.decoding.config import SearchConfig
from transformer.inference.translator import Translator
from transformer.serving.served_model import Model, ModelEntry
from transformer.serving.server import Server, Settings, application
from transformer.text.word_counts import SeenWords

LINE = TEXT[0]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """Two model folders."""
    place = tmp_path_factory.mktemp("models")
    return model_folder(place / "first"), model_folder(place / "second", seed=8, pull=1.0)


@pytest.fixture(scope="module")
def model(folders) -> Model:
    return Model(ModelEntry("first", folders[0], replace(SearchConfig(), extra_length=10), {"run": "toy 1234567"}))


@pytest.fixture
def client(model) -> Iterator[TestClient]:
    """A client of a server with one model."""
    with TestClient(application(Server([model], Settings())), base_url="http://127.0.0.1:5002") as client:
        yield client


def details(model: Model, text: str) -> list[dict]:
    """What the page shows of the translations of a sentence that have details, with their texts and log P."""
    (sentences,) = model.translator.alternatives_of_sentences([text], config=model.entry.search)
    hypotheses = model.answer(sentences)["hypotheses"]
    return [row | model.details(text, row["subwords"]) for row in hypotheses if row["subwords"] is not None]


def details_of(client: TestClient, text: str) -> dict:
    """The answer of the server with the details of the best translation of a sentence."""
    target = translated(client, text)["hypotheses"][0]["subwords"]
    return client.post("/details", json={"model": 0, "text": text, "target": target}).json()


def translated(client: TestClient, text: str, **options) -> dict:
    """The answer to a sentence."""
    done = client.post("/translations", json={"model": 0, "text": text, **options})
    assert done.status_code == 200, done.text
    return done.json()


def test_the_page_translates_as_the_translator_does(client, folders):
    translator = Translator.load(folders[0])
    (best,) = translator.alternatives([LINE], beam_size=3, extra_length=10)
    answer = translated(client, LINE, beam_size=3)
    assert details_of(client, LINE)["source"] == [*translator.subwords([LINE])[0], "</s>"]
    assert [row["text"] for row in answer["hypotheses"]] == [translation.text for translation in best]
    assert [row["score"] for row in answer["hypotheses"]] == pytest.approx([translation.score for translation in best])
    for row, translation in zip(answer["hypotheses"], best, strict=True):
        assert row["subwords"] == [*translation.subwords]
    assert translated(client, "")["hypotheses"] == translated(client, " ")["hypotheses"] == []
    answer = details_of(client, "Hund 😀")
    unknown = dict(zip(answer["source"], answer["unknown"], strict=True))
    assert (unknown["😀"], unknown["</s>"], all(answer["unknown"])) == (True, False, False)


def test_sentences_are_translated_one_by_one_and_unread_words_named(client, model, tmp_path, monkeypatch):
    text, lines = "Ein Hund rennt. Zwei Männer spielen.", ["Ein Hund rennt.", "Zwei Männer spielen."]
    first, second = (translated(client, line)["hypotheses"][0] for line in lines)
    answer = translated(client, text)
    (both,) = answer["hypotheses"]
    assert both["text"] == f"{first['text']} {second['text']}" == model.translator.translate([text], extra_length=10)[0]
    assert both["log_probability"] == pytest.approx(first["log_probability"] + second["log_probability"], rel=1e-4)
    assert both["subwords"] is None
    refused = client.post("/details", json={"model": 0, "text": text, "target": first["subwords"]})
    assert refused.json()["error"] == "Subwords are shown of one sentence. This text has 2, each translated by itself."
    (tmp_path / "words.txt").write_text("Ein 2\nHund 2\nrennt 2\n")
    monkeypatch.setattr(model.translator, "seen_words", SeenWords(tmp_path / "words.txt"))
    (remark,) = (each for each in translated(client, text + " 12 Männer")["remarks"] if each.startswith("not in the"))
    assert {"Zwei", "Männer", "spielen"} <= set(remark.split())


def test_each_line_of_a_pasted_text_is_translated(client):
    first, second = (translated(client, line)["hypotheses"][0]["text"] for line in TEXT[:2])
    (both,) = translated(client, f"{TEXT[0]}\n\n{TEXT[1]}")["hypotheses"]
    assert both["text"] == f"{first}\n\n{second}"


def test_probabilities_of_subwords_make_that_of_the_translation(folders, tmp_path):
    finished = details(Model(ModelEntry("", folders[1])), TEXT[1])[:3]  # the fourth meets the limit before </s>
    assert max(len(row["target"]) for row in finished) < 10
    for row in finished:
        assert sum(map(math.log, row["probabilities"])) == pytest.approx(row["log_probability"], abs=1e-4)
    model = Model(ModelEntry("", model_folder(tmp_path / "model", pull=3.0)))
    assert {row["text"]: row["target"] for row in details(model, LINE)}[""] == ["</s>"]
    framed = details(Model(ModelEntry("", folders[1])), f"- „{TEXT[1]}“")[0]
    assert framed["log_probability"] == pytest.approx(sum(map(math.log, framed["probabilities"])), abs=1e-4)
    assert details(model, "12") == []
    assert model.details(LINE, [])["target"] == ["</s>"]


def test_many_threads_get_each_its_own_attention_and_scores(model):
    def sizes(line: str) -> tuple[int, int]:
        answer = model.details(line, ["▁a"])
        return len(answer["weights"][0]), len(answer["probabilities"])

    lines = [" ".join(TEXT[0].split() * count) for count in range(1, 6)] * 8
    alone = {line: sizes(line) for line in set(lines)}
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(sizes, lines)) == [alone[line] for line in lines]


def test_the_attention_is_that_of_the_decoder_over_the_source(client, folders):
    target = translated(client, LINE)["hypotheses"][0]["subwords"]
    shown = details_of(client, LINE)
    translator = Translator.load(folders[0])
    ids = translator.vocabulary.ids
    cross = translator.engine.attention(ids(shown["source"][:-1]), ids(target)).cross  # type: ignore[attr-defined]
    assert np.abs(np.array(shown["weights"]) - cross[-1].mean(0).numpy()).max() < 1e-6  # of the heads of the last layer
    assert (shown["source"][-1], shown["target"]) == ("</s>", [*target, "</s>"])


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("translations", {"text": "x" * 10_001}, 400, "10,001 characters; the server takes 10,000: cut it"),
        ("translations", {"text": "wort " * 1_001}, 400, "subwords; the server takes 1,000: cut it"),
        ("translations", {"text": "a", "beam_size": 65}, 400, "beam_size=65: Input should be less than or equal to 64"),
        ("translations", {"text": "a", "model": 1}, 400, "model=1: there are 1, counted from 0"),
        ("translations", {"text": "a", "model": -1}, 400, "model=-1: Input should be greater"),
        ("translations", {"text": "x" * 2**20}, 413, "larger than 1,048,576 bytes"),
        ("details", {"text": "wort " * 1_001, "target": []}, 400, "subwords; the server takes 1,000: cut it"),
        ("details", {"text": "a", "target": ["a"] * 1_201}, 400, "at most 1200 items"),
        ("details", {"text": "a", "target": "a"}, 400, 'target="a": Input should be a valid list'),
    ],
)
def test_a_request_over_the_limits_is_refused_with_the_reason(client, path, body, status, message):
    done = client.post(f"/{path}", json={"model": 0, **body})
    assert done.status_code == status
    assert message in done.json()["error"]
    assert "\n" not in done.json()["error"]


def test_the_page_may_load_and_ask_nothing_but_its_server(client):
    done = client.get("/")
    policy = done.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'nonce-")
    assert "unsafe" not in policy
    assert "connect-src 'self'" in policy
    assert "http" not in done.text.replace("http-equiv", "")
    assert "innerHTML" not in done.text
    assert client.get("/docs").status_code == 404


def test_a_model_is_found_in_a_folder_and_in_the_work_tree(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="data/model is missing"):
        find_model("workspace", tmp_path / "unused")
    source = find_model(str(folders[0]), tmp_path / "unused")
    assert (source.folder, source.origin) == (folders[0], {})
    shutil.copytree(folders[1], "data/model")
    for name in ("workspace", "data/model"):
        source = find_model(name, tmp_path / "unused")
        assert source.folder == Path("data/model")
        assert source.origin == {"run": "unknown, since dvc.lock has no result"}
    assert not (tmp_path / "unused").exists()


@pytest.fixture(scope="module")
def project(folders, tmp_path_factory) -> Path:
    """A project whose commit `with_model` has a result, and whose commit `without` has none."""
    folder = tmp_path_factory.mktemp("project")
    start_project(folder)
    command(folder, "git", "tag", "without")
    commit_result(folder, "with_model", folders[1], beam_size=2)
    shutil.rmtree(folder / "data")
    return folder


def test_the_model_of_a_commit_comes_from_the_cache_of_dvc(inside, folders, tmp_path):
    assert find_model("data/model", tmp_path / "of the work tree").origin["run"] != "unknown"
    source = find_model("with_model", tmp_path / "fetched")
    for path in set(folders[1].iterdir()) - {folders[1] / "model.json"}:
        assert (source.folder / path.name).read_bytes() == path.read_bytes()
    assert (source.search.beam_size, source.examples) == (2, ("a b c d", "e f g h", "i j k l"))
    assert [len(source.origin[name]) for name in ("run", "data")] == [7, 12]
    assert details(Model(source), LINE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["nobody"],
            "error: nobody is not an experiment, branch, tag or commit. `dvc exp show` lists the experiments. "
            "It is no model folder either: nobody/model.json is missing.",
        ),
        (["without"], "error: without has no dvc.lock, so no result. Run `dvc repro` and commit"),
        pytest.param(
            ["models:/nobody@champion"],
            "error: The model models:/nobody@champion cannot be fetched: ",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_model_that_is_not_there_ends_the_command_in_one_line(inside, capsys, fresh_process, words, message):
    assert message in message_of(serve.main, *words, "--port", free_port())
    assert capsys.readouterr().err.startswith(f"Loading {words[0]} ...\n")


def test_a_model_that_the_cache_lacks_is_named_with_the_remedy(inside, tmp_path):
    (inside / ".dvc/cache").rename(tmp_path / "cache")
    try:
        line = message_of(serve.main, "with_model", "--port", free_port())
    finally:
        (tmp_path / "cache").rename(inside / ".dvc/cache")
    assert line.startswith("error: data/model of with_model is not in DVC's cache. `dvc pull`, ")


@pytest.mark.full
def test_ctrl_c_ends_the_server_at_once_while_it_translates(folders, tmp_path):
    process, address = start_server(tmp_path, "pipeline", "serve", folders[0])
    body = json.dumps({"model": 0, "text": "wort " * 900, "beam_size": 64}).encode()  # minutes of work
    head = f"POST /translations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as asking:
        asking.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        with urllib.request.urlopen(f"{address}/models") as answer:  # it works, and answers others meanwhile
            assert json.loads(answer.read())[0]["name"] == str(folders[0])
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    errors = (tmp_path / "server.log").read_text()
    assert (process.returncode, output.strip(), "Traceback" in errors) == (0, "", False), errors


@pytest.fixture(scope="module")
def address(folders, tmp_path_factory) -> Iterator[str]:
    """The address of the demo of two models."""
    process, address = start_server(tmp_path_factory.mktemp("demo"), "pipeline", "serve", *folders)
    yield address
    process.terminate()
    process.communicate()


@pytest.fixture
def page(browser, address) -> Iterator:
    """A window on the demo. The test fails if the page writes an error to the console or asks another server."""
    with opened_window(browser) as window:
        window.page.goto(address)
        yield window.page
    problems = [line for line in window.console if "status of 400" not in line]
    assert problems == []  # but Chromium's own line of a refused request
    assert {"/".join(url.split("/")[:3]) for url in window.asked} - {"data:"} == {address}


def shown(page, text: str, place: int = 0) -> str:
    """The translation that a model shows once all models have answered to a text."""
    page.wait_for_function("text => document.getElementById('text').value === text", arg=text)
    answered = "text => [...document.querySelectorAll('article')].every(article => article.dataset.text === text)"
    page.wait_for_function(answered, arg=text)
    without_marks = (
        "node => { node = node.cloneNode(true); node.querySelectorAll('.unsure-mark').forEach(mark => mark.remove());"
        " return node.textContent }"
    )
    return page.locator(".translation").nth(place).evaluate(without_marks)


def first_article(page) -> Any:
    """What the first model shows of LINE, with what it attends to."""
    page.locator("#text").fill(LINE)
    shown(page, LINE)
    article = page.locator("article").first
    article.locator(".source[data-weights]").wait_for()
    return article


def test_a_text_that_is_typed_before_the_models_are_there_is_kept(browser, address):
    window = browser.new_page()
    waiting: list = []
    window.route("**/models", lambda route: waiting.append(route))
    window.goto(address)
    while not waiting:
        window.wait_for_timeout(10)
    window.locator("#text").fill(LINE)
    waiting[0].continue_()
    shown(window, LINE)
    window.close()


def test_two_models_translate_what_is_typed_and_in_the_address(page, folders, address):
    page.locator("#text").fill(LINE[:-2])
    page.locator("#text").press_sequentially(LINE[-2:])
    for place, folder in enumerate(folders):
        (best,) = Translator.load(folder).alternatives([LINE], beam_size=4)
        assert shown(page, LINE, place) == best[0].text
        article = page.locator("article").nth(place)
        assert article.locator("h2").inner_text() == str(folder)
        texts = article.locator(".alternatives span").all_inner_texts()
        assert texts == [translation.text or "(empty)" for translation in best]
    assert page.url == f"{address}/#{urlencode({'text': LINE})}"
    page.goto(f"{address}/#{urlencode({'text': TEXT[1], 'beam': 1})}")
    assert shown(page, TEXT[1]) == Translator.load(folders[0]).translate([TEXT[1]], beam_size=1)[0]
    assert page.locator("#beam").input_value() == "1"


def test_a_translation_is_shown_before_its_details_and_copied(page, folders):
    waiting: list = []
    page.route("**/details", lambda route: waiting.append(route))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#model-choice").select_option("1")
    page.locator("#text").fill(LINE)
    (best,) = Translator.load(folders[1]).translate([LINE])
    article = page.locator("article >> visible=true")
    page.wait_for_function("text => document.querySelectorAll('.translation')[1].textContent === text", arg=best)
    assert (article.count(), article.locator(".target button").count()) == (1, 0)
    article.locator(".copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == best
    while not waiting:
        page.wait_for_timeout(10)
    waiting[0].continue_()
    article.locator(".source[data-weights]").wait_for()
    assert page.url.endswith("&model=1")


def test_a_subword_shows_what_it_attends_to_by_pointer_and_keyboard(page, folders):
    article = first_article(page)
    target, source = article.locator(".target button"), article.locator(".source button")
    target.nth(1).hover()
    by_pointer = article.locator(".aligned").inner_text()
    assert " attends to " in by_pointer
    translator = Translator.load(folders[0])
    ids = translator.vocabulary.ids
    subwords = translator.alternatives([LINE], beam_size=4)[0][0].subwords
    maps = translator.engine.attention(ids(translator.subwords([LINE])[0]), ids(subwords))  # type: ignore[attr-defined]
    weights = maps.cross[-1].mean(0)[1]  # of the second subword, in the last layer
    best = int(weights.argmax())
    assert "most" in (source.nth(best).get_attribute("class") or "")
    assert source.nth(best).locator("small").inner_text() == f"{round(100 * weights[best].item())}%"
    page.mouse.move(0, 0)
    target.first.focus()
    page.keyboard.press("ArrowRight")
    assert article.locator(".aligned").inner_text() == by_pointer
    source.first.focus()
    assert "is attended to by" in article.locator(".aligned").inner_text()


@pytest.mark.full
def test_unsure_subwords_are_marked_and_an_alternative_can_be_chosen(page, folders):
    article = first_article(page)
    first, second = details(Model(ModelEntry("first", folders[0])), LINE)[:2]
    pairs = zip(first["target"][:-1], first["probabilities"], strict=False)
    unsure = "".join(subword for subword, probability in pairs if probability < 0.5).replace("▁", "")
    marks = article.locator(".translation mark").all_inner_texts()
    assert (bool(marks), "".join(marks)) == (True, unsure)
    assert article.locator(".unsure-mark").all_inner_texts() == ["?"] * len(marks)
    below = article.locator(".target small").all_inner_texts()
    assert [text.endswith("?") for text in below] == [probability < 0.5 for probability in first["probabilities"]]
    article.locator(".alternatives button").nth(1).click()
    article.locator(".source[data-weights]").wait_for()
    assert article.locator(".target .subword").all_text_contents() == second["target"]


@pytest.mark.full
def test_the_page_survives_odd_texts_and_shows_html_as_text(page):
    box, trouble = page.locator("#text"), page.locator("article .trouble >> nth=0")
    for text in ("Hund 😀👩\u200d👩\u200d👧 <img src=x onerror=alert(1)>", "   ", "wort " * 150, "كلب hund"):
        box.fill(text)
        shown(page, text)
        assert trouble.is_hidden()
        assert page.locator("img").count() == 0
        if "wort" in text:
            page.locator(".unmapped >> nth=0").wait_for()
            assert "Attention is shown for up to" in page.locator(".unmapped >> nth=0").inner_text()
    assert box.evaluate("box => getComputedStyle(box).direction") == "rtl"
    box.fill("")
    assert shown(page, "") == ""
    assert page.locator(".details >> visible=true").count() == 0


@pytest.mark.full
def test_the_page_fits_a_narrow_window(page):
    page.set_viewport_size({"width": 375, "height": 800})
    page.locator("#text").fill(" ".join(TEXT))
    shown(page, " ".join(TEXT))
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == 375
