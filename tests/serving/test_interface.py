"""LibreTranslate's interface: its clients work unchanged, mistakes are refused, nobody gets another's answer."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI
from starlette.testclient import TestClient
from support.servers import free_port, start_server
from support.tiny import ROOT, TEXT, model_folder

from transformer.decoding.config import SearchConfig
from transformer.files import Mistake, sha256
from transformer.inference.ctranslate2_export import add_export
from transformer.inference.documents import texts_of as entry_texts
from transformer.inference.translator import Translator
from transformer.serving import batches, command, fields, gate, kept_files, limits
from transformer.serving import server as server_module
from transformer.serving.fields import Translate
from transformer.serving.limits import MAX_BYTES, line_costs
from transformer.serving.served_model import Model, ModelEntry
from transformer.serving.server import Server, Settings, application
from transformer.text.catalogue import numbers_of_forms

LINE = TEXT[0]


def exported(folder: Path, source: str = "de", target: str = "en", **changes) -> Path:
    """A model folder with the export for CTranslate2, between these languages."""
    folder = model_folder(folder, **changes)
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description | {"source": source, "target": target}))
    add_export(folder, folder, "float32")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """Two model folders of opposite directions."""
    place = tmp_path_factory.mktemp("models")
    return exported(place / "de-en"), exported(place / "en-de", "en", "de", seed=8)


class Process(NamedTuple):
    """A server of both folders."""

    process: subprocess.Popen[str]
    address: str
    log: Path

    def translate(self, text: object, **more: object) -> requests.Response:
        """Ask for a translation from German, as JSON."""
        return requests.post(f"{self.address}/translate", json={"q": text, "source": "de", "target": "en", **more})


def start(place: Path, *folders: Path) -> Process:
    """Start a server of these model folders."""
    return Process(*start_server(place, "transformer", "serve", *folders), place / "server.log")


@pytest.fixture(scope="module")
def server(folders, tmp_path_factory) -> Iterator[Process]:
    """A server process of both directions, which writes nothing but its log."""
    server = start(tmp_path_factory.mktemp("server"), *folders)
    before = {path: sha256(path) for folder in folders for path in folder.iterdir()}
    yield server
    server.process.terminate()
    assert server.process.wait(60) == 0
    assert before == {path: sha256(path) for folder in folders for path in folder.iterdir()}
    assert [path.name for path in server.log.parent.iterdir()] == ["server.log"]
    assert LINE not in server.log.read_text()
    assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def expected(folders) -> str:
    """The translation of LINE."""
    return Translator.load(folders[0]).translate([LINE])[0]


def test_clients_of_libretranslate_work_unchanged(server, folders, expected):
    client = LibreTranslateAPI(server.address)
    assert client.translate(LINE, "de", "en") == expected
    assert client.translate(LINE, "en", "de") == Translator.load(folders[1]).translate([LINE])[0]
    assert {each["language"] for each in client.detect("Der Hund schläft im Haus.")} == {"de", "en"}
    assert client.detect("Der Hund schläft im Haus.")[0]["language"] == "de"
    assert client.languages() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    deep = LibreTranslator(source="de", target="en", api_key="none", custom_url=f"{server.address}/")
    assert deep.translate(LINE) == expected
    assert deep.translate_batch([LINE, TEXT[1]])[0] == expected


def test_a_form_may_leave_the_language_to_the_server(server, expected):
    asked = {"q": LINE, "source": "auto", "target": "en", "format": "text", "alternatives": 3, "api_key": ""}
    answer = requests.post(f"{server.address}/translate", data=asked).json()
    assert (answer["translatedText"], answer["detectedLanguage"]["language"]) == (expected, "de")
    assert 1 <= len(answer["alternatives"]) <= 3
    assert expected not in answer["alternatives"]
    settings = requests.get(f"{server.address}/frontend/settings").json()
    assert (settings["keyRequired"], settings["language"]["source"]["code"]) == (False, "de")


def test_remarks_are_answered_where_they_are_asked_for(server):
    assert "remarks" not in server.translate("Hund 😀").json()
    remarks, blank = server.translate(["Hund 😀", ""], remarks=True).json()["remarks"]
    assert (blank, "not in the training text: 😀" in remarks) == ([], True)
    form = {"q": "Hund 😀", "source": "de", "target": "en", "remarks": "true"}
    assert requests.post(f"{server.address}/translate", data=form).json()["remarks"] == remarks


CATALOGUE = """msgid ""
msgstr "Language: en\\nContent-Type: text/plain; charset=UTF-8\\n"

# left
msgid "a b"
msgstr "done"

msgid "a b c d"
msgstr ""
"""


def test_a_catalogue_is_filled_as_on_the_command_line(server, folders, tmp_path):
    (tmp_path / "a.po").write_text(CATALOGUE)
    files = {"file": ("a.po", (tmp_path / "a.po").read_bytes())}
    asked = {"source": "de", "target": "en"}
    answer = requests.post(f"{server.address}/translate_file", data=asked, files=files)
    assert answer.status_code == 200, answer.text
    words = [sys.executable, "-m", "transformer", folders[0], "--input", "a.po", "--output", "b.po"]
    subprocess.run(words, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert requests.get(answer.json()["translatedFileUrl"]).content == (tmp_path / "b.po").read_bytes()
    files = {"file": ("a.docx", b"x")}
    refused = requests.post(f"{server.address}/translate_file", data=asked, files=files)
    assert (refused.status_code, refused.json()["error"]) == (
        400,
        "Invalid request: file format not supported. Send .txt or .po or .html or .htm or .xhtml.",
    )


def test_a_page_is_translated_as_a_file(server, expected):
    files = {"file": ("a.HTML", f"<p class='a>b'>{LINE}</p><pre>{LINE}</pre>".encode())}
    answer = requests.post(f"{server.address}/translate_file", data={"source": "de", "target": "en"}, files=files)
    page = requests.get(answer.json()["translatedFileUrl"]).text
    assert page == f"<p class='a>b'>{expected}</p><pre>{LINE}</pre>"


def test_a_text_file_keeps_its_lines(server, folders):
    """1,000 lines are allowed; the line feed at the end of the file begins no other."""
    url, asked = f"{server.address}/translate_file", {"source": "de", "target": "en"}
    content = f"{LINE}\r\n\n{TEXT[1]}" + "\n" * 998
    answer = requests.post(url, data=asked, files={"file": ("a.txt", content.encode())})
    first, second = Translator.load(folders[0]).translate([LINE, TEXT[1]])
    assert requests.get(answer.json()["translatedFileUrl"]).text == f"{first}\n\n{second}" + "\n" * 998
    refused = requests.post(url, data=asked, files={"file": ("a.txt", (content + "\n").encode())})
    assert refused.json()["error"] == "1,001 lines are too many. A request may have 1,000: send them in parts."


def test_the_newest_translated_files_are_kept(client, monkeypatch):
    monkeypatch.setattr(kept_files, "MOST_FILES", 2)
    form = {"source": "de", "target": "en", "api_key": "geheim"}
    addresses = [
        client.post("/translate_file", data=form, files={"file": (".txt", b"a")}).json()["translatedFileUrl"]
        for _ in range(3)
    ]
    assert [client.get(address).status_code for address in addresses] == [404, 200, 200]


def test_a_translated_file_is_there_for_all_servers_for_an_hour(folders, tmp_path):
    model = Model(ModelEntry("first", folders[0]))
    apps = [application(Server([model], Settings(("testserver",), files=tmp_path))) for _ in range(2)]
    (tmp_path / "mine.txt").touch()
    with (
        TestClient(apps[0]) as one,
        TestClient(apps[1]) as two,
    ):
        form, files = {"source": "de", "target": "en"}, {"file": ("a.txt", b"a")}
        headers = {"X-Forwarded-Prefix": "/mt/"}
        address = one.post("/translate_file", data=form, files=files, headers=headers).json()["translatedFileUrl"]
        site, _, path = address.partition("/mt/")
        assert (site, two.get(f"/{path}").status_code) == ("http://testserver", 200)
        os.utime(tmp_path / Path(path).name, (0, 0))
        assert two.get(f"/{path}").status_code == 404
        two.post("/translate_file", data=form, files=files)
        assert one.get("/download_file/mine.txt").status_code == 404
    assert len(list(tmp_path.iterdir())) == 2  # the new one, and what is none of its own


def test_a_catalogue_that_takes_long_to_read_stops_nobody(client):
    form = {"source": "de", "target": "en", "api_key": "geheim"}
    long = {"file": ("a.po", b"# a\n" * 20_001)}
    refused = client.post("/translate_file", data=form, files=long)
    assert (refused.status_code, "the server takes 20,000" in refused.json()["error"]) == (400, True)
    server = client.app.state.server
    while server.free_readers.acquire(blocking=False):
        pass
    files = {"file": ("a.po", CATALOGUE.encode())}
    assert client.post("/translate_file", data=form, files=files).status_code == 503
    server.free_readers.release(server_module.READERS)
    for _ in range(3):  # a reader is free again
        assert client.post("/translate_file", data=form, files=files).status_code == 200


def test_texts_of_an_array_and_the_tags_of_html_keep_their_places(server, folders, expected):
    translator = Translator.load(folders[0])
    texts = [LINE, "", TEXT[1], LINE, f"{LINE}\n{TEXT[1]}"]
    answer = server.translate(texts, alternatives=1).json()
    assert answer["translatedText"] == translator.translate(texts)
    assert [len(each) for each in answer["alternatives"]] == [1, 0, 1, 1, 0]
    html = server.translate(f"<p class='a>b'>{LINE}</p><script>{LINE}</script>", format="html").json()
    assert html["translatedText"] == f"<p class='a>b'>{expected}</p><script>{LINE}</script>"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"q": [LINE, None]}, "q[1]=null: Input should be a valid string"),
        ({"q": 1.5}, "q=1.5: Input should be a valid string"),
        ({"q": True}, "q must not be true or false"),
        ({"q": LINE, "beam_size": True}, "beam_size must not be true or false"),
        ({"q": LINE, **{f"x{number}": 1 for number in range(20)}}, "an object of at most 20 fields"),
        ({"q": "a", "beam_size": 64, "extra_length": 1_000}, "beam_size=64 and extra_length=1000 are too much"),
        ({"q": 'Ja!" ' * 260, "beam_size": 5, "extra_length": 880}, "beam_size=5 and extra_length=880 are too much"),
        ({"q": LINE, "beamsize": 3}, "there is no parameter 'beamsize'"),
        ({"q": "", "text": LINE}, "there is no parameter 'text'. There are api_key, secret, q,"),
        ({"q": LINE, "beam_size": 65}, "beam_size=65: Input should be less than or equal to 64"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"q": LINE, "source": None}, "Invalid request: missing source parameter"),
        ({"q": LINE, "source": "xx"}, "xx is not supported. This server has de, en."),
        ({"q": LINE, "target": "de"}, "German (de) is not available as a target language from German (de)"),
        ({"q": ["a"] * 1_001}, "1,001 texts are too many. A request may have 1,000: send them in parts."),
        ({"q": ["a", "x" * 2_001]}, "text 2 has a word of 2,001 characters"),
        ({"q": "x" * 10_001}, "10,001 characters; the server takes 10,000: cut it"),
        ({"q": "xyz " * 1_000}, "subwords; the server takes 1,000: cut it"),
        ({"q": "a\ud800"}, "not text"),
    ],
)
def test_a_mistake_is_answered_with_400_and_a_reason(server, body, message):
    answer = requests.post(f"{server.address}/translate", json={"source": "de", "target": "en", **body})
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_bodies_that_are_no_request_are_refused(server, expected):
    url, good = f"{server.address}/translate", b'{"q": "a", "source": "de", "target": "en"}'
    json_type = {"Content-Type": "application/json"}
    form_type = {"Content-Type": "application/x-www-form-urlencoded"}
    cases = [
        (b'{"q": ', json_type, 400),
        (b"[" * 100_000, json_type, 400),
        (b'["a"]', json_type, 400),
        (good.replace(b"a", b"\xff", 1), json_type, 400),
        (b"q=%ff&source=de&target=en", form_type, 400),
        (good, {}, 400),
        (good, {"Content-Type": "text/plain"}, 400),
        (b"x" * 2**21, json_type, 413),
        (iter([b"x" * 2**19] * 4), json_type, 413),  # of a size that is not known before
        (b"q=a&q=b&source=de&target=en", form_type, 400),
        (good.replace(b"{", b'{"q": "b", '), json_type, 400),
        (good.replace(b'"a"', b"[" + b"1," * 100_000 + b"1]"), json_type, 400),
        (good.replace(b'"de"', b'"\\ud800"'), json_type, 400),
        (b'{"\\ud800": "a"}', json_type, 400),
        (good.replace(b'"de"', b'"\xed\xa0\x80"'), json_type, 400),
        (good.decode().replace('"de"', '"\\ud800"').encode("utf-16-le"), json_type, 400),
    ]
    for body, headers, status in cases:
        answer = requests.post(url, data=body, headers=headers)
        assert (answer.status_code, list(answer.json())) == (status, ["error"])
    java = {
        **json_type,
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAEAAEAAAAIAAAABAA",
    }
    assert requests.post(url, data=good, headers=java).status_code == 200
    assert requests.post(f"{url}?q=b", data=good, headers=json_type).status_code == 400
    assert "Content-Type: application/json" in requests.post(url, data=good, headers=form_type).json()["error"]
    assert requests.get(url).json()["error"] == "Method Not Allowed: use POST"
    for method, path, status in (("PUT", "/translate", 405), ("GET", "/nothing", 404), ("GET", "/docs", 404)):
        answer = requests.request(method, server.address + path)
        assert (answer.status_code, list(answer.json())) == (status, ["error"])
    connection = http.client.HTTPConnection(server.address.partition("://")[2])
    for method, path in (("HEAD", "/"), ("GET", "/health")):  # over one connection
        connection.request(method, path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"" if method == "HEAD" else b'{"status":"ok"}')
    connection.close()
    assert requests.get(f"{server.address}/health", headers={"Origin": "http://["}).status_code == 403
    assert server.translate(LINE).json() == {"translatedText": expected}


def test_a_connection_with_endless_headers_is_closed(server):
    with socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2]))) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nX-Large: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            client.sendall(b"x" * 2**26)


def test_other_names_and_pages_of_other_sites_are_refused(server):
    for host in ("10.evil.example", "127.0.0.1.evil.example:80", "192.168.0.1", "", "localhost.evil.example"):
        answer = requests.get(f"{server.address}/languages", headers={"Host": host})
        assert answer.status_code == 400
    form = {"q": LINE, "source": "de", "target": "en"}
    answer = requests.post(f"{server.address}/translate", data=form, headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert requests.get(f"{server.address}/health", headers={"Host": "10.0.0.7:5002"}).json() == {"status": "ok"}
    own = {"Origin": f"app://{server.address.partition('://')[2]}"}
    assert requests.post(f"{server.address}/translate", data=form, headers=own).status_code == 403


def test_metrics_and_spec_have_the_requests(server):
    server.translate(LINE)
    counts = requests.get(f"{server.address}/metrics").text
    assert 'translation_requests_total{path="/translate",status="200"}' in counts
    assert "translation_sentences_total" in counts
    assert LINE not in counts
    spec = requests.get(f"{server.address}/spec").json()
    assert {"/translate", "/detect", "/languages", "/translate_file", "/frontend/settings"} <= set(spec["paths"])
    operation = spec["paths"]["/translate"]["post"]
    assert operation["operationId"] == "translate_translate_post"
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert {"q", "source", "target", "format", "alternatives"} <= set(body["properties"])
    assert {"400", "403", "413", "503"} <= set(operation["responses"])


@pytest.fixture
def client(folders) -> Iterator[TestClient]:
    """A client of a server in this process, which needs a key."""
    settings = Settings(api_key="geheim", origins=("http://friend.example",))
    server = Server([Model(ModelEntry("first", folders[0]))], settings)
    with TestClient(application(server), base_url="http://localhost") as client:
        client.app.state.server = server
        yield client


def test_with_a_key_only_those_who_have_it_are_answered(client, expected):
    asked = {"q": LINE, "source": "de", "target": "en"}
    for key, status, body in (
        ("", 400, {"error": "Please contact the server operator to get an API key"}),
        ("gehein", 403, {"error": "Invalid API key"}),
        ("geheim", 200, {"translatedText": expected}),
    ):
        answer = client.post("/translate", data={**asked, "api_key": key})
        assert (answer.status_code, answer.json()) == (status, body)
    assert client.post("/detect", json={"q": LINE}).status_code == 400
    form = {"source": "de", "api_key": "gehein"}
    assert client.post("/translate_file", data=form, files={"file": ("a.txt", b"a")}).status_code == 403
    assert client.get("/").status_code == client.post("/translations", json={}).status_code == 404
    assert "needs a key, so it has no page" in client.get("/").json()["error"]
    for size in (1, MAX_BYTES):  # one is refused before it is read
        fields, origin = {**asked, "api_key": "geheim", "secret": "x" * size}, {"Origin": "http://friend.example"}
        answer = client.post("/translate", data=fields, headers=origin)
        assert answer.headers["access-control-allow-origin"] == "http://friend.example"


def test_overload_is_answered_with_503_and_when_to_come_again(client, monkeypatch):
    asked = {"q": [LINE] * 3, "source": "de", "target": "en", "api_key": "geheim", "beam_size": 2}
    cost = sum(line_costs(asked["q"], SearchConfig(beam_size=2)))
    for module in (batches, limits):
        monkeypatch.setattr(module, "MOST_WAITING_COST", cost)
    monkeypatch.setattr(batches, "MOST_BATCH_COST", 1)  # a line a batch, so that the others wait
    begun, go_on = threading.Event(), threading.Event()
    real = Translator.alternatives_of_sentences

    def slow(*given, **settings):
        begun.set()
        assert go_on.wait(60)
        return real(*given, **settings)

    monkeypatch.setattr(Translator, "alternatives_of_sentences", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/translate", json=asked)
        assert begun.wait(60)
        answer = client.post("/translate", json=asked)
        go_on.set()
        assert first.result().status_code == 200
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    answer = client.post("/translate", json={**asked, "q": [LINE] * 4})
    assert (answer.status_code, "are too much for 4 texts of" in answer.json()["error"]) == (400, True)
    assert client.post("/translate", json=asked).status_code == 200


def test_the_lines_of_a_client_that_left_wait_no_longer(folders):
    async def leave() -> int:
        waiting = batches.Batches(Translator.load(folders[0]), ThreadPoolExecutor(1), 1)
        work = asyncio.ensure_future(waiting.translate([LINE], SearchConfig()))
        await asyncio.sleep(0)
        assert len(waiting.waiting) == 1
        work.cancel()
        await asyncio.wait({work})
        return len(waiting.waiting)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, leave()).result() == 0


def test_a_request_that_takes_too_long_ends_with_503(client, monkeypatch):
    monkeypatch.setattr(gate, "SECONDS", -1)  # over when it arrives
    answer = client.post("/translate", json={"q": LINE, "source": "de", "target": "en", "api_key": "geheim"})
    assert answer.status_code == 503
    assert "was ended" in answer.json()["error"]


def test_many_clients_get_each_its_own_answer(server, folders):
    """Also while others leave, and while one sends much and with another beam."""
    translator = Translator.load(folders[0])
    lines = [" ".join(f"{TEXT[n % len(TEXT)]} {letter}" for letter in "abcdefgh"[: 1 + n % 8]) for n in range(40)]
    expected = dict(zip(lines, translator.translate(lines), strict=True))
    greedy = translator.translate(lines, beam_size=1)

    def ask(number: int) -> None:
        line = lines[number % len(lines)]
        if number % 10 == 0:
            with socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2]))) as leaving:
                body = json.dumps({"q": line, "source": "de", "target": "en"}).encode()
                head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
                leaving.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        elif number % 25 == 1:
            assert server.translate(lines * 5, beam_size=1).json()["translatedText"] == greedy * 5
        else:
            assert server.translate(line).json()["translatedText"] == expected[line]

    with ThreadPoolExecutor(16) as clients:
        list(clients.map(ask, range(200)))
    time.sleep(0.2)
    assert "translation_queue 0.0" in requests.get(f"{server.address}/metrics").text


def test_lines_of_waiting_requests_are_translated_in_one_batch(folders, monkeypatch):
    """All requests that wait while others are translated come together; an equal line is translated once."""
    model = Model(ModelEntry("first", folders[0]))
    seen: list[list[str]] = []
    real = Translator.alternatives_of_sentences

    def watched(translator, lines, **settings):
        seen.append(list(lines))
        return real(translator, lines, **settings)

    monkeypatch.setattr(Translator, "alternatives_of_sentences", watched)
    with TestClient(application(Server([model], Settings())), base_url="http://localhost") as client:

        def ask(number: int, line: str) -> None:
            asked = {"q": line, "source": "de", "target": "en", "alternatives": number % 2}
            assert len(client.post("/translate", json=asked).json().get("alternatives", [])) == number % 2

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(20 * len(TEXT)), [*TEXT, *TEXT] * 10))
    assert sum(map(len, seen)) == 20 * len(TEXT)
    assert max(map(len, seen)) > 1


def test_what_one_client_sends_does_not_end_the_request_of_another(client, monkeypatch):
    real = Translator.alternatives_of_sentences

    def broken(translator, lines, **settings):
        if "bad" in lines:
            raise Mistake("no such line")
        return real(translator, lines, **settings)

    monkeypatch.setattr(Translator, "alternatives_of_sentences", broken)

    def ask(line: str) -> int:
        asked = {"q": line, "source": "de", "target": "en", "api_key": "geheim"}
        return client.post("/translate", json=asked).status_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, ["bad", LINE] * 20)) == [400, 200] * 20


def test_sigterm_answers_what_was_begun_and_ends_with_0(folders, tmp_path):
    server = start(tmp_path, folders[0])
    lines = [f"{LINE} {number}" for number in range(900)]
    answers = []
    asking = threading.Thread(target=lambda: answers.append(server.translate(lines, beam_size=8)))
    asking.start()
    while "queue 1.0" not in (counts := requests.get(f"{server.address}/metrics").text) and not answers:
        assert counts
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0
    asking.join()
    assert len(answers[0].json()["translatedText"]) == 900
    assert answers[0].headers["connection"] == "close"


def test_hostile_texts_are_looked_through_once():
    """Each of these took seconds to hours."""
    for entry in ("!" * 300_000 + "a\nb", "a" + " " * 300_000 + "b\nc", "- " + " " * 300_000):
        assert "".join(text.core for text in entry_texts(entry)).count("!") in (0, 300_000)
    tags = "".join(f"<t{n}>" for n in range(50_000))
    assert len(entry_texts(tags + "x" + tags[::-1])) == 1
    assert numbers_of_forms(f"nplurals=2; plural={'+'.join('n' * 100_000)};", 2) is None


@pytest.mark.parametrize(("source", "asked"), [("hsb", "auto"), ("nb", "no"), ("zh-TW", "zh")])
def test_a_source_is_found_by_auto_and_by_its_other_codes(tmp_path, source, asked):
    server = Server([Model(ModelEntry("", exported(tmp_path / "model", source, "en")))], Settings())
    with TestClient(application(server), base_url="http://localhost") as client:
        answer = client.post("/translate", json={"q": LINE, "source": asked, "target": "en"})
    assert answer.status_code == 200
    if asked == "auto":  # py3langid does not know Upper Sorbian
        assert answer.json()["detectedLanguage"] == {"confidence": 0.0, "language": source}


def test_half_a_request_is_given_up(client, monkeypatch):
    async def half(request: object) -> dict:
        await asyncio.sleep(3600)
        return {}

    monkeypatch.setattr(fields, "read_values", half)
    monkeypatch.setattr(fields, "BODY_SECONDS", 0)
    answer = client.post("/translate", json={"q": LINE, "source": "de", "target": "en", "api_key": "geheim"})
    assert (answer.status_code, answer.headers["connection"]) == (408, "close")


def test_a_folder_without_torch_weights_serves_and_shows_no_subwords(folders, tmp_path):
    folder = tmp_path / "int8"
    folder.mkdir()
    for path in (path for path in folders[0].iterdir() if path.suffix != ".safetensors"):
        (folder / path.name).write_bytes(path.read_bytes())
    model = Model(ModelEntry("int8", folder))
    with TestClient(application(Server([model], Settings())), base_url="http://localhost") as client:
        shown = client.post("/translations", json={"model": 0, "text": LINE}).json()["hypotheses"]
        assert shown[0]["text"] == Translator.load(folders[0]).translate([LINE])[0]
        assert (len(shown), shown[0]["subwords"]) == (4, None)
        refused = client.post("/details", json={"model": 0, "text": LINE, "target": []})
        assert (refused.status_code, "need torch" in refused.json()["error"]) == (400, True)


def container_program() -> str:
    """docker or podman, if its daemon answers; skips the test if none does."""
    for program in filter(shutil.which, ("docker", "podman")):
        if subprocess.run([program, "info"], capture_output=True).returncode == 0:
            return program
    pytest.skip("neither docker nor podman answers on this machine")


@pytest.mark.full
def test_the_image_answers_without_torch(folders, tmp_path):
    program, context = container_program(), tmp_path / "context"
    for name in ("transformer", "deploy"):
        shutil.copytree(ROOT / name, context / name)
    for name in ("pyproject.toml", "README.md", "requirements.lock"):
        shutil.copy(ROOT / name, context)
    shutil.copytree(folders[0], context / "model")
    image, port = "translator-of-a-test", free_port()
    words = ["build", "--file", "deploy/Dockerfile.serve", "--build-arg", "MODEL=model", "--tag", image, "."]
    subprocess.run([program, *words], cwd=context, check=True)
    command = [program, "run", "--rm", "--detach", "--publish", f"127.0.0.1:{port}:5002", image]
    container = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    try:
        client = LibreTranslateAPI(f"http://127.0.0.1:{port}")
        while True:
            try:
                assert client.translate(LINE, "de", "en") == Translator.load(folders[0]).translate([LINE])[0]
                break
            except OSError:
                time.sleep(0.5)
    finally:
        subprocess.run([program, "stop", container], check=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--origin", "example.org"], "--origin 'example.org' is not the origin of a site"),
        (["--origin", "https://example.org/page"], "is not the origin of a site"),
        (["--threads", "0"], "--threads 0 is not a number of threads"),
        (["--files", "nowhere"], "--files nowhere is not a folder"),
        (["--name", "*"], r"--name '\*' is not a host name"),
        (["--name", ""], "--name '' is not a host name"),
    ],
)
def test_a_name_or_an_origin_that_cannot_match_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        command.settings_of(options_of(words))


def options_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    return parser.parse_args(words)


def test_the_address_to_listen_on_is_a_name_of_the_server():
    origins = ("moz-extension://3d3a", "app://translator")
    assert command.settings_of(options_of([f"--origin={origin}" for origin in origins])).origins == origins
    assert "192.0.2.2" in command.settings_of(options_of(["--host", "192.0.2.2"])).hosts
    assert "[::2]" in command.settings_of(options_of(["--host", "::2"])).hosts
    assert command.settings_of(options_of(["--host", "0.0.0.0"])).hosts == Settings.hosts
    with command.open_port("127.0.0.1", free_port()) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    for host in ("nobody.invalid", "198.51.100.7"):
        with pytest.raises(ValueError, match=f"--host {host} is no address of this machine"):
            command.open_port(host, free_port())


def test_a_search_has_a_beam_for_each_alternative_and_the_best():
    asked = Translate(q="a", source="de", target="en", alternatives=4)
    assert asked.search(SearchConfig(beam_size=4)) == SearchConfig(beam_size=5)


def test_the_cheapest_line_is_taken_by_any_number_of_threads():
    async def taken() -> int:
        waiting: Any = batches.Batches(None, None, 64)  # type: ignore[arg-type]
        waiting.waiting.append(batches.Job([""], SearchConfig(beam_size=1, extra_length=0)))
        return len(waiting._take_batch())

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, taken()).result() == 1


def test_a_large_request_takes_turns_with_others(monkeypatch):
    monkeypatch.setattr(batches, "MOST_BATCH_COST", 1)

    async def turns() -> bool:
        large, other = batches.Job(["a"] * 2, SearchConfig()), batches.Job(["a"], SearchConfig(beam_size=1))
        waiting: Any = batches.Batches(None, None, 1)  # type: ignore[arg-type]
        waiting.waiting.extend([large, other])
        return [waiting._take_batch()[0][0] for _ in range(3)] == [large, other, large]

    with ThreadPoolExecutor(1) as pool:  # in which no event loop runs
        assert pool.submit(asyncio.run, turns()).result()
