"""The translator as an MLflow model that consists of code, so that no object is pickled.

MLflow copies this file into the model, imports it there and takes the object passed to `set_model`. A request:

    {"inputs": ["Ein Hund rennt."], "params": {"beam_size": 4}}  ->  {"predictions": ["A dog is running."]}

One request is translated at a time. A request that would be too much work is refused before any.
"""

from __future__ import annotations

import json
from threading import Lock
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel

from transformer.files import Mistake
from transformer.inference.translator import Translator
from transformer.serving.limits import check_lines, check_sentences, line_costs, name_of, search_options
from transformer.text.words import PIECES_OF_SERVER


class Refused(MlflowException):
    """A mistake of a request. The answer has the reason only; MLflow would put the whole request before it."""

    def serialize_as_json(self) -> str:
        return json.dumps({"error_code": self.error_code, "message": str(self)})


class ServedTranslator(PythonModel):
    """Takes lines and returns their translations."""

    def load_context(self, context: Any) -> None:
        """Load the model; MLflow calls this once."""
        self.translator = Translator.load(context.artifacts["model"])
        self.translator.source.most_pieces = PIECES_OF_SERVER
        self.one_at_a_time = Lock()

    def predict(self, context: Any, model_input: list[str], params: dict[str, Any] | None = None) -> list[str]:
        """The best translation of each line. Raises Refused; MLflow refuses what is no list of texts."""
        try:
            config = search_options(params or {})
            check_lines(model_input)
            line_costs(model_input, config)
            with self.one_at_a_time:
                for number, line in enumerate(model_input, start=1):
                    check_sentences(name_of(number, len(model_input)), line, self.translator)
                return self.translator.translate(model_input, config=config)
        except Mistake as error:
            raise Refused(str(error), INVALID_PARAMETER_VALUE) from None


set_model(ServedTranslator())
