"""Results that stages might have just made: in a project's folder, in its dvc.lock, in a commit and in DVC's cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from support.projects import command, commit_all, params_file

STAGES = """\
stages:
  download: {cmd: 'true', deps: [own], outs: [data/raw, data/back]}
  train:
    cmd: 'true'
    deps: [data/raw, transformer]
    params: [warmup, seed, versions.yaml: [torch]]
    outs: [data/model, reports/environment.json, reports/samples.csv]
    metrics: [reports/training.csv: {cache: false}]
  translate: {cmd: 'true', deps: [data/model, data/raw], params: [beam_size], outs: [data/hypotheses]}
  score:
    cmd: 'true'
    deps: [data/raw, data/hypotheses]
    outs: [reports/signatures.json, reports/forms.json]
    metrics: [reports/scores.json: {cache: false}]
  compare_engines: {cmd: 'true', deps: [data/model], metrics: [reports/engines.json: {cache: false}]}
  report:
    cmd: 'true'
    deps: [reports/scores.json, reports/training.csv]
    params: [params.yaml: ]
    outs: [reports/report.html, reports/attention.svg, reports/translations.csv]
"""
REFERENCES = "a b c d\ne f g h\ni j k l\n"
IGNORED = "/data\n/work\n/mlflow.db*\n/mlartifacts\n/reports/*.html\n/reports/*.svg\n/reports/*.csv\n/reports/com*\n"
TEXTS = {
    "own/train.de": "eins\n",
    "transformer/loss.py": "SMOOTHING = 0.1\n",
    "versions.yaml": 'torch: "2.13.0"\n',
    **{f"data/raw/{split}.{side}": REFERENCES for split in ("train", "valid", "test") for side in ("src", "tgt")},
    "data/back/back.json": "{}\n",
    "data/model/model.json": '{"train_key": "key"}\n',
    "data/hypotheses/valid.hyp": REFERENCES,
    "data/hypotheses/test.hyp": REFERENCES,
    "reports/environment.json": '{"cpu": "A", "threads": 1}\n',
    "reports/training.csv": "step,train_loss,valid_loss\n10,2.5,\n20,2.0,1.5\n",
    "reports/samples.csv": "step\n20\n",
    "reports/scores.json": '{"bleu": 100.0, "valid_bleu": 100.0}\n',
    "reports/signatures.json": '{"bleu": "tok:13a"}\n',
    "reports/forms.json": '[{"form": "as it is", "bleu": 100.0, "share": 100.0}]\n',
    "reports/engines.json": '{"engines_agree": true}\n',
    "reports/report.html": "<p>report</p>\n",
    "reports/attention.svg": "<svg/>\n",
    "reports/translations.csv": "line,chrf\n1,100.0\n",
}


def start_project(folder: Path) -> None:
    """Make a folder a project without results, in git."""
    params_file(folder)
    (folder / "dvc.yaml").write_text(STAGES)
    (folder / ".gitignore").write_text(IGNORED)
    commit_all(folder)
    command(folder, "dvc", "init", "--quiet")


def commit_result(folder: Path, tag: str, model: Path | None = None, files: dict[str, str] | None = None, **knobs):
    """Commit a result under a tag. model: the model folder; None: a file. files: path -> text, in place of TEXTS."""
    params_file(folder, **knobs)
    shutil.rmtree(folder / "data", ignore_errors=True)
    for name, text in {**TEXTS, **(files or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)  # which may be a link into DVC's cache
        (folder / name).write_text(text)
    if model is not None:
        shutil.copytree(model, folder / "data/model", dirs_exist_ok=True)
        values = json.loads((model / "model.json").read_text(encoding="utf-8"))
        (folder / "data/model/model.json").write_text(json.dumps({**values, "train_key": "key"}))
    command(folder, "dvc", "commit", "--force", "--quiet")
    command(folder, "git", "add", "-A")
    command(folder, "git", "commit", "-qm", tag)
    command(folder, "git", "tag", tag)
