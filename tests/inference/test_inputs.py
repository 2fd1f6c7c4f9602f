"""Odd text is translated as the plain text that it stands for, whichever way it goes in."""

from __future__ import annotations

import io
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from transformer.__main__ import main
from transformer.decoding.config import SearchConfig
from transformer.decoding.hypothesis import Hypothesis
from transformer.inference import translator as translating
from transformer.inference.torch_engine import TorchEngine
from transformer.inference.translator import Translator
from transformer.serving.mlflow_model import ServedTranslator
from transformer.serving.served_model import Model, ModelEntry
from transformer.serving.server import Server, Settings, application

PLAIN = "Zwei Männer spielen Schach ."
PLACES = {  # where a character stands
    "at the start": "{}" + PLAIN,
    "in a word": "Zwei Män{}ner spielen Schach .",
    "between words": "Zwei {} Männer spielen Schach .",
    "at the end": PLAIN + "{}",
}
INVISIBLE = "\u00ad\u200b\u2060\ufeff\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
SPACES = " \t\r\x0b\x0c\x1c\x1d\x1e\x85\xa0\u1680\u2000\u2003\u2009\u2028\u2029\u202f\u205f\u3000"
SENTENCES = [  # a line, and its sentences
    ("Ein Hund rennt. Zwei Männer spielen.", ["Ein Hund rennt.", "Zwei Männer spielen."]),
    ("Rennt ein Hund? Ja! Zwei.", ["Rennt ein Hund?", "Ja!", "Zwei."]),
    ("Ein Hund.\u200b\u3000Zwei Männer.", ["Ein Hund.", "Zwei Männer."]),
    ("Am 3. Mai rennt Dr. Hund z. B. im Gras.", ["Am 3. Mai rennt Dr. Hund z. B. im Gras."]),
]
SAME = [  # what is no other text: it must come through, and as one line
    *("😀", "👩\u200d👩\u200d👧", "می\u200cخواهم", "漢字", "▁", "▂1", "@@", "<s>", "</s>", "<unk>", "<pad>"),
    *("a\x07b", "\x00", "&amp;", "https://a.de/?q=1", "a@b.de", "123456", "%s", "{name}", "Ã¼", "\ufffd"),
    *("-", "12", "3.14", "(2)", "()", "- [ ]", "—", "|", "- Zwei Hunde", "3) Zwei Hunde", "„Zwei Hunde“"),
    *("…", "\u0308", "((((", "=" * 300),
]
ROWS: list[tuple[str, str, list[str]]] = [
    *((f"U+{ord(c):04X} {place}", text.format(c), [PLAIN]) for c in INVISIBLE for place, text in PLACES.items()),
    *(
        (f"U+{ord(c):04X} {place}", text.format(c), [PLAIN])
        for c in SPACES
        for place, text in PLACES.items()
        if place != "in a word"
    ),
    *((f"U+{ord(c):04X} alone", c, []) for c in INVISIBLE[:4] + SPACES[-4:]),
    ("decomposed", unicodedata.normalize("NFD", PLAIN), [PLAIN]),
    ("decomposed and invisible", "Zwei Ma\u00ad\u0308nner spielen Schach .", [PLAIN]),
    ("nothing", "", []),
    *((f"sentences of {line}", line, sentences) for line, sentences in SENTENCES),
    *((f"{text!r} as it is", text, [text]) for text in SAME),
]  # what it is, the line, and the sentences that it stands for
OPTIONS = {"beam_size": 1, "length_penalty": 0.6, "extra_length": 1}
Front = Callable[[list[str]], list[str]]


class Echo(TorchEngine):
    """An engine whose translation of a source is the source, so that the output is what a model sees of the input."""

    def __init__(self) -> None:
        super().__init__([])

    def search(self, sources, config, progress, before_step):
        progress(len(sources))
        return [[Hypothesis(tuple(ids), 0.0, 0.0)] for ids in sources]

    def score(self, sources, targets, progress):
        return [[0.0] * (len(ids) + 1) for ids in targets]


@pytest.fixture(autouse=True)
def echoing(monkeypatch) -> None:
    monkeypatch.setattr(translating, "load_engine", lambda folders, name, vocabulary, threads: Echo())


def through_python(folder: Path, monkeypatch) -> Front:
    return Translator.load(folder).translate


def through_command_line(folder: Path, monkeypatch) -> Front:
    def translate(lines: list[str]) -> list[str]:
        text, output = "".join(f"{line}\n" for line in lines).encode(), io.TextIOWrapper(io.BytesIO())
        monkeypatch.setattr(sys, "argv", ["transformer", str(folder)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        monkeypatch.setattr(sys, "stdout", output)
        main()
        output.seek(0)
        return output.read().split("\n")[:-1]

    return translate


def through_server(folder: Path, monkeypatch) -> Front:
    model = Model(ModelEntry("", folder, SearchConfig(**OPTIONS)))
    source, target = model.languages

    def translate(lines: list[str]) -> list[str]:
        with TestClient(application(Server([model], Settings())), base_url="http://localhost") as client:
            asked = {"q": lines, "source": source, "target": target}
            return client.post("/translate", json=asked).json()["translatedText"]

    return translate


def through_mlflow(folder: Path, monkeypatch) -> Front:
    served = ServedTranslator()
    served.load_context(SimpleNamespace(artifacts={"model": folder}))
    return lambda lines: served.predict(None, lines, OPTIONS)


@pytest.mark.parametrize("front", [through_python, through_command_line, through_server, through_mlflow])
def test_odd_text_is_translated_as_what_it_stands_for(folder, monkeypatch, front):
    assert len(ROWS) >= 120
    translate = front(folder, monkeypatch)
    refused = re.compile("\0|\r(?!$)") if front is through_command_line else re.compile("(?!)")
    rows = [row for row in ROWS if not refused.search(row[1])]
    plain = list(dict.fromkeys(sentence for _, _, sentences in rows for sentence in sentences))
    translations = dict(zip(plain, translate(plain), strict=True))
    assert translations[PLAIN] == PLAIN
    expected = {name: " ".join(translations[sentence] for sentence in sentences) for name, _, sentences in rows}
    assert dict(zip(expected, translate([line for _, line, _ in rows]), strict=True)) == expected


def test_each_sentence_of_a_line_is_cut_once_and_searched_by_itself(folder, monkeypatch):
    translator, texts = Translator.load(folder), []
    words = translator._words
    monkeypatch.setattr(translator, "_words", lambda line: texts.append(line) or words(line))
    line = "Ein Hund. Zwei Hunde."
    translator.translate([line, "", PLAIN, line])
    assert sorted(texts) == sorted(["Ein Hund.", "Zwei Hunde.", PLAIN])
    texts.clear()
    translator.translate([line], split=False)
    assert texts == [line]


def test_a_byte_order_mark_starts_a_file_for_every_model(folder, tmp_path, monkeypatch):
    """Also for a model whose folder names no normal form, to which it is a character elsewhere."""
    shutil.copytree(folder, tmp_path / "other")
    path = tmp_path / "other/model.json"
    path.write_text(path.read_text().replace('"normalise"', '"other"'))
    translate = through_command_line(path.parent, monkeypatch)
    assert translate(["\ufeff" + PLAIN]) == [PLAIN]
    assert translate([PLAIN, "\ufeff" + PLAIN, "Mä\u00adnner"]) == [PLAIN, "<unk>" + PLAIN, "Mä <unk>nner"]
