"""Stages over other corpora: IWSLT's own format, several training files, several workers, kills before training."""

from __future__ import annotations

import html
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest
from support.projects import command, commit_all, copied_project, own_corpus, params_file
from support.stages import processes_in, start, wait_until
from support.tiny import ROOT, stage

from transformer.corpora.fetching import fetch_all
from transformer.corpora.manifest import Manifest
from transformer.files import read_lines, sha256, write_json

WIT3 = Path(os.environ.get("WIT3_MIRROR", ROOT / "shared" / "wit3"))
STAGES = ("filter", "tokenise", "learn_bpe", "build_vocab", "encode")
OUTS = ("data/filtered", "data/tokens", "data/bpe.codes", "data/vocab.txt", "data/ids")
MANIFEST = (sys.executable, "-m", "pipeline", "manifest")


def iwslt_mirror(folder: Path, monkeypatch) -> Path:
    """A mirror of iwslt2017: the real test archives, and a training archive in IWSLT's format made from tst2017."""
    monkeypatch.setenv("CORPUS_MIRROR", str(WIT3))
    manifest = Manifest.load(ROOT / "corpora/iwslt2017.json")
    places = fetch_all(manifest.downloads(["tst2017"], "de", "en"), folder / "got", lambda count: None)
    pairs = [pair for text in manifest.texts("tst2017", "de", "en", places) for pair in text.pairs()]
    shutil.copytree(WIT3, folder / "mirror")
    archive = folder / "mirror/huggingface.co/datasets/IWSLT/iwslt2017/resolve/main/data/2017-01-trnted/texts/de/en"
    archive.mkdir(parents=True)
    with zipfile.ZipFile(archive / "de-en.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for side, code in enumerate(("de", "en")):
            lines = [pair[side] for pair in pairs]
            talk = "<url>http://x</url>\n<title>T</title>\n" + "".join(f"{line}\n" for line in lines) + "<reviewer/>\n"
            file.writestr(f"de-en/train.tags.de-en.{code}", talk)
            rows = "".join(f'<seg id="{n}"> {html.escape(line)} </seg>\n' for n, line in enumerate(lines[:20], 1))
            text = f'<?xml version="1.0"?><mteval><srcset><doc>{rows}</doc></srcset></mteval>'
            for name in ("dev2010", *(f"tst{year}" for year in range(2010, 2016))):
                file.writestr(f"de-en/IWSLT17.TED.{name}.de-en.{code}.xml", text)
    return folder / "mirror"


@pytest.mark.skipif(not WIT3.is_dir(), reason="no mirror of WIT3: set WIT3_MIRROR to its folder")
def test_iwslt2017_goes_from_its_archives_to_scores(tmp_path, monkeypatch):
    mirror, project = iwslt_mirror(tmp_path, monkeypatch), tmp_path / "project"
    copied_project(project)
    monkeypatch.setenv("CORPUS_MIRROR", str(mirror))
    tiny = {"max_steps": 4, "save_every": 2, "log_every": 2, "bpe_merges": 300, "max_length": 60}
    params_file(project, **tiny, corpus="corpora/iwslt2017.json", test_sets="tst2017 tst2016 tst2010")
    done = stage("download", project)
    assert "has no sha256 of de-en.zip. `python -m pipeline manifest corpora/iwslt2017.json` fetches" in done.stderr
    output = command(project, *MANIFEST, "corpora/iwslt2017.json")
    assert "(nobody published a sum of it: trusted on first use)" in output
    assert "corpora/iwslt2017.json was written. It still lacks de-en.tgz." in output
    commit_all(project)
    command(project, "dvc", "repro")
    assert len(list(read_lines(project / "data/raw/train.src"))) == 1138
    assert len(list(read_lines(project / "data/hypotheses/tst2016.hyp"))) == 1133
    scores = json.loads((project / "reports/scores.json").read_text())
    assert scores["bleu"] == scores["bleu_tst2017"]
    assert {"bleu_tst2016", "bleu_tst2010"} <= scores.keys()
    overlap = json.loads((project / "data/filtered/filter.json").read_text())["overlap"]
    assert overlap["tst2017"]["source_exact"] > 1000  # the training text is this test set
    assert overlap["tst2016"]["source_exact"] < 50


def test_a_manifest_that_cannot_be_completed_stays_as_it_is(tmp_path):
    record = {
        "bases": ["https://x.invalid"],
        "splits": {},
        "files": {"a.gz": {"addresses": ["https://x.invalid/a.gz"], "size": None, "sha256": None}},
    }
    (tmp_path / "corpora").mkdir()
    write_json(tmp_path / "corpora/mine.json", record)
    places = {"PYTHONPATH": str(ROOT), "CORPUS_MIRROR": str(tmp_path / "nowhere")}
    output = command(tmp_path, *MANIFEST, "corpora/mine.json", status=1, **places)
    assert "corpora/mine.json stays as it is: none of a.gz can be fetched." in output
    assert json.loads((tmp_path / "corpora/mine.json").read_text()) == record


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A folder with data/raw of two blocks of short pairs, some empty, and the outs of the stages by one worker."""
    folder, chance = tmp_path_factory.mktemp("corpus"), random.Random(3)
    words = ["".join(chance.choices("abcdefgh", k=chance.randint(1, 7))) for _ in range(60_000)]
    (folder / "data/raw").mkdir(parents=True)
    (folder / "data/raw/train.files.json").write_text("[]")
    for split, count in (("train", 40_000), ("valid", 50), ("test", 50)):
        for side in ("src", "tgt"):
            lines = (" ".join(chance.choices(words, k=chance.randint(0, 9))) for _ in range(count))
            (folder / f"data/raw/{split}.{side}").write_text("".join(f"{line}\n" for line in lines))
    params_file(folder, test_sets="test", bpe_merges=500, filter_duplicates="side")
    for name in STAGES:
        done = stage(name, folder, env={"WORKERS": "1"})
        assert done.returncode == 0, done.stderr
    return folder


def outs(folder: Path) -> dict[str, str]:
    """The hash of each out of the stages before training."""
    return {out: sha256(folder / out) for out in OUTS}


@pytest.mark.full
@pytest.mark.parametrize("name", STAGES)
def test_a_killed_stage_leaves_no_out_and_no_process(corpus, tmp_path, monkeypatch, name):
    monkeypatch.setenv("WORKERS", "3")
    shutil.copytree(corpus / "data", tmp_path / "data")
    shutil.copy(corpus / "params.yaml", tmp_path)
    out = tmp_path / OUTS[STAGES.index(name)]
    shutil.rmtree(out) if out.is_dir() else out.unlink()
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = start(name, tmp_path, stdout=subprocess.DEVNULL)
        wait_for_work(process, alone=name == "learn_bpe")
        process.send_signal(number)
        process.communicate()
        assert process.returncode == -number
        assert not out.exists()
        wait_until(lambda: not processes_in(tmp_path))
    assert stage(name, tmp_path).returncode == 0
    assert outs(tmp_path) == outs(corpus)


def wait_for_work(process: subprocess.Popen, alone: bool) -> None:
    """Wait until a stage has started other processes, or, if it works alone, has computed for a second."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")  # psutil's list is slower than a short stage

    def works() -> bool:
        assert process.poll() is None
        return psutil.Process(process.pid).cpu_times().user > 1 if alone else len(children.read_text().split()) >= 2

    wait_until(works)


@pytest.mark.full
def test_a_line_of_several_training_files_is_named_by_its_file(tmp_path):
    (tmp_path / "own").mkdir()
    for stem in ("train", "train-b", "valid", "test"):
        for code in ("de", "en"):
            lines = [f"wort{n}" for n in range(30)]
            if stem.startswith("train"):
                lines[3] = ""
            if stem == "train-b":
                lines[7] = " ".join(f"w{n}" for n in range(200))
            (tmp_path / f"own/{stem}.{code}").write_text("\n".join(lines) + "\n")
    params_file(tmp_path, max_length=999, batch_tokens=2000, device_tokens=1001)
    for name in ("download", *STAGES):
        done = stage(name, tmp_path)
        assert done.returncode == 0, done.stderr
    (tmp_path / "data/back").mkdir()
    params_file(tmp_path, max_length=99, device_tokens=100)
    assert "train-b.de line 8 has" in stage("train", tmp_path).stderr
    files = json.loads((tmp_path / "data/ids/train.files.json").read_text())
    assert files == [["train-b.de", 30], ["train.de", 30]]


def test_labels_beside_any_test_set_are_kept_if_each_pair_has_some(tmp_path):
    params_file(tmp_path)
    own_corpus(tmp_path / "own")
    (tmp_path / "own/test.labels").write_text("short\n" * 11)
    assert (
        "own/test.labels has 11 lines, and its test set 12 pairs. Write a line for"
        in stage("download", tmp_path).stderr
    )
    (tmp_path / "own/test.labels").write_text("short\n" * 12)
    assert stage("download", tmp_path).returncode == 0
    assert list(read_lines(tmp_path / "data/raw/test.labels")) == ["short"] * 12
