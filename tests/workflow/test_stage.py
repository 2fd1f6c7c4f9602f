"""How a stage starts and ends: an edit of its inputs while it runs fails it, and mistakes end in one line."""

from __future__ import annotations

import errno
import importlib
import os
import resource
import sys
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
import torch

from pipeline import facts_of
from pipeline.workflow import dvc_yaml, inputs, stage
from pipeline.workflow.inputs import check_inputs
from pipeline.workflow.stage import error_line, hold_lock, run
from transformer.files import Mistake, whole_file, whole_folder, write_lines
from transformer.model.weights import save_weights

DVC_YAML = """\
stages:
  copy:
    cmd: python -m pipeline.copy
    deps: ["${folder}", code, made]
    params: [knob, versions.yaml: ]
    outs: [out]
  make: {cmd: make, outs: [made]}
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project whose stage copy runs in this process, as DVC starts it."""
    for folder in ("corpus", "code", "made"):
        (tmp_path / folder).mkdir()
    files = {
        "dvc.yaml": DVC_YAML,
        "params.yaml": "knob: 1\nother: 1\nfolder: corpus\n",
        "versions.yaml": 'numpy: "2"\n',
        "corpus/a": "eins\n",
        "code/some.py": "x = 1\n",
        "made/a": "1",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "ROOT", tmp_path)
    monkeypatch.setattr(dvc_yaml, "ROOT", tmp_path)
    monkeypatch.setattr(inputs, "IMPORTED", {"code/some.py": facts_of(tmp_path / "code/some.py")})
    monkeypatch.setenv("DVC_STAGE", "copy")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=SimpleNamespace(name="pipeline.copy")))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "text", "changed"),
    [
        ("params.yaml", "knob: 2\nother: 1\nfolder: corpus\n", "knob"),
        ("params.yaml", "knob: 1\nother: 2\nfolder: corpus\n", ""),
        ("params.yaml", "other: [\n", "params.yaml:2: not valid YAML"),
        ("versions.yaml", 'numpy: "3"\n', "numpy"),
        ("code/some.py", "x = 2\n", "code"),
        ("code/new.py", "x = 2\n", "code"),
        ("code/__pycache__/some.pyc", "x", ""),
        ("corpus/a", "zwei\n", "corpus"),
        ("made/a", "2", "made"),  # of another stage
        ("elsewhere", "x", ""),
    ],
)
def test_an_edit_of_an_input_while_a_stage_runs_fails_it(project, file, text, changed):
    def main() -> None:
        (project / file).parent.mkdir(exist_ok=True)
        (project / file).write_text(text)

    if not changed:
        return run(main)
    with pytest.raises(SystemExit) as ended:
        run(main)
    assert str(ended.value.code).startswith(f"error: {changed}")
    return None


def test_code_edited_after_its_import_fails_the_stage(project):
    """Also if the new file keeps an old time of change. Data are compared before they are read."""
    run(lambda: None)
    (project / "new.py").write_text("x = 2\n")
    os.utime(project / "new.py", ns=(0, 0))
    (project / "new.py").rename(project / "code/some.py")
    (project / "corpus/a").write_text("zwei\n")
    with pytest.raises(SystemExit, match="error: code changed while stage copy ran"):
        run(lambda: pytest.fail("the stage ran"))


def test_a_file_that_was_only_touched_fails_the_stage(project):
    """As by another branch that was checked out and left again while the stage ran."""
    with pytest.raises(SystemExit, match="error: code changed while stage copy ran"):
        run(lambda: os.utime("code/some.py"))


def test_an_edit_is_seen_although_several_processes_end_the_stage(project):
    """Their parent leaves by sys.exit."""

    def main(status: int) -> None:
        (project / "code/some.py").write_text("x = 2\n")
        sys.exit(status)

    with pytest.raises(SystemExit, match="3"):
        run(lambda: main(3))
    (project / "code/some.py").write_text("x = 1\n")
    inputs.IMPORTED.clear()
    with pytest.raises(SystemExit, match="error: code changed while stage copy ran"):
        run(lambda: main(0))


def test_an_edit_is_seen_before_the_first_update_though_it_is_undone(project):
    """A state that comes from it would be resumed under the name of the old input."""

    def main() -> None:
        (project / "corpus/a").write_text("zwei\n")
        try:
            check_inputs()
        finally:
            (project / "corpus/a").write_text("eins\n")

    with pytest.raises(SystemExit, match="error: corpus changed while stage copy ran"):
        run(main)
    check_inputs()  # outside a stage there is nothing to compare


def test_a_knob_in_dvc_yaml_may_have_quotes_and_backslashes():
    text = 'stages: {a: {deps: ["${corpus}", b]}}'
    assert dvc_yaml.stages_of(text, {"corpus": 'my "own" \\ text'}) == {"a": {"deps": ['my "own" \\ text', "b"]}}


@pytest.mark.parametrize("bug", [ZeroDivisionError("division by zero"), ValueError("operands"), KeyError("a")])
def test_a_bug_ends_in_one_line_and_its_traceback_is_kept(project, bug):
    def main() -> None:
        raise bug

    kind = type(bug).__name__
    shown = rf"^error: {kind}: .* This is a bug of this program, .* Traceback: work/error-copy-\d+.txt$"
    with pytest.raises(SystemExit, match=shown):
        run(main)
    (file,) = project.glob("work/error-copy-*.txt")
    assert f"{kind}: {bug}" in file.read_text()


def test_a_mistake_leaves_no_traceback(project):
    def main() -> None:
        raise Mistake("max_steps=0 must be 1 or more.")

    with pytest.raises(SystemExit, match=r"^error: max_steps=0 must be 1 or more\.$"):
        run(main)
    assert not list(project.glob("work/error-*"))


def test_our_own_missing_module_is_a_bug_and_a_missing_package_is_not(project):
    for name, shown in (("pipeline.nothing", "is a bug"), ("nothing", "has no package nothing")):
        with pytest.raises(SystemExit, match=shown):
            run(lambda name=name: importlib.import_module(name))


def test_a_process_that_dvc_did_not_start_compares_no_inputs(project, monkeypatch):
    monkeypatch.delenv("DVC_STAGE")
    run(lambda: (project / "params.yaml").unlink())
    monkeypatch.setenv("DVC_STAGE", "copy")
    monkeypatch.setenv("RANK", "0")  # the launcher of the stage compares them
    run(lambda: None)


def test_a_second_process_of_a_stage_waits_and_clears_up(project):
    """Such as the stage of a DVC that was killed, and the same command again."""
    temporaries = [project / f"out.{name}.tmp" for name in ("01234567", "89abcdef")]
    folder, file = temporaries
    folder.mkdir()
    file.touch()
    (project / "out.0.tmp").touch()  # the user's
    second = Thread(target=lambda: run(lambda: None))
    with hold_lock(Path("work/stage-copy.lock"), "stage"):
        second.start()
        second.join(0.3)
        assert second.is_alive()
        assert all(path.exists() for path in temporaries)
    second.join()
    assert [path.name for path in project.glob("*.tmp")] == ["out.0.tmp"]


def test_two_processes_may_write_one_file_at_once(tmp_path):
    with whole_file(tmp_path / "a") as first, whole_file(tmp_path / "a") as second:
        first.write_text("1")
        second.write_text("2")
    assert (tmp_path / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Mistake("max_steps=0"), "max_steps=0"),
        (OSError(errno.ENOSPC, "No space left on device", "data/x"), "The disk of data/x is full. Free some space"),
        (OSError(errno.EACCES, "Permission denied", "data/x"), "data/x: Permission denied"),
    ],
)
def test_an_error_is_one_line_that_names_the_file(error, line):
    assert error_line(error, "copy").startswith(line)


def fill_folder(path: Path) -> None:
    """Write a large file into a new folder."""
    with whole_folder(path) as folder:
        (folder / "a").write_bytes(bytes(2000))


LARGE = {
    "file": lambda path: write_lines(path, ["a" * 2000]),
    "folder": fill_folder,
    "weights": lambda path: save_weights({"a": torch.zeros(1000)}, path),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_full_disk_is_that_of_the_file(tmp_path, kind):
    """A limit of the size of files stands for the disk: its error has no file name either."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            LARGE[kind](tmp_path / "there")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.filename == str(tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_stage_exits_with_130(project, capsys):
    def main() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        run(main)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Interrupted. Run the same command again.\n"
