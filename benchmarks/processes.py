"""Programs under measurement, each in its own process, seen from the one that tells them when to run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress


class Failed(Exception):
    """A program could not be run."""


class Worker:
    """A process that runs one program. Between rounds it waits, and takes no processor time.

    setting["worker"] names the module that runs in it.
    """

    def __init__(self, setting: dict):
        self.setting, self.rounds = setting, []
        quiet = None if os.environ.get("TRACEBACK") else subprocess.DEVNULL
        self.process = subprocess.Popen(
            [sys.executable, "-m", setting.get("worker", "benchmarks.worker"), json.dumps(setting)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, text=True, bufsize=1,
        )  # fmt: skip

    def hear(self) -> dict:
        """The next answer. Raises Failed with the reason when there is none."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"its process ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def ask(self, command: str, **values: object) -> dict:
        """Have it run a command and wait for the answer."""
        assert self.process.stdin
        with suppress(BrokenPipeError):  # it is gone, which hear() says
            self.process.stdin.write(json.dumps({"command": command, **values}) + "\n")
        return self.hear()

    def __str__(self) -> str:
        words = [str(self.setting[key]) for key in ("program", "size", "precision")]
        return " ".join([*words, *(["(forced)"] if self.setting.get("forced") else [])])

    def give_up(self, reason: Failed) -> None:
        """End the process and say why its program has no row."""
        self.close()
        print(f"{self}: not measured: {reason}", file=sys.stderr)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def workers(settings: Sequence[dict]) -> Iterator[list[Worker]]:
    """The processes of those settings that can be run, started one after another; who cannot is named on stderr."""
    started: list[Worker] = []
    try:
        for setting in settings:
            worker = Worker(setting)
            try:
                worker.hear()
                started.append(worker)
            except Failed as reason:
                worker.give_up(reason)
        yield started
    finally:
        for worker in started:
            worker.close()


def alternate(started: list[Worker], rounds: int, seconds: float) -> None:
    """Let every process run its round, then every one its next, so that a slow moment of the machine meets them all.

    All begin a round at the same update. Who fails in a round leaves the list.
    """
    for number in range(rounds):
        for worker in list(started):
            try:
                worker.rounds.append(worker.ask("round", first=1 + 97 * number, seconds=seconds))
                print(f"round {number + 1} of {rounds}: {worker}", file=sys.stderr, flush=True)
            except Failed as reason:
                worker.give_up(reason)
                started.remove(worker)


def serve(prepare: Callable[[dict], Callable[[dict], dict]]) -> None:
    """The other end of a Worker: prepare from the setting, say when ready, then answer each order on standard input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a program prints is no answer
    try:
        answer = prepare(json.loads(sys.argv[1]))
        answers.write(json.dumps({"ready": True}) + "\n")
        for line in sys.stdin:
            answers.write(json.dumps(answer(json.loads(line))) + "\n")
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        answers.write(json.dumps({"error": reason}) + "\n")
        if os.environ.get("TRACEBACK"):
            raise
