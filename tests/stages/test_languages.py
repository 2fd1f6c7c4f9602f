"""A whole pipeline from English to Chinese."""

from __future__ import annotations

import csv
import itertools
import json
import random
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU
from support.projects import command, commit_all, copied_project, params_file

from transformer.files import read_lines

pytestmark = pytest.mark.full

WHO = {"a dog": "一只狗", "the cat": "那只猫", "a man": "一个男人", "the woman": "那个女人", "a child": "一个孩子"}
DOES = {"runs": "跑步", "sleeps": "睡觉", "reads": "读书", "sings": "唱歌", "swims": "游泳"}
WHERE = {"in the park": "在公园里", "at home": "在家", "in the river": "在河里", "at school": "在学校"}
WHEN = {"today": "今天", "at night": "晚上", "in summer": "夏天", "early": "很早", "late": "很晚", "often": "经常"}


def chinese_corpus(folder: Path) -> None:
    """500 training pairs of a small grammar, English to Chinese, and other sentences of it to validate and test."""
    folder.mkdir()
    pairs = [
        (f"{who} {does} {where} {when}.", f"{WHEN[when]}{WHO[who]}{WHERE[where]}{DOES[does]}。")
        for who, does, where, when in itertools.product(WHO, DOES, WHERE, WHEN)
    ]
    random.Random(3).shuffle(pairs)
    splits = {"train": pairs[:500], "valid": pairs[500:550], "test": pairs[550:]}
    for split, rows in splits.items():
        for place, code in enumerate(("en", "zh")):
            text = "".join(row[place] + "\n" for row in rows)
            (folder / f"{split}.{code}").write_text(text, encoding="utf-8")


def test_chinese_has_the_right_scores_and_ends_early(tmp_path):
    project = tmp_path / "project"
    copied_project(project)
    chinese_corpus(project / "own")
    sizes = {"d_model": 64, "d_ff": 128, "layers": 2, "heads": 4, "bpe_merges": 200}
    steps = {"max_steps": 600, "save_every": 20, "log_every": 10, "warmup": 60, "patience": 4, "best_by": "bleu"}
    tokens = {"batch_tokens": 1024, "device_tokens": 1024, "extra_length": 20}
    dropout = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    settings = sizes | steps | tokens | dropout
    params_file(project, source="en", target="zh", optimiser="muon", lr_factor=0.5, **settings)
    commit_all(project)
    command(project, "dvc", "repro")
    chinese = BLEU(tokenize="zh")
    scores = json.loads((project / "reports/scores.json").read_text())
    for split, name in (("valid", "valid_bleu"), ("test", "bleu")):
        lines, references = (
            list(read_lines(project / path)) for path in (f"data/hypotheses/{split}.hyp", f"data/raw/{split}.tgt")
        )
        assert scores[name] == pytest.approx(chinese.corpus_score(lines, [references]).score, abs=1e-3)
        assert scores[name] > 60
    assert "|tok:zh|" in json.loads((project / "reports/signatures.json").read_text())["bleu"]
    with open(project / "reports/training.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["valid_bleu"]]
    bleus = [float(row["valid_bleu"]) for row in rows]
    best = bleus.index(max(bleus))
    steps = [int(row["step"]) for row in rows]
    assert steps[-1] == min(600, steps[best] + 4 * 20)
    assert steps[best] > 20  # by 13a the first validation is the best: all of them are 0
    assert json.loads((project / "reports/training.json").read_text())["best_step"] == steps[best]
