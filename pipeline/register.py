"""Stage register: complete the MLflow row, and put the model into the registry; the best on valid is the champion.

Reads   data/model, data/raw, data/{valid,test}.hyp, dvc.lock and all reports; reports/engines.json, where it was
        measured on this model, is no dependency: nothing waits for compare_engines
Writes  data/row.json (which row and training this is). `persist` keeps it out of the run cache: so DVC runs this stage
        in a fresh clone and whenever a configuration comes back, also when all else is cached; the row is always there
Params  every one: each configuration is a row
"""

import json
from typing import Any

from pipeline.shared.results import Results, WorkTree
from pipeline.shared.run_record import origin, register_model, whole_row
from pipeline.shared.stage import arguments, project_root, require, run
from transformer.files import whole_file
from transformer.tracking.recorder import record_configuration
from transformer.tracking.store import reason, store_errors


def main() -> None:
    paths = arguments(
        __doc__, raw="data/raw", valid="data/valid.hyp", test="data/test.hyp", model="data/model",
        curve="reports/training.csv", summary="reports/training.json", environment="reports/environment.json",
        engines="reports/engines.json", scores="reports/scores.json", signatures="reports/signatures.json",
        page="reports/report.html", row="data/row.json",
    )  # fmt: skip
    require(paths.raw, paths.valid, paths.test, paths.model, paths.curve, paths.scores, paths.signatures, paths.page)
    results, here = WorkTree.of_stage(paths), origin()
    row = whole_row(results, here)
    print(recorded_and_registered(results, row, here))
    names = {key: row[key] for key in ("config_key", "train_key")}
    with whole_file(paths.row) as temporary:
        temporary.write_text(json.dumps(names) + "\n", encoding="utf-8")


def recorded_and_registered(results: Results, row: dict[str, Any], origin: dict[str, str]) -> str:
    """Write the row and register the model; what to say of it, also when MLflow takes neither."""
    trouble = "MLflow is out of reach"
    if record_configuration(project_root(), row):
        try:
            return register_model(results, row, origin)
        except store_errors() as error:
            trouble = reason(error)
    return f"not registered: {trouble}; `python -m pipeline track` does it later"


if __name__ == "__main__":
    run(main)
