"""The pages of `make ui` in a real browser: the table of runs, and the files of a run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.projects import commit_all
from support.runs import configuration, record
from support.servers import free_port
from support.tiny import ROOT

from pipeline.tracking import runs_table as view


def ui(root: Path, port: int) -> subprocess.Popen[str]:
    """Start `python -m pipeline ui` for the store of the project in `root`."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", "ui", "--port", str(port)],
        cwd=ROOT,
        env=os.environ | {"DVC_ROOT": str(root), "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose store has four runs, which differ in warmup, beam_size and seed."""
    folder = tmp_path_factory.mktemp("ui").resolve()
    (folder / "params.yaml").touch()
    commit_all(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        for name, warmup, beam_size, bleu, seed in (
            ("plain", 100, 4, 30.0, 1),
            ("slow", 800, 4, 33.0, 1),
            ("narrow", 100, 1, 29.0, 1),
            ("again", 100, 4, 32.0, 2),
        ):
            contents = configuration(f"training {warmup} {seed}", name, warmup=warmup, beam_size=beam_size, seed=seed)
            contents["scores"] = {
                "bleu": bleu,
                "valid_bleu": bleu + 1,
                "delta_bleu": bleu - 30,
                "p_randomisation": 0.04,
            }
            contents["tags"]["DVC_EXP_NAME"] = name
            record(folder, contents)
    return folder


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    """The address that `make ui` prints. Its server runs during the tests and is ended by Ctrl-C."""
    port = free_port()
    server = ui(root, port)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGINT)
    assert server.wait(timeout=60) == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def page(browser) -> Iterator:
    """A new window without stored settings."""
    window = browser.new_page(viewport={"width": 1600, "height": 900})
    window.set_default_timeout(300_000)  # on a busy machine the page takes minutes
    yield window
    window.close()


@pytest.mark.full
def test_the_server_answers_and_a_port_in_use_is_refused(root: Path, address: str) -> None:
    place, _, shown = address.partition("/#/")
    assert shown.endswith(f"&viewStateShareKey={view.VIEW}")
    with urllib.request.urlopen(f"{place}/health", timeout=10) as answer:
        assert answer.status == 200
    second = ui(root, int(place.rpartition(":")[2]))
    assert second.communicate(timeout=60)[1].startswith("error: Port ")
    assert second.returncode == 1


@pytest.mark.full
def test_the_table_shows_scores_and_knobs_that_differ(page, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="slow").wait_for()
    heads = page.get_by_role("columnheader").all_inner_texts()
    shown = [head.strip() for head in heads]
    for name in ("bleu", "valid_bleu", "delta_bleu", "p_randomisation", "warmup", "beam_size"):
        assert name in shown
    assert "corpus" not in shown  # the same in all runs
    assert "dropout" not in shown
    links = [link.inner_text() for link in page.get_by_role("link").all()]
    names = ["slow", "again", "plain", "narrow"]
    assert [name for name in links if name in names] == names
