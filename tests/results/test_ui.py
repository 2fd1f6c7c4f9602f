"""The server of `make ui`: it prints the address of its table, and ends by Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import requests
from support.browsers import opened_window
from support.projects import commit_all
from support.runs import configuration, record
from support.servers import free_port
from support.stages import wait_until
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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project without results."""
    (tmp_path / "params.yaml").touch()
    commit_all(tmp_path)
    return tmp_path


@pytest.mark.full
def test_the_server_answers_refuses_a_port_in_use_and_ends_by_ctrl_c(root: Path) -> None:
    server = ui(root, free_port())
    assert server.stdout is not None
    try:
        place, _, shown = server.stdout.readline().strip().partition("/#/")
        assert shown.endswith(f"&viewStateShareKey={view.VIEW}")
        with urllib.request.urlopen(f"{place}/health", timeout=10) as answer:
            assert answer.status == 200
        for host, status in (("10.evil.example", 403), ("192.168.evil.example", 403), (place.partition("://")[2], 200)):
            path = "ajax-api/2.0/mlflow/experiments/get?experiment_id=0"
            assert requests.get(f"{place}/{path}", headers={"Host": host}, timeout=60).status_code == status
        second = ui(root, port := int(place.rpartition(":")[2]))
        assert second.communicate(timeout=60)[1].startswith("error: Port ")
        assert second.returncode == 1
    finally:
        os.killpg(server.pid, signal.SIGINT)
    assert server.wait(timeout=60) == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.full
def test_plain_mlflow_ui_is_three_clicks_from_the_table_of_runs(root: Path, browser, monkeypatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = record(root, configuration("key", "config"))
    port = free_port()
    words = [sys.executable, "-m", "mlflow", "ui", "--port", str(port), "--workers", "1"]
    server = subprocess.Popen(
        words, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, seconds=300)
        with opened_window(browser) as window:
            page = window.page
            page.goto(f"http://127.0.0.1:{port}/")
            page.get_by_text("Model training, top").wait_for()  # the description, as far as the list shows it
            page.get_by_text("Model training", exact=True).click()
            page.get_by_role("link", name="translation", exact=True).click()
            page.get_by_role("link", name=run.info.run_name).wait_for()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)
