"""Fixtures of several rooms, and the order of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from support.browsers import chromium
from support.servers import mlflow_server, postgres
from support.tiny import model_folder

from pipeline.tracking import live
from pipeline.tracking import store as tracking

# One thread a process: test processes and the stages that they start share the cores, and sums have a fixed order.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
# A check of each change tries fewer examples than `make test-all`.
settings.register_profile("ci", settings.get_profile("ci"), max_examples=40)
# Whole pipelines, minutes each, and trainings: about a minute each
SLOWEST = ("pipeline", "experiments", "back_translation", "kills", "resuming", "several_processes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slowest files first, so that all processes finish at about the same time."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in SLOWEST)


@pytest.fixture(scope="session")
def team_server(tmp_path_factory) -> Iterator[str]:
    """The address of an MLflow server over PostgreSQL, as a team has it."""
    with postgres() as backend, mlflow_server(tmp_path_factory.mktemp("server"), backend) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with chromium() as window:
        yield window


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory) -> Path:
    """A temporary folder that all processes of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A model folder, which no test changes."""
    return model_folder(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def inside(project, monkeypatch) -> Path:
    """The project as the current folder."""
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a test like a new process: no store open or switched off, and no variables of MLflow or DVC set."""
    tracking.open_store.cache_clear()
    monkeypatch.setattr(live, "PAUSE", 0)
    for name in [name for name in os.environ if name.startswith(("MLFLOW_", "DVC_"))]:
        monkeypatch.delenv(name)
    for name, value in tracking.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
