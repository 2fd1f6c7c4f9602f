"""The translator as an MLflow model that consists of code, so that no object is pickled.

MLflow copies this file into the model, imports it there and takes the object passed to `set_model`. A request:

    {"inputs": ["Ein Hund rennt."], "params": {"beam_size": 4}}  ->  {"predictions": ["A dog is running."]}

One request is answered after the other. So a request is refused before work is spent on it, and one that takes longer
than TRANSLATION_DEADLINE seconds (an environment variable, 30 by default), or waits longer for others, is ended with
status 503.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE
from mlflow.pyfunc.model import PythonModel

from transformer.decoding.config import SEARCH_OPTIONS
from transformer.inference.translator import Translator
from transformer.serving.limits import MAX_LINES, Deadline, OutOfTime, check_line, check_options, check_subwords
from transformer.text.words import PIECES_OF_SERVER


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


class ServedTranslator(PythonModel):
    """Takes lines and returns their translations."""

    def load_context(self, context: Any) -> None:
        """Load the model; MLflow calls this once. Raises ValueError if TRANSLATION_DEADLINE is not positive."""
        self.translator = Translator.load(context.artifacts["model"])
        self.translator.source.pieces = PIECES_OF_SERVER
        self.seconds = float(os.environ.get("TRANSLATION_DEADLINE") or 30)
        if not self.seconds > 0:
            raise ValueError(f"TRANSLATION_DEADLINE={self.seconds:g} must be more than 0 seconds")
        self.one_at_a_time = Lock()

    def predict(self, context: Any, model_input: list[str], params: dict[str, Any] | None = None) -> list[str]:
        """The best translation of each line. Raises Refused; MLflow refuses what is no list of texts."""
        try:
            return self.answer(model_input, params or {}, lambda: Deadline(self.seconds))
        except ValueError as error:
            raise Refused(str(error)) from None
        except OutOfTime as error:
            raise Refused(str(error), TEMPORARILY_UNAVAILABLE) from None

    def answer(self, lines: list[str], params: dict[str, Any], start: Callable[[], Callable[[], object]]) -> list[str]:
        """The best translation of each line. Raises ValueError for a bad request, OutOfTime after a long wait.

        start: called when the work begins; returns a function that is called before each line and before each step of
        the search. What that raises ends the request.
        """
        check_options(params)
        if len(lines) > MAX_LINES:
            raise ValueError(f"{len(lines):,} lines; a request may have {MAX_LINES:,}")
        for number, line in enumerate(lines, start=1):
            check_line(f"line {number}", line)
        with self.turn():
            deadline = start()
            for number, line in enumerate(lines, start=1):
                deadline()
                check_subwords(f"line {number}", len(self.translator.subwords([line])[0]))
            options = {name: params[name] for name in SEARCH_OPTIONS}
            return self.translator.translate(lines, before_step=deadline, **options)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Surround the work of a request, which waits for those before it. Raises OutOfTime if that takes too long."""
        if not self.one_at_a_time.acquire(timeout=self.seconds):
            raise OutOfTime(f"The server was busy for {self.seconds:g} s. The lines were not translated. Try later.")
        try:
            yield
        finally:
            self.one_at_a_time.release()


set_model(ServedTranslator())
