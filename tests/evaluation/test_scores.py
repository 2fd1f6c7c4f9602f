"""Scores are right for every language, and scoring downloads nothing."""

from __future__ import annotations

import socket

import pytest
import sentencepiece
from sacrebleu.metrics.bleu import BLEU

from transformer.evaluation import bleu as scoring
from transformer.evaluation.bleu import bleu, bleu_tokenizer
from transformer.evaluation.comparison import System, compare_with_first
from transformer.evaluation.intervals import estimate_exact_match
from transformer.evaluation.scores import corpus_scores, exact_match, sentence_scores

# language: a reference, a translation that shares a part of its words, and one that shares none
LINES = {
    "de": ("Ein Hund läuft im Park.", "Ein Hund läuft im Gras.", "Die Frau schläft heute"),
    "en": ("A dog runs in the park.", "A dog runs in the grass.", "the woman sleeps today"),
    "zh": ("一只狗在公园里跑。", "一只狗在草地上跑。", "她昨天很高兴"),
    "ja": ("犬が公園で走っている。", "犬が庭で走っている。", "昨日とても楽しかった"),
    "ko": ("개가 공원에서 달리고 있다.", "개가 마당에서 달리고 있다.", "어제 매우 즐거웠습니다"),
    "th": ("สุนัขวิ่งอยู่ในสวนสาธารณะ", "สุนัขวิ่งอยู่ในสนามหญ้า", "เธอหลับเมื่อวาน"),
    "lo": ("ໝາແລ່ນຢູ່ໃນສວນສາທາລະນະ", "ໝາແລ່ນຢູ່ໃນສະໜາມຫຍ້າ", "ນາງຫຼັບ"),
    "km": ("ឆ្កែរត់នៅក្នុងសួនច្បារ", "ឆ្កែរត់នៅក្នុងវាលស្មៅ", "នាងគេង"),
    "my": ("ခွေးသည်ပန်းခြံထဲတွင်ပြေးနေသည်", "ခွေးသည်မြက်ခင်းထဲတွင်ပြေးနေသည်", "ဟုတ်ကဲ့"),
    "bo": ("ཁྱི་གླིང་ཁའི་ནང་རྒྱུག་གི་འདུག", "ཁྱི་རྩྭ་ཐང་ནང་རྒྱུག་གི་འདུག", "ལགས་སོ"),
}
SIGNATURES = {"de": "13a", "en": "13a", "zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """No network, and an empty folder of sacreBLEU."""
    monkeypatch.setattr(scoring, "SACREBLEU_DIR", str(tmp_path / "sacrebleu"))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path / "sacrebleu"))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("scoring uses the network"))


@pytest.mark.parametrize("language", LINES)
def test_a_translation_that_shares_words_scores_between_none_and_all(language):
    reference, near, far = LINES[language]
    exact, some, none = (bleu([line] * 20, [reference] * 20, language) for line in (reference, near, far))
    assert exact == pytest.approx(100)
    assert 20 < some < 95
    assert none < 5


@pytest.mark.parametrize("language", LINES)
def test_the_signature_names_the_tokenizer_of_the_language(language):
    reference, near, _ = LINES[language]
    scores, signatures = corpus_scores([near] * 5, [reference] * 5, language)
    assert f"|tok:{SIGNATURES.get(language, 'char')}" in signatures["bleu"]
    assert scores["bleu"] == round(bleu([near] * 5, [reference] * 5, language), 4)
    remark = bleu_tokenizer(language)[1]
    assert bool(remark) == (language not in SIGNATURES)
    assert "flores200sacrebleuspm is missing" in remark or language in SIGNATURES
    assert ("bleu_lc_tok" in scores) == (language in ("de", "en", "zh"))  # the others need packages for spaCy
    assert ("ter" in scores) == (language in SIGNATURES)


def test_only_bleu_lc_tok_ignores_case():
    reference = LINES["en"][0]
    scores, _ = corpus_scores([reference.upper()] * 5, [reference] * 5, "en")
    assert scores["bleu_lc_tok"] == 100
    assert scores["bleu"] < 50


def test_a_code_with_a_region_is_scored_as_its_language():
    reference, near, _ = LINES["zh"]
    assert corpus_scores([near], [reference], "zh-TW")[0]["ter"] == corpus_scores([near], [reference], "zh")[0]["ter"]
    for code in ("zh-TW", "zh_CN", "zho", "yue"):
        assert bleu_tokenizer(code) == bleu_tokenizer("zh")
    assert bleu([near], [reference], "zho") == bleu([near], [reference], "zh")


def test_flores200_is_used_where_its_file_is(tmp_path):
    text = tmp_path / "lines.txt"
    text.write_text("\n".join(line for lines in LINES.values() for line in lines), encoding="utf-8")
    model = tmp_path / "sacrebleu/models"
    model.mkdir(parents=True)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(model / "m"), vocab_size=250, hard_vocab_limit=False
    )
    (model / "m.model").rename(model / "flores200sacrebleuspm")
    reference, near, _ = LINES["th"]
    assert bleu_tokenizer("th") == ("flores200", "")
    _, signatures = corpus_scores([near], [reference], "th")
    assert "|tok:flores200|" in signatures["bleu"]


def test_a_missing_package_of_a_tokenizer_is_named(monkeypatch):
    monkeypatch.setattr(scoring, "find_spec", lambda name: None)
    name, remark = bleu_tokenizer("ja")
    assert name == "char"
    assert remark.startswith("the module MeCab is missing, which sacreBLEU needs for ja (tokenizer ja-mecab). ")
    assert "pip install 'sacrebleu[ja]'" in remark


def test_a_comparison_tests_the_bleu_of_the_target_language():
    reference, near, far = LINES["zh"]
    systems = [System(name, {"target": "zh"}, {}, hypotheses=[line] * 30) for name, line in (("a", far), ("b", near))]
    rows = compare_with_first(systems, [reference] * 30)
    assert rows[1]["bleu"] == round(BLEU(tokenize="zh").corpus_score([near] * 30, [[reference] * 30]).score, 2)
    assert rows[1]["p_randomisation"] < 0.05


def test_sentence_chrf_is_the_mean_over_character_n_grams():
    # Of "thecat" and "thedog", 3 of 6 characters, 2 of 5 pairs and 1 of 4 triples are the same, and none of the longer
    # ones. Precision equals recall. chrF++ would count words too.
    assert sentence_scores(["the cat", "the dog"], ["the dog", "the dog"]) == [
        pytest.approx(100 * (3 / 6 + 2 / 5 + 1 / 4) / 6),
        pytest.approx(100),
    ]


def test_pairs_that_are_blank_on_both_sides_are_no_exact_match():
    assert exact_match(["a", "", "b", ""], ["a", "", "c", "d"]) == pytest.approx(100 / 3, abs=1e-3)
    assert exact_match(["", ""], ["", ""]) == 0
    assert estimate_exact_match(["a", "", "b"], ["a", "", "c"]).score == 50
