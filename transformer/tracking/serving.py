"""The translator as an MLflow model: code that a server runs, so that no object has to be stored.

MLflow copies this file into the model, loads it from there and finds the model by `set_model`. Requests:

    {"inputs": ["Ein Hund rennt."], "params": {"beam_size": 4}}  ->  {"predictions": ["A dog is running."]}
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel

from transformer.inference.translator import Translator

# What one request may ask for: beyond it a few requests would occupy a server for minutes.
MAX_LINES, MAX_SUBWORDS, MAX_BEAMS, MAX_EXTRA = 1000, 1000, 64, 1000
OPTIONS = ("beam_size", "length_penalty", "extra_length")  # a request that leaves one out gets that of the signature


class BadRequest(MlflowException):
    """Answered by 400 and the reason alone: the server would put the whole request before it."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason, error_code=INVALID_PARAMETER_VALUE)

    @property
    def message(self) -> str:
        return self.reason

    @message.setter
    def message(self, longer: str) -> None:
        pass


class ServedTranslator(PythonModel):
    """Lines in, translations out."""

    def load_context(self, context: Any) -> None:
        """Called once, by MLflow."""
        self.translator = Translator.load(context.artifacts["model"])

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> list[str]:
        """The best translation of each line, the one column of model_input. Raises BadRequest where it cannot."""
        try:
            return self.answer(model_input.iloc[:, 0].tolist(), params or {})
        except ValueError as error:
            raise BadRequest(str(error)) from None

    def answer(self, lines: list[str], params: dict[str, Any]) -> list[str]:
        """`predict`. Raises ValueError for what is refused."""
        if len(lines) > MAX_LINES:
            raise ValueError(f"{len(lines):,} lines; a request may have {MAX_LINES:,}")
        if not 1 <= params["beam_size"] <= MAX_BEAMS:
            raise ValueError(f"beam_size={params['beam_size']} must be 1 to {MAX_BEAMS}")
        if not 0 <= params["extra_length"] <= MAX_EXTRA:
            raise ValueError(f"extra_length={params['extra_length']} must be 0 to {MAX_EXTRA}")
        if not 0 <= params["length_penalty"] < 100:
            raise ValueError(f"length_penalty={params['length_penalty']} must be 0 or more, and below 100")
        for number, line in enumerate(lines, start=1):
            check_line(number, line)
        for number, subwords in enumerate(self.translator.words(lines), start=1):
            if len(subwords) > MAX_SUBWORDS:
                raise ValueError(
                    f"line {number} has {len(subwords):,} subwords; the server takes {MAX_SUBWORDS:,}: cut it"
                )
        return self.translator.translate(lines, **{name: params[name] for name in OPTIONS})


def check_line(number: int, line: str) -> None:
    """Raise ValueError for a line that is no text, or longer than any that could be taken."""
    if not isinstance(line, str):
        raise ValueError(f"line {number} is no text: {line!r}")
    if len(line) > 100 * MAX_SUBWORDS:
        raise ValueError(f"line {number} has {len(line):,} characters, more than {100 * MAX_SUBWORDS:,}: cut it")
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"line {number} is no text: {line[error.start]!r} at character {error.start + 1}") from None


set_model(ServedTranslator())
