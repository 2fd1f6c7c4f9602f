"""Versions of packages are dependencies: another one makes stale what computes with it, and stops a stage."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.projects import command, prepared_project
from support.tiny import stage

from pipeline.workflow import versions

SCORE = {"params": [{versions.VERSIONS: ["sacrebleu"]}]}  # an entry of dvc.yaml


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run once."""
    return prepared_project(shared_folder, tmp_path_factory.mktemp("versions") / "project")


@pytest.fixture
def record(project):
    """A function that records another version of a package; the former record is restored at the end."""
    file = project / versions.VERSIONS
    before = file.read_text()
    yield lambda package, version: file.write_text(
        versions.text(versions.recorded_versions(project) | {package: version})
    )
    file.write_text(before)


@pytest.mark.full
def test_a_stage_stops_before_it_computes_with_another_version(project, record):
    before = (project / "reports/scores.json").stat().st_mtime_ns
    record("torch", "1.0.0")
    assert stage("average", project).returncode == 1
    assert stage("score", project, "--scores", "data/scores.json").returncode == 0  # it computes without torch
    record("sacrebleu", "2.0.0")
    done = stage("score", project)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"error: sacrebleu {versions.installed_version('sacrebleu')} is installed, versions.yaml records 2.0.0. Install"
    )
    assert done.stderr.count("\n") == 1
    assert (project / "reports/scores.json").stat().st_mtime_ns == before


@pytest.mark.full
def test_the_command_versions_records_what_is_installed(project, record):
    before = (project / versions.VERSIONS).read_text()
    record("spacy", "3.0.0")
    words = (sys.executable, "-m", "pipeline", "versions")
    assert "spacy 3.0.0 -> " in command(project, *words)
    assert (project / versions.VERSIONS).read_text() == before
    assert "names the installed versions" in command(project, *words)


def test_a_package_that_is_not_installed_stops_a_stage(monkeypatch):
    monkeypatch.setattr(versions, "installed_version", lambda package: "")
    with pytest.raises(ValueError, match=r"sacrebleu \(none\) is installed.*uv pip install -r"):
        versions.check_versions(SCORE)


def test_the_build_of_a_package_does_not_count(monkeypatch):
    monkeypatch.setattr(versions, "version", lambda package: versions.recorded_versions()[package] + "+cu130")
    versions.check_versions(SCORE)
    assert versions.release("2.13.0+cu130") == versions.release("2.13.0+cpu") == "2.13.0"
