"""Processes of the measured programs: starting them, sending them commands, taking turns, and answering."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


class Failed(Exception):
    """A program that could not be run."""


LOG = Path("work/benchmarks.log")  # what the programs print, and their errors


class Worker:
    """A process that runs one program. Between rounds it waits and uses no processor time.

    setting: the program and its options. setting["worker"] names the module that the process runs.
    """

    def __init__(self, setting: dict):
        self.setting, self.rounds = setting, []
        LOG.parent.mkdir(exist_ok=True)
        with LOG.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", setting.get("worker", "benchmarks.worker"), json.dumps(setting)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )

    def receive(self) -> dict:
        """The next answer of the process. Raises Failed with the reason if the program failed."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"its process ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def send(self, command: str, **values: object) -> None:
        """Send a command. The answer is for receive()."""
        assert self.process.stdin
        with suppress(BrokenPipeError):  # the process has ended, and receive() raises Failed
            self.process.stdin.write(json.dumps({"command": command, **values}) + "\n")

    def ask(self, command: str, **values: object) -> dict:
        """Send a command and wait for the answer."""
        self.send(command, **values)
        return self.receive()

    def __str__(self) -> str:
        return " ".join(str(self.setting[key]) for key in ("program", "size", "precision"))

    def report_failure(self, reason: Failed) -> None:
        """End the process and print to stderr why the program has no row."""
        self.close()
        print(f"{self}: not measured: {reason}", file=sys.stderr)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def workers(settings: Sequence[dict]) -> Iterator[list[Worker]]:
    """Start a process per setting, one after another, and yield them. A program that cannot run is named on stderr."""
    started: list[Worker] = []
    try:
        for setting in settings:
            worker = Worker(setting)
            try:
                worker.receive()
                started.append(worker)
            except Failed as reason:
                worker.report_failure(reason)
        yield started
    finally:
        for worker in started:
            worker.close()


def alternate(started: list[Worker], rounds: int, seconds: float) -> None:
    """Run round 1 of every process, then round 2 of every process, ..., so that a slow machine affects all of them.

    A round starts at the same update for all. A program that fails is removed from `started`.
    """
    for number in range(rounds):
        for worker in list(started):
            try:
                worker.rounds.append(worker.ask("round", first=1 + 97 * number, seconds=seconds))
                print(f"round {number + 1} of {rounds}: {worker}", file=sys.stderr, flush=True)
            except Failed as reason:
                worker.report_failure(reason)
                started.remove(worker)


def serve(prepare: Callable[[dict], Callable[[dict], dict]]) -> None:
    """Run in the process of a Worker: build the program, print that it is ready, then answer commands from stdin.

    prepare: takes the setting, and returns the function from a command to its answer.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # so that what a program prints is not read as an answer
    try:
        answer = prepare(json.loads(sys.argv[1]))
        answers.write(json.dumps({"ready": True}) + "\n")
        for line in sys.stdin:
            answers.write(json.dumps(answer(json.loads(line))) + "\n")
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        answers.write(json.dumps({"error": reason}) + "\n")
        raise
