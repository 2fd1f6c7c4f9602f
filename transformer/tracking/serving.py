"""The translator as an MLflow model that consists of code, so that no object is pickled.

MLflow copies this file into the model, imports it there and takes the object passed to `set_model`. A request:

    {"inputs": ["Ein Hund rennt."], "params": {"beam_size": 4}}  ->  {"predictions": ["A dog is running."]}

MLflow's server answers one request after the other. So a request is refused before work is spent on it, and one that
takes longer than TRANSLATION_DEADLINE seconds (an environment variable, 30 by default) is ended with status 503.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE
from mlflow.pyfunc.model import PythonModel

from transformer.inference.translator import Translator

# Limits of one request.
MAX_LINES, MAX_SUBWORDS, MAX_BEAM_SIZE, MAX_EXTRA_LENGTH = 1000, 1000, 64, 1000
# Subwords are counted only where a look at the characters says that there can be few enough.
MAX_CHARACTERS, MAX_WORD = 10 * MAX_SUBWORDS, 2 * MAX_SUBWORDS  # spaCy takes 8 s for a word of 10,000 brackets
OPTIONS = ("beam_size", "length_penalty", "extra_length")  # default: the value in the model's signature


class Refused(MlflowException):
    """An error answered with the reason only; MLflow would put the whole request before the reason."""

    def __init__(self, reason: str, error_code: int = INVALID_PARAMETER_VALUE):
        self.reason = reason
        super().__init__(reason, error_code=error_code)

    @property
    def message(self) -> str:
        return self.reason

    @message.setter
    def message(self, longer: str) -> None:
        pass


class Deadline:
    """The time until which one request may be worked on. Call it to check. seconds: from now."""

    def __init__(self, seconds: float):
        self.seconds, self.end = seconds, time.monotonic() + seconds

    def __call__(self) -> None:
        """Raise Refused, with status 503, if the time is over."""
        if time.monotonic() > self.end:
            raise Refused(
                f"The request took longer than {self.seconds:g} s and was ended. Send fewer or shorter lines, or a "
                "smaller beam_size or extra_length.",
                TEMPORARILY_UNAVAILABLE,
            )


class ServedTranslator(PythonModel):
    """Takes lines and returns their translations."""

    def load_context(self, context: Any) -> None:
        """Load the model; MLflow calls this once. Raises ValueError if TRANSLATION_DEADLINE is not positive."""
        self.translator = Translator.load(context.artifacts["model"])
        self.seconds = float(os.environ.get("TRANSLATION_DEADLINE") or 30)
        if not self.seconds > 0:
            raise ValueError(f"TRANSLATION_DEADLINE={self.seconds:g} must be more than 0 seconds")
        self.one_at_a_time = Lock()

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> list[str]:
        """The best translation of each line in the only column of model_input. Raises Refused for a bad request."""
        try:
            return self.answer(model_input.iloc[:, 0].tolist(), params or {}, Deadline(self.seconds))
        except ValueError as error:
            raise Refused(str(error)) from None

    def answer(self, lines: list[str], params: dict[str, Any], deadline: Callable[[], object]) -> list[str]:
        """The best translation of each line. Raises ValueError for a bad request.

        deadline: called before each line and before each step of the search; what it raises ends the request.
        """
        check_options(params)
        if len(lines) > MAX_LINES:
            raise ValueError(f"{len(lines):,} lines; a request may have {MAX_LINES:,}")
        for number, line in enumerate(lines, start=1):
            check_line(number, line)
        # spaCy remembers each word that it meets, until the zone ends; zones of two threads would disturb each other.
        with self.one_at_a_time, self.translator.source.zone(forget=True):
            for number, line in enumerate(lines, start=1):
                deadline()
                check_subwords(number, len(self.translator.subwords([line])[0]))
            options = {name: params[name] for name in OPTIONS}
            return [found[0].text for found in self.translator.alternatives(lines, before_step=deadline, **options)]


def check_options(params: dict[str, Any]) -> None:
    """Raise ValueError for a search that would be wrong or too wide."""
    if not 1 <= params["beam_size"] <= MAX_BEAM_SIZE:
        raise ValueError(f"beam_size={params['beam_size']} must be 1 to {MAX_BEAM_SIZE}")
    if not 0 <= params["extra_length"] <= MAX_EXTRA_LENGTH:
        raise ValueError(f"extra_length={params['extra_length']} must be 0 to {MAX_EXTRA_LENGTH}")
    if not 0 <= params["length_penalty"] < 100:
        raise ValueError(f"length_penalty={params['length_penalty']} must be 0 or more, and below 100")


def check_line(number: int, line: str) -> None:
    """Raise ValueError for a line that is not text or that is certainly too long, without cutting it into subwords."""
    if not isinstance(line, str):
        raise ValueError(f"line {number} is not text: {line!r}")
    if len(line) > MAX_CHARACTERS:
        raise ValueError(f"line {number} has {len(line):,} characters; the server takes {MAX_CHARACTERS:,}: cut it")
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"line {number} is not text: {line[error.start]!r} at character {error.start + 1}") from None
    words = line.split()
    if (longest := max(map(len, words), default=0)) > MAX_WORD:
        raise ValueError(f"line {number} has a word of {longest:,} characters; the server takes {MAX_WORD:,}: cut it")
    check_subwords(number, len(words), "words")  # a word has at least one subword


def check_subwords(number: int, count: int, unit: str = "subwords") -> None:
    """Raise ValueError if a line has more than MAX_SUBWORDS subwords or words."""
    if count > MAX_SUBWORDS:
        raise ValueError(f"line {number} has {count:,} {unit}; the server takes {MAX_SUBWORDS:,} subwords: cut it")


set_model(ServedTranslator())
