"""Versions of packages are dependencies: another one makes stale what computes with it, and stops a stage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.projects import command, prepared_project
from support.tiny import stage

from pipeline import versions

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run once."""
    return prepared_project(shared_folder, tmp_path_factory.mktemp("versions") / "project")


@pytest.fixture
def other(project):
    """A function that records another version of a package; the record is restored at the end."""
    file = project / versions.RECORD
    before = file.read_text()

    def record(package: str, version: str) -> None:
        file.write_text(versions.text(versions.recorded(project) | {package: version}))

    yield record
    file.write_text(before)


@pytest.mark.parametrize(
    ("package", "wanted"),
    [
        (
            "spacy",
            {"tokenise", "back_translate", "translate", "attention", "compare_engines", "score", "report", "record"},
        ),
        (
            "subword-nmt",
            {
                "learn_bpe",
                "build_vocab",
                "encode",
                "back_translate",
                "translate",
                "attention",
                "compare_engines",
                "record",
            },
        ),
        ("sacrebleu", {"back_translate", "train", "score", "attention", "report", "compare_engines", "record"}),
    ],
)
def test_another_version_makes_stale_the_stages_that_compute_with_it(project, other, package, wanted):
    other(package, "0.0.1")
    assert set(json.loads(command(project, "dvc", "status", "--json"))) == wanted


def test_a_stage_stops_before_it_computes_with_another_version_and_names_both_and_two_remedies(project, other):
    other("sacrebleu", "2.0.0")
    before = (project / "reports/scores.json").stat().st_mtime_ns
    done = stage("score", project)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    installed = versions.installed("sacrebleu")
    assert line.startswith(f"error: sacrebleu {installed} is installed, versions.yaml records 2.0.0.")
    assert "pip install -r requirements.lock" in line
    assert "python -m pipeline versions" in line
    assert (project / "reports/scores.json").stat().st_mtime_ns == before


def test_a_stage_runs_with_other_versions_of_packages_that_it_does_not_compute_with(project, other):
    other("torch", "1.0.0")
    assert stage("score", project).returncode == 0


def test_a_package_that_is_not_installed_stops_a_stage(project, other, monkeypatch):
    other("sacrebleu", "2.0.0")
    monkeypatch.setattr(versions, "installed", lambda package: "")
    monkeypatch.setattr(versions, "running_stage", lambda: "score")
    with pytest.raises(ValueError, match=r"sacrebleu \(none\) is installed"):
        versions.check_versions(project)


def test_the_build_of_a_package_does_not_count(project, other, monkeypatch):
    monkeypatch.setattr(versions, "version", lambda package: versions.recorded(project)[package] + "+cu130")
    monkeypatch.setattr(versions, "running_stage", lambda: "train")
    versions.check_versions(project)


def test_the_command_versions_records_what_is_installed(project, other):
    file = project / versions.RECORD
    before = file.read_text()
    other("spacy", "3.0.0")
    assert "spacy 3.0.0 -> " in command(project, "python", "-m", "pipeline", "versions")
    assert file.read_text() == before
    assert "names the installed versions" in command(project, "python", "-m", "pipeline", "versions")
