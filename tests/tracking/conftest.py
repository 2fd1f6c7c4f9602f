"""A store for all tests of a process, and a training of its own for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import opened


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store: creating a database takes seconds."""
    folder = tmp_path_factory.mktemp("root").resolve()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        opened(folder)
    return folder


@pytest.fixture
def key(request: pytest.FixtureRequest, fresh_process: None) -> str:
    """The train_key of a test."""
    return request.node.name.replace("'", "")
