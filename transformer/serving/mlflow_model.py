"""The translator as an MLflow model that consists of code, so that no object is pickled.

MLflow copies this file into the model, imports it there and takes the object passed to `set_model`. A request:

    {"inputs": ["Ein Hund rennt."], "params": {"beam_size": 4}}  ->  {"predictions": ["A dog is running."]}

One request is translated at a time. MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT ends one that takes too long.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel

from transformer.files import Mistake
from transformer.inference.translator import Translator
from transformer.text.words import PIECES_OF_SERVER


class ServedTranslator(PythonModel):
    """Takes lines and returns their translations."""

    def load_context(self, context: Any) -> None:
        """Load the model; MLflow calls this once."""
        self.translator = Translator.load(context.artifacts["model"])
        self.translator.source.most_pieces = PIECES_OF_SERVER
        self.one_at_a_time = Lock()

    def predict(self, context: Any, model_input: list[str], params: dict[str, Any] | None = None) -> list[str]:
        """The best translation of each line. params: fields of SearchConfig; MLflow checks their types."""
        try:
            with self.one_at_a_time:
                return self.translator.translate(model_input, **(params or {}))
        except Mistake as error:
            raise MlflowException(str(error), INVALID_PARAMETER_VALUE) from None


set_model(ServedTranslator())
