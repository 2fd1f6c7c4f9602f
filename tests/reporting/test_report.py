"""The report is one self-contained page that escapes its text and is the same for the same run."""

import base64
import json
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from support.attention import attention_of_two
from support.stages import message_of

from pipeline.report import main
from pipeline.workflow.params import Params
from transformer.corpora.filtering import ODD_PAIRS
from transformer.evaluation.buckets import Bucket
from transformer.files import write_json, write_lines
from transformer.reporting import page as report
from transformer.reporting.data_page import data_page
from transformer.reporting.pictures import curves_picture
from transformer.reporting.sentences import Sentences, different_words

ROOT = Path(__file__).parents[2]
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
CURVE = pd.DataFrame(
    {
        "step": range(2, 42, 2),
        "train_loss": [7.123456789 / step for step in range(1, 21)],
        "valid_loss": [None if step % 5 else 5.123456789 / step for step in range(1, 21)],
        "learning_rate": [1e-4 * step for step in range(1, 21)],
    }
)
SCORES = {"bleu": 31.25, "chrf": 55.5, "exact_match": 12.5, "sentences": 60}
SOURCES = [f"Satz {i} steht hier." for i in range(60)]
REFERENCES = [f"Sentence {i} was here." for i in range(60)]
LENGTHS = [[3, 90, 7, *[0] * 23], [5, 95, *[0] * 24]]
FILTERED = {
    "pairs": 100,
    "kept": 96,
    "fired": {"empty": 3, "identical": 2},
    "alone": {"empty": 2, "identical": 1},
    "together": {"empty + identical": 1},
    "length_step": 20,
    "lengths": LENGTHS,
    "repeated": 7,
    "odd": {name: {"pairs": 2 * (name == "invisible"), "examples": []} for name in ODD_PAIRS},
    "examples": {"empty": [{"line": 7, "source": "<script>alert(1)</script>", "target": ""}], "identical": []},
    "others": {"valid": {"pairs": 20, "kept": 19}},
    "overlap": {
        "test": {"lines": 60, "source_exact": 6, "source_near": 3, "target_exact": 0, "target_near": 0, "pairs": 1}
    },
}
SIDE = {
    "sentences": 100,
    "words": 1000,
    "subwords": 1500,
    "subwords_per_word": 1.5,
    "unknown_rate": 0.002,
    "vocabulary_coverage": 0.75,
}
SUBWORDS = {"train": {"source": SIDE, "target": SIDE}}
TEXT = {"source": "de", "target": "en", "lowercase": False, "lowercase_source": False}
HYPOTHESES = [line.replace("was", "is") if i % 2 else line for i, line in enumerate(REFERENCES)]


def page(**changed) -> str:
    """The page of a small run, with some of its values changed."""
    shown = run_report(**changed)
    return report.page(shown, report.charts_of(shown))


def run_report(sources=SOURCES, references=REFERENCES, hypotheses=HYPOTHESES, **changed) -> report.RunReport:
    """What the page of a small run shows, with some values changed."""
    values = {
        "params": vars(Params.load(ROOT / "params.yaml")),
        "training": {"steps": 40, "target_tokens": 12345, "best_valid_loss": 0.256},
        "curves": CURVE,
        "scores": SCORES,
        "margins": {"bleu": 1.75},
        "signatures": {"bleu": SIGNATURE},
        "sentences": Sentences(sources, references, hypotheses, [len(line.split()) for line in sources]),
        "buckets": {"words of the source": [Bucket("1–5", 59, 31.25, 2.5), Bucket("6–10", 1, 0.0, None)]},
        "costs": {"updates": 40, "FLOP, about": 1.25e12},
    }
    return report.RunReport(**(values | changed))


def sentences_in(html: str) -> dict[str, list]:
    """The columns of the test sentences that a page holds."""
    match = re.search(r'id="sentence-data"[^>]*>([^<]*)<', html)
    assert match
    return json.loads(zlib.decompress(base64.b64decode(match[1])))


class Elements(HTMLParser):
    """Every start tag of a page with its attributes, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if not self.tags or self.tags[-1][0] not in ("script", "style"):
            self.text += data


def charts(html: str) -> dict:
    """The Vega-Lite charts that a page draws."""
    match = re.search(r"const charts = (.*), themes = ", html)
    assert match
    return json.loads(match[1])


@pytest.mark.parametrize("make", [page, report.plots_template])
def test_a_page_loads_nothing_from_the_network(make):
    html = make()
    elements = Elements(html)
    assert not [tag for tag in elements.tags if {"src", "href", "srcset", "data", "action"} & set(tag[1])]
    assert "vegaEmbed" in html
    assert "@import" not in html
    assert "url(" not in "".join(re.findall(r"<style>.*?</style>", html, re.DOTALL))


def test_the_policy_of_the_page_forbids_the_network():
    policies = [attributes for tag, attributes in Elements(page()).tags if "http-equiv" in attributes]
    assert policies[0]["content"].startswith("default-src 'none';")
    assert "connect-src" not in policies[0]["content"]


def test_corpus_text_cannot_become_a_part_of_the_page():
    attack = "</script><script>alert('x')</script>&amp;\u2028<i>"
    html = page(sources=[attack] * 60, references=[attack] * 60, hypotheses=[attack] * 60)
    before, after = ([tag for tag, _ in Elements(text).tags] for text in (page(), html))
    assert before == after
    assert sentences_in(html)["hypothesis"] == [attack] * 60


def test_differences_are_found_word_by_word():
    assert different_words("the old man sleeps", "the man sleeps well") == ([1], [3])
    assert different_words("", "a b") == ([], [0, 1])
    assert different_words(" a\u2003b ", "a b") == ([], [])


def test_the_page_holds_all_sentences_or_the_most_telling(monkeypatch):
    complete = page()
    assert sentences_in(complete)["line"] == list(range(1, 61))
    assert "All sentences of the test set." in complete
    text = sentences_in(complete)
    assert (text["source"], text["reference"], text["hypothesis"]) == (SOURCES, REFERENCES, HYPOTHESES)
    assert text["missing"][1] == [2]
    assert text["words"] == [4] * 60
    monkeypatch.setattr(report, "MOST_BYTES", len(complete.encode()) - 100)
    cut = page()
    assert len(cut.encode()) <= report.MOST_BYTES + 200  # its note is longer
    assert 20 <= len(sentences_in(cut)["line"]) < 60
    assert f"{len(sentences_in(cut)['line'])} of 60 sentences of the test set" in cut
    assert "translations.csv" in cut


def test_buckets_are_drawn_and_in_a_table_with_intervals():
    html = page()
    (rows,) = charts(html)["by-words-of-the-source"]["datasets"].values()
    assert [(row["bucket"], row["low"], row["high"]) for row in rows] == [("1–5", 28.75, 33.75), ("6–10", 0, 0)]
    cells = re.sub(r"\s*<", "<", html)
    assert '<th scope="row">1–5</th><td>59</td><td>31.2</td><td>± 2.5</td>' in cells
    assert '<th scope="row">6–10</th><td>1</td><td>0.0</td><td>–</td>' in cells


def test_perplexity_is_drawn_and_bleu_if_the_training_computed_it():
    assert {"loss", "perplexity", "rate"} <= charts(page()).keys()
    assert "bleu" not in charts(page())
    assert "perplexity on valid" in curves_picture(CURVE)
    assert "BLEU on valid" not in curves_picture(CURVE)
    with_bleu = CURVE.assign(valid_bleu=[None if step % 5 else 2.0 * step for step in range(1, 21)])
    (rows,) = charts(page(curves=with_bleu))["bleu"]["datasets"].values()
    assert [row["valid_bleu"] for row in rows] == [10, 20, 30, 40]
    assert "BLEU on valid" in curves_picture(with_bleu)


def test_phenomena_are_drawn_only_if_the_scores_have_some():
    assert "phenomena" not in charts(page())
    assert "Exact match by phenomenon" not in page()
    html = page(scores=SCORES | {"exact_match_word_order": 62.5}, margins={"exact_match_word_order": 2.5})
    ((row,),) = charts(html)["phenomena"]["datasets"].values()
    assert (row["phenomenon"], row["percent"], row["low"], row["high"]) == ("word order", 62.5, 60, 65)
    assert "Exact match by phenomenon" in html


def test_the_plots_template_has_the_placeholders_of_dvc():
    template = report.plots_template()
    assert template.count("{plot_divs}") == 1
    assert "{scripts}" not in template  # DVC would insert addresses of its CDN


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A folder with the files of a finished run."""
    recipe = (ROOT / "params.yaml").read_text(encoding="utf-8")
    texts = {
        f"raw/{split}.{suffix}": lines
        for split in ("valid", "test")
        for suffix, lines in (("src", SOURCES), ("tgt", REFERENCES))
    }
    texts |= {"hypotheses/test.hyp": HYPOTHESES, "hypotheses/valid.hyp": REFERENCES, "vocab.txt": ["<pad>"] * 20}
    texts["tokens/source_counts.txt"] = ["▁Satz 60", "▁steht 12", ". 70"]
    (tmp_path / "params.yaml").write_text(recipe, encoding="utf-8")
    for name, lines in texts.items():
        write_lines(tmp_path / "data" / name, lines)
    remarks = {"test": {"lines": {}, "remarks": ["cut at the length limit: line 3"]}}
    model = {"train_pairs": 2000, "scores": {"test_set": "test", "bleu": 8.0, "chrf": 20.0, "sentences": 60}}
    jsons = {"hypotheses/remarks": remarks, "subwords": SUBWORDS, "tokens/text": TEXT, "attention": attention_of_two()}
    jsons["model/model"] = model
    for name, values in jsons.items():
        write_json(tmp_path / f"data/{name}.json", values)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "reports").mkdir()
    CURVE.to_csv(tmp_path / "reports/training.csv", index=False)
    forms = [{"form": "as it is", "bleu": 40.0, "share": 100.0}, {"form": "small letters", "bleu": 30.0, "share": 75.0}]
    values = {"training": {"steps": 40}, "scores": SCORES, "signatures": {"bleu": SIGNATURE}, "forms": forms}
    for name, content in values.items():
        write_json(tmp_path / f"reports/{name}.json", content)
    return tmp_path


@pytest.mark.full
def test_the_stage_writes_equal_files_without_local_paths(finished, monkeypatch):
    names = ("report.html", "curves.svg", "translations.csv", "charts/loss.svg", "charts/loss.png")
    command, environment = [sys.executable, "-m", "pipeline.report"], {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=finished, env=environment, check=True)
    first = [(finished / "reports" / name).read_bytes() for name in names]
    monkeypatch.chdir(finished)
    monkeypatch.setattr(sys, "argv", ["report"])
    main()
    assert first == [(finished / "reports" / name).read_bytes() for name in names]
    assert not [content for content in first if str(finished).encode() in content or str(ROOT).encode() in content]


def drawn_rows(html: str, chart: str) -> list[dict]:
    """The rows that a chart of the page draws."""
    (rows,) = charts(html)[chart]["datasets"].values()
    return rows


def test_the_page_of_the_stage_has_buckets_costs_and_attention(finished, monkeypatch):
    # 40 sources of 4 words, and 20 of 6 that are translated wrongly. The rarest word of the first 30 occurs 12 times.
    sources = [f"Satz steht {'jetzt noch ' if row >= 40 else ''}da ." for row in range(60)]
    sources = [source if row < 30 else source.replace("Satz", "Bild") for row, source in enumerate(sources)]
    hypotheses = [line if row < 40 else "zzz" for row, line in enumerate(REFERENCES)]
    counts = ["▁Satz 60", "▁steht 12", "▁jetzt 2000", "▁noch 500", "▁da 900", "da 99", "▁. 70"]
    labels = ["odd" if row % 2 else "even odd" for row in range(60)]
    for name, lines in {
        "raw/test.src": sources,
        "hypotheses/test.hyp": hypotheses,
        "raw/test.labels": labels,
        "tokens/source_counts.txt": counts,
    }.items():
        (finished / "data" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    training = {"steps": 40, "target_tokens": 1000}
    (finished / "reports/training.json").write_text(json.dumps(training), encoding="utf-8")
    subwords = {"train": {"source": SIDE, "target": SIDE | {"subwords": 700}}}
    (finished / "data/subwords.json").write_text(json.dumps(subwords), encoding="utf-8")
    scores = SCORES | {"exact_match_odd": 66.7, "exact_match_even": 66.7}
    (finished / "reports/scores.json").write_text(json.dumps(scores), encoding="utf-8")
    monkeypatch.chdir(finished)
    monkeypatch.setattr(sys, "argv", ["report"])
    main()
    html = (finished / "reports/report.html").read_text(encoding="utf-8")
    parts = {row["bucket"]: (row["sentences"], row["bleu"]) for row in drawn_rows(html, "by-words-of-the-source")}
    assert parts == {"1–5": (40, pytest.approx(100)), "6–10": (20, 0)}
    rare = drawn_rows(html, "by-occurrences-in-train-of-the-rarest-word")
    assert [(row["bucket"], row["sentences"]) for row in rare] == [("0", 30), ("10–99", 30)]  # Bild is not in train
    assert 0 < rare[0]["bleu"] < 100 == pytest.approx(rare[1]["bleu"])
    assert all(row["low"] < row["percent"] < row["high"] for row in drawn_rows(html, "phenomena"))
    text = re.sub(r"\s+", " ", Elements(html).text)
    assert "Spent on the training updates40 target tokens1,000 source tokens, about2,000" in text
    assert re.search(r"FLOP, about\d", text)
    assert 'id="attention"' in html
    assert "cut at the length limit: line 3" in text
    assert "BLEU 8.0, chrF 20.0 on 60 sentences of test: its translations are not usable." in text
    assert "What may help More pairs: " in text
    assert "As people type it" in text
    assert "small letters30.075.0%" in re.sub(r" ", "", text).replace("smallletters", "small letters")
    assert "7: the longest (chrF 50.0)" in text


def test_scores_of_the_best_band_get_no_advice(finished, monkeypatch):
    file = finished / "data/model/model.json"
    model = json.loads(file.read_text(encoding="utf-8"))
    monkeypatch.chdir(finished)
    monkeypatch.setattr(sys, "argv", ["report"])
    for bleu, advised in ((49.9, True), (50.0, False)):
        model["scores"]["bleu"] = bleu
        file.write_text(json.dumps(model), encoding="utf-8")
        main()
        assert ("What may help" in (finished / "reports/report.html").read_text(encoding="utf-8")) == advised


def test_a_short_hypothesis_file_ends_in_one_line_and_writes_nothing(finished, monkeypatch):
    monkeypatch.chdir(finished)
    (finished / "data/hypotheses/test.hyp").write_text("only\u2028one\n", encoding="utf-8")
    assert "data/hypotheses/test.hyp has 1 lines, but data/raw/test.tgt has 60" in message_of(main)
    assert not list((finished / "reports").glob("*.html*"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("scores.json", "{"),
        ("scores.json", "[1]"),
        ("training.csv", ",".join(CURVE)),
        ("training.csv", "step\n1,2,3,4\n1,2\n5,6,7,8,9"),
    ],
)
def test_a_broken_file_is_named_in_one_line(finished, monkeypatch, name, content):
    (finished / "reports" / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(finished)
    assert f"reports/{name} is damaged (" in message_of(main)


def test_the_page_of_a_corpus_shows_all_and_escapes_the_text():
    corpus = {
        **TEXT,
        "normalise": "nfc",
        "placeholders": False,
        "max_length": 50,
        "train_pairs": 90,
        "dropped_pairs": 6,
    }
    FILTERED["odd"]["invisible"]["examples"] = [{"line": "3", "source": "Donau\u00addampf", "target": "u\u0308 <i>"}]
    samples = [{"line": "1", "source": "Ein <b>Hund</b>", "target": "a dog"}]
    text = data_page("mytexts", corpus, {**FILTERED, "languages": ["de: looks like nl"]}, SUBWORDS, samples)
    assert "90 are left. de: looks like nl" in text
    assert "<h1>Corpus <span>mytexts, de to en</span></h1>" in text
    assert (
        "100 training pairs, 7 (7.0%) of which occurred before. The filter dropped 4. The stage encode dropped 6, "
        "which have an empty side or more than 50 subwords. 90 are left." in text
    )
    assert "Ein &lt;b&gt;Hund&lt;/b&gt;" in text
    assert "Donau⟨U+00AD⟩dampf" in text
    assert "u⟨U+0308⟩ &lt;i&gt;" in text
    assert 'marks of direction</td><td>2 (2.0%)</td><td class="text">dvc exp run -S normalise=nfc</td>' in text
    assert '<td>7 (7.0%)</td><td class="text">dvc exp run -S filter_duplicates=pair</td>' in text
    assert "<code>normalise: nfc</code>" in text
    assert "<td>an empty side</td><td>3 (3.0%)</td><td>2 (2.0%)</td>" in text
    assert "<td>empty + identical</td><td>1</td>" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert(1)" not in text
    assert "<td>test</td><td>60</td><td>6 (10.0%)</td><td>3 (5.0%)</td><td>0</td><td>0</td><td>1 (1.7%)</td>" in text
    assert "<td>1.500</td><td>0.200%</td><td>75.0%</td>" in text
    assert "http://" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
