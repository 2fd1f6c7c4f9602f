"""The report is one self-contained page that escapes its text and is the same for the same run."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from support.attention import attention_of_two

from pipeline.report import main
from pipeline.shared.stage import run
from transformer.reporting import charts as drawn
from transformer.reporting import page as report
from transformer.reporting.data_page import data_page

ROOT = Path(__file__).parents[2]
PARAMS = {"corpus": "toy", "source": "de", "target": "en", "layers": 2, "d_model": 64, "heads": 4, "max_steps": 40}
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
    "pairs": 100, "kept": 96, "fired": {"empty": 3, "identical": 2}, "alone": {"empty": 2, "identical": 1},
    "together": {"empty + identical": 1}, "length_step": 20, "lengths": LENGTHS,
    "examples": {"empty": [{"line": 7, "source": "<script>alert(1)</script>", "target": ""}], "identical": []},
    "others": {"valid": {"pairs": 20, "kept": 19}}, "found": [],
    "overlap": {"test": {"lines": 60, "source_exact": 6, "source_near": 3, "target_exact": 0, "target_near": 0,
                         "pairs": 1}},
}  # fmt: skip
SIDE = {"words": 1000, "subwords": 1500, "subwords_per_word": 1.5, "unknown_rate": 0.002, "vocabulary_coverage": 0.75}
SUBWORDS = {"train": {"source": SIDE, "target": SIDE}}
HYPOTHESES = [line.replace("was", "is") if i % 2 else line for i, line in enumerate(REFERENCES)]


def page(**changed) -> str:
    """The page of a small run, with some of its values changed."""
    values = {
        "params": PARAMS,
        "training": {"steps": 40, "target_tokens": 12345, "best_valid_loss": 0.256},
        "curves": CURVE,
        "scores": SCORES,
        "signatures": {"bleu": SIGNATURE},
        "sources": SOURCES,
        "references": REFERENCES,
        "hypotheses": HYPOTHESES,
    }
    return report.page(report.RunReport(**(values | changed)))


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
    found = re.search(r"const charts = (.*), themes = ", html)
    assert found
    return json.loads(found[1])


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


def test_corpus_text_is_escaped():
    attack = "<script>alert('x')</script>&amp;\u2028<i>"
    html = page(sources=[attack] * 60, references=[attack] * 60, hypotheses=[attack + "</td>"] * 60)
    assert attack.split("\u2028")[0] not in html
    before, after = ([tag for tag, _ in Elements(made).tags] for made in (page(), html))
    assert "i" not in after
    assert [after.count(tag) for tag in ("script", "td")] == [before.count(tag) for tag in ("script", "td")]
    assert Elements(html).text.count("<script>alert('x')</script>&amp;") >= 3


def test_a_phenomenon_cannot_close_the_script():
    html = page(scores=SCORES | {"exact_match_</script><img>": 50.0})
    assert "img" not in [tag for tag, _ in Elements(html).tags]


def test_equal_runs_give_equal_bytes():
    assert page() == page()
    assert drawn.picture(CURVE) == drawn.picture(CURVE)
    assert report.plots_template() == report.plots_template()


def test_the_worst_sentence_is_shown_with_its_difference_marked():
    hypotheses = [*HYPOTHESES[:37], "Zzz qqq.", *HYPOTHESES[38:]]
    html = page(hypotheses=hypotheses)
    assert "<mark>Zzz</mark> <mark>qqq.</mark>" in html
    first = re.search(r"<tbody>\s*<tr><td[^>]*>(\d+)</td>", html)
    assert first
    assert first[1] == "38"


def test_differences_are_found_word_by_word():
    reference, hypothesis = report.mark_differences("the old man sleeps", "the man sleeps well")
    assert [word for word, differs in reference if differs] == ["old"]
    assert [word for word, differs in hypothesis if differs] == ["well"]


def test_sentences_are_chosen_from_the_whole_test_set():
    chosen = report.choose([float(i % 7) for i in range(1000)], [5] * 1000)
    assert [len(chosen[title]) for title in ("The worst", "The best", "Evenly spaced")] == [10, 10, 20]
    assert chosen["Evenly spaced"] == list(range(25, 1000, 50))
    assert report.choose([1.0, 2.0], [1, 1]) == {"The worst": [0, 1], "The best": [1, 0], "Evenly spaced": [0, 1]}


def test_phenomena_are_drawn_only_if_the_scores_have_some():
    assert "phenomena" not in charts(page())
    assert "Exact match by phenomenon" not in page()
    html = page(scores=SCORES | {"exact_match_word_order": 62.5})
    assert {"phenomenon": "word order", "percent": 62.5} in next(iter(charts(html)["phenomena"]["datasets"].values()))
    assert "Exact match by phenomenon" in html


def test_every_validation_of_a_long_run_is_drawn():
    steps = 20_000
    long = pd.DataFrame({"step": range(steps), "train_loss": 1.0, "valid_loss": None, "learning_rate": 0.1})
    long.loc[[137, 1371], "valid_loss"] = 2.5
    kept = drawn.thin(long)
    assert {137, 1371, steps - 1} <= set(kept["step"])
    assert len(kept) <= 1003


def test_a_score_is_shown_with_its_signature():
    text = re.sub(r"\s+", " ", Elements(page()).text)
    assert f"31.2 BLEU test {SIGNATURE}" in re.sub(r"(\d)BLEU", r"\1 BLEU", text)


def test_different_numbers_of_lines_are_refused():
    with pytest.raises(ValueError, match="60 source, 60 reference and 59 hypothesis") as refused:
        page(hypotheses=HYPOTHESES[1:])
    assert "\n" not in str(refused.value)


def test_a_missing_column_is_named_in_the_error():
    with pytest.raises(ValueError, match="column valid_loss is missing"):
        drawn.picture(CURVE.drop(columns="valid_loss"))


def test_the_plots_template_has_the_placeholders_of_dvc():
    template = report.plots_template()
    assert template.count("{plot_divs}") == 1
    assert "{scripts}" not in template  # DVC would insert addresses of its CDN


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A folder with the files of a finished run."""
    recipe = (ROOT / "params.yaml").read_text(encoding="utf-8")
    texts = {"raw/test.src": SOURCES, "raw/test.tgt": REFERENCES, "hypotheses/test.hyp": HYPOTHESES}
    (tmp_path / "params.yaml").write_text(recipe, encoding="utf-8")
    for name, lines in texts.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    held = {"filtered/filter": FILTERED, "subwords": SUBWORDS, "attention": attention_of_two()}
    for name, values in held.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"data/{name}.json").write_text(json.dumps(values), encoding="utf-8")
    (tmp_path / "reports").mkdir()
    CURVE.to_csv(tmp_path / "reports/training.csv", index=False)
    for name, values in {"training": {"steps": 40}, "scores": SCORES, "signatures": {"bleu": SIGNATURE}}.items():
        (tmp_path / f"reports/{name}.json").write_text(json.dumps(values), encoding="utf-8")
    return tmp_path


def error_of_stage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The message with which the stage report ends in this folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["report"])
    with pytest.raises(SystemExit) as ended:
        run(main)
    return str(ended.value.code)


def test_the_stage_writes_the_same_files_twice_and_no_path_of_the_machine(finished, monkeypatch):
    names = ("report.html", "curves.svg")
    command, environment = [sys.executable, "-m", "pipeline.report"], {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=finished, env=environment, check=True)
    first = [(finished / "reports" / name).read_bytes() for name in names]
    monkeypatch.chdir(finished)
    monkeypatch.setattr(sys, "argv", ["report"])
    main()
    assert first == [(finished / "reports" / name).read_bytes() for name in names]
    assert not [content for content in first if str(finished).encode() in content or str(ROOT).encode() in content]


def test_a_short_hypothesis_file_ends_in_one_line_and_writes_nothing(finished, monkeypatch):
    (finished / "data/hypotheses/test.hyp").write_text("only\u2028one\n", encoding="utf-8")
    message = error_of_stage(finished, monkeypatch)
    assert "data/hypotheses/test.hyp: 1 lines, but data/raw/test.tgt has 60" in message
    assert "\n" not in message
    assert not list((finished / "reports").glob("*.html*"))


@pytest.mark.parametrize("name", ["reports/scores.json", "reports/training.csv", "data/raw/test.src"])
def test_a_missing_file_is_named_with_the_remedy(finished, monkeypatch, name):
    (finished / name).unlink()
    message = error_of_stage(finished, monkeypatch)
    assert name in message
    assert "dvc repro" in message
    assert "\n" not in message


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
    message = error_of_stage(finished, monkeypatch)
    assert f"reports/{name}: " in message
    assert "\n" not in message


def test_the_page_of_a_corpus_shows_what_was_dropped_found_and_cut_and_escapes_the_text():
    text = data_page(FILTERED, SUBWORDS, ("de", "en"), "files")
    assert "100 training pairs. The filter kept 96 and dropped 4." in text
    assert "<td>an empty side</td><td>3 (3.0%)</td><td>2 (2.0%)</td>" in text
    assert "<td>empty + identical</td><td>1</td>" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert(1)" not in text
    assert "<td>test</td><td>60</td><td>6 (10.0%)</td><td>3 (5.0%)</td><td>0</td><td>0</td><td>1 (1.7%)</td>" in text
    assert "<td>1.500</td><td>0.200%</td><td>75.0%</td>" in text
    assert "http://" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)


def test_the_page_of_a_run_has_a_score_for_each_test_set_if_there_are_several():
    scores = {"bleu": 30.0, "bleu_news": 30.0, "bleu_talks": 20.0, "bleu_lc_tok": 31.0, "valid_bleu": 25.0}
    shown = [(one["label"], one["on"], one["value"]) for one in report.tiles(scores, {})]
    assert ("BLEU", "talks", "20.0") in shown
    assert ("BLEU", "news", "30.0") in shown
    alone = [one["on"] for one in report.tiles({"bleu": 30.0, "bleu_test": 30.0, "bleu_lc_tok": 31.0}, {})]
    assert alone == ["test", "test, lower-cased words"]
