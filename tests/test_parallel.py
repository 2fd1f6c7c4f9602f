"""Work that is spread over processes: its results are in order, whatever their number, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stages import wait_until
from support.tiny import ROOT

from transformer.files import read_lines
from transformer.text.blocks import blocks, map_in_order


class Slow:
    """Doubles a number, the first ones more slowly. fails: raises ValueError for this number."""

    def __init__(self, fails: int = -1):
        self.fails = fails

    def __call__(self, number: int) -> tuple[int, int]:
        time.sleep(0.05 * (number < 3))
        if number == self.fails:
            raise ValueError(f"{number} is wrong")
        return 2 * number, os.getpid()


class Killed:
    """Ends its process."""

    def __call__(self, number: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Unable:
    """Cannot be made."""

    def __init__(self):
        raise ValueError("data/vocab.txt is damaged")


class Stuck:
    """Writes the number of its process and works for a long time."""

    def __call__(self, number: int) -> None:
        Path(str(os.getpid())).touch()
        time.sleep(60)


@pytest.fixture(autouse=True)
def earlier() -> list[psutil.Process]:
    """The processes that other tests have started."""
    return psutil.Process().children()


def wait_for_no_children(earlier: list[psutil.Process]) -> None:
    """Wait until this process has no other process, besides earlier ones."""
    ended = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    children = [child for child in psutil.Process().children() if child not in earlier]
    wait_until(lambda: all(not child.is_running() or child.status() in ended for child in children))


@pytest.mark.parametrize("count", ["1", "2", "5"])
def test_results_come_in_order_from_any_number_of_processes(monkeypatch, count):
    monkeypatch.setenv("WORKERS", count)
    results = list(map_in_order(Slow, range(40)))
    assert [number for number, _ in results] == [2 * number for number in range(40)]
    pids = {pid for _, pid in results}
    assert pids == {os.getpid()} if count == "1" else os.getpid() not in pids and 1 < len(pids) <= int(count)


@pytest.mark.parametrize(
    ("count", "work", "message"),
    [
        ("1", partial(Slow, 5), "5 is wrong"),  # the first error in the order of items
        ("3", partial(Slow, 5), "5 is wrong"),
        ("4", Killed, r"One of 4 worker processes was killed.*Set WORKERS=2"),
        ("2", Unable, r"data/vocab\.txt is damaged"),
    ],
)
def test_an_error_of_a_worker_is_raised_and_all_workers_end(monkeypatch, earlier, count, work, message):
    monkeypatch.setenv("WORKERS", count)
    with pytest.raises(ValueError, match=message):
        list(map_in_order(work, range(40)))
    wait_for_no_children(earlier)


def test_workers_that_nobody_waits_for_are_ended_at_once(monkeypatch, tmp_path, earlier):
    """As after Ctrl-C, which ends the wait for a result by an exception."""
    monkeypatch.setenv("WORKERS", "2")
    monkeypatch.chdir(tmp_path)

    def items():
        yield from range(4)
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(map_in_order(Stuck, items()))
    wait_for_no_children(earlier)


def test_items_are_read_as_they_are_needed(monkeypatch):
    monkeypatch.setenv("WORKERS", "2")
    read = []
    results = map_in_order(Slow, (read.append(number) or number for number in range(1000)))
    next(results)
    assert len(read) < 20
    results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "²", "٣"])
def test_a_wrong_number_of_workers_is_refused(monkeypatch, value):
    monkeypatch.setenv("WORKERS", value)
    with pytest.raises(ValueError, match="is not a number of processes"):
        list(map_in_order(Slow, [1]))


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    code = (
        "import os, time\nfrom pathlib import Path\nfrom transformer.text.blocks import map_in_order\n"
        "class Stuck:\n    def __call__(self, n):\n        Path(f'{os.getpid()}').touch()\n        time.sleep(60)\n"
        "list(map_in_order(Stuck, range(9)))\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "WORKERS": "3"}
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env)
    wait_until(lambda: len(list(tmp_path.iterdir())) == 3)
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(psutil.pid_exists(int(file.name)) for file in tmp_path.iterdir()))


@given(
    st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=5), max_size=20),
    st.integers(1, 6),
)
@settings(deadline=None, max_examples=30)
def test_blocks_have_all_lines_of_parallel_files_in_order(tmp_path_factory, lines, size):
    folder = tmp_path_factory.mktemp("blocks")
    paths = [folder / "a", folder / "b"]
    for path, text in zip(paths, (lines, lines[::-1]), strict=True):
        path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8", newline="\n")
    parts = list(blocks(*paths, size=size))
    assert [line for block in parts for line in block.lines()[0]] == lines == list(read_lines(paths[0]))
    assert [line for block in parts for line in block.lines()[1]] == lines[::-1]
    assert [block.first for block in parts] == list(range(1, len(lines) + 1, size))
    assert sum(block.count for block in parts) == len(lines)
