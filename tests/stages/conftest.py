"""A small project that was run once, and a folder of it to train in."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.projects import prepared_project
from support.stages import training_place


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run once."""
    return prepared_project(shared_folder, tmp_path_factory.mktemp("stages") / "project")


@pytest.fixture
def place(project, tmp_path) -> Path:
    """A folder in which the stage train can run."""
    return training_place(project, tmp_path / "place")
