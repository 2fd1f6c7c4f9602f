"""How a stage starts and ends: an edit of its inputs while it runs fails it, and mistakes end in one line."""

from __future__ import annotations

import errno
import os
import resource
import sys
import time
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
import torch

from pipeline.workflow import stage
from pipeline.workflow.stage import error_line, hold_lock, run
from transformer.files import whole_file, whole_folder, write_lines
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
    monkeypatch.setattr(stage, "STARTED", time.time_ns() + 10**9)  # after the files were written
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


def test_code_that_was_edited_before_it_was_compared_fails_the_stage(project, monkeypatch):
    """Also if the new file keeps an old time of change. Data are compared before they are read."""
    monkeypatch.setattr(stage, "STARTED", (project / "code/some.py").stat().st_ctime_ns + 10**7)
    run(lambda: None)
    time.sleep(0.02)
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


def test_an_error_ends_in_one_line_and_its_traceback_is_kept(project):
    with pytest.raises(SystemExit, match=r"^error: ZeroDivisionError: .* Traceback: (work/error-copy-\d+.txt)$"):
        run(lambda: print(1 / 0))
    (file,) = project.glob("work/error-copy-*.txt")
    assert "ZeroDivisionError: division by zero" in file.read_text()


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
        (ValueError("max_steps=0"), "max_steps=0"),
        (OSError(errno.ENOSPC, "No space left on device", "data/x"), "The disk of data/x is full. Free some space"),
        (OSError(errno.EACCES, "Permission denied", "data/x"), "data/x: Permission denied"),
    ],
)
def test_an_error_is_one_line_that_names_the_file(error, line):
    assert error_line(error).startswith(line)


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
