"""The translator as an MLflow model that consists of code, so that no object is pickled.

MLflow copies this file into the model, imports it there and takes the object passed to `set_model`. A request:

    {"inputs": ["Ein Hund rennt."], "params": {"beam_size": 4}}  ->  {"predictions": ["A dog is running."]}

One request is translated at a time. A request that would be too much work is refused before any. One that takes or
waits longer than TRANSLATION_DEADLINE seconds (an environment variable, 30 by default) ends with status 503.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE
from mlflow.pyfunc.model import PythonModel

from transformer.files import Mistake
from transformer.inference.translator import Translator
from transformer.serving.limits import check_lines, check_sentences, line_costs, name_of, search_options
from transformer.text.words import PIECES_OF_SERVER


class OutOfTime(Exception):
    """A request was ended because it took too long. Its text is for the sender."""


class Deadline:
    """The time until which one request may be worked on. Call it to check. seconds: from now."""

    def __init__(self, seconds: float):
        self.seconds, self.end = seconds, time.monotonic() + seconds

    def __call__(self) -> None:
        """Raise OutOfTime if the time is over."""
        if time.monotonic() > self.end:
            raise OutOfTime(
                f"The request took longer than {self.seconds:g} s and was ended. Send fewer or shorter texts, or a "
                "smaller beam_size or extra_length."
            )


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
        """Load the model; MLflow calls this once. Raises Mistake if TRANSLATION_DEADLINE is not positive."""
        self.translator = Translator.load(context.artifacts["model"])
        self.translator.source.pieces = PIECES_OF_SERVER
        self.seconds = float(os.environ.get("TRANSLATION_DEADLINE") or 30)
        if not self.seconds > 0:
            raise Mistake(f"TRANSLATION_DEADLINE={self.seconds:g} must be more than 0 seconds")
        self.one_at_a_time = Lock()

    def predict(self, context: Any, model_input: list[str], params: dict[str, Any] | None = None) -> list[str]:
        """The best translation of each line. Raises Refused; MLflow refuses what is no list of texts."""
        try:
            config = search_options(params or {})
            check_lines(model_input)
            line_costs(model_input, config)
            with self.turn():
                deadline = Deadline(self.seconds)
                for number, line in enumerate(model_input, start=1):
                    deadline()
                    check_sentences(name_of(number, len(model_input)), line, self.translator)
                return self.translator.translate(model_input, before_step=deadline, **vars(config))
        except Mistake as error:
            raise Refused(str(error)) from None
        except OutOfTime as error:
            raise Refused(str(error), TEMPORARILY_UNAVAILABLE) from None

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
