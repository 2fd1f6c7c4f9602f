"""The translator as an MLflow model that consists of code, so that no object is pickled.

MLflow copies this file into the model, imports it there and takes the object passed to `set_model`. A request:

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

# Limits of one request: with larger ones a few requests would occupy a server for minutes.
MAX_LINES, MAX_SUBWORDS, MAX_BEAM_SIZE, MAX_EXTRA_LENGTH = 1000, 1000, 64, 1000
OPTIONS = ("beam_size", "length_penalty", "extra_length")  # default: the value in the model's signature


class BadRequest(MlflowException):
    """An error answered with status 400 and the reason only; MLflow would put the whole request before the reason."""

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
    """Takes lines and returns their translations."""

    def load_context(self, context: Any) -> None:
        """Load the model; MLflow calls this once."""
        self.translator = Translator.load(context.artifacts["model"])

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> list[str]:
        """The best translation of each line in the only column of model_input. Raises BadRequest for a bad request."""
        try:
            return self.answer(model_input.iloc[:, 0].tolist(), params or {})
        except ValueError as error:
            raise BadRequest(str(error)) from None

    def answer(self, lines: list[str], params: dict[str, Any]) -> list[str]:
        """The best translation of each line. Raises ValueError for a bad request."""
        if len(lines) > MAX_LINES:
            raise ValueError(f"{len(lines):,} lines; a request may have {MAX_LINES:,}")
        if not 1 <= params["beam_size"] <= MAX_BEAM_SIZE:
            raise ValueError(f"beam_size={params['beam_size']} must be 1 to {MAX_BEAM_SIZE}")
        if not 0 <= params["extra_length"] <= MAX_EXTRA_LENGTH:
            raise ValueError(f"extra_length={params['extra_length']} must be 0 to {MAX_EXTRA_LENGTH}")
        if not 0 <= params["length_penalty"] < 100:
            raise ValueError(f"length_penalty={params['length_penalty']} must be 0 or more, and below 100")
        for number, line in enumerate(lines, start=1):
            check_line(number, line)
        for number, subwords in enumerate(self.translator.subwords(lines), start=1):
            if len(subwords) > MAX_SUBWORDS:
                raise ValueError(
                    f"line {number} has {len(subwords):,} subwords; the server takes {MAX_SUBWORDS:,}: cut it"
                )
        return self.translator.translate(lines, **{name: params[name] for name in OPTIONS})


def check_line(number: int, line: str) -> None:
    """Raise ValueError for a line that is not text, or that has too many characters to be within MAX_SUBWORDS."""
    if not isinstance(line, str):
        raise ValueError(f"line {number} is not text: {line!r}")
    if len(line) > 100 * MAX_SUBWORDS:
        raise ValueError(f"line {number} has {len(line):,} characters, more than {100 * MAX_SUBWORDS:,}: cut it")
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"line {number} is not text: {line[error.start]!r} at character {error.start + 1}") from None


set_model(ServedTranslator())
