"""Stage register: complete the MLflow row, and put the model into the registry; the best on valid is the champion.

Reads   data/model, data/raw, data/{valid,test}.hyp, dvc.lock and all reports; reports/engines.json, where it was
        measured on this model, is no dependency: nothing waits for compare_engines
Writes  data/row.json (which row and training this is). `persist` keeps it out of the run cache: so DVC runs this stage
        in a fresh clone and whenever a configuration comes back, also when all else is cached; the row is always there
Params  every one: each configuration is a row
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pipeline.experiments import Results, WorkTree
from pipeline.rows import origin, whole_row
from pipeline.stage import arguments, project_root, require, run
from transformer.files import whole_file
from transformer.recording import record
from transformer.registry import model_card, register
from transformer.tracking import reason, store_errors


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
    if record(project_root(), row):
        try:
            return register_model(results, row, origin)
        except store_errors() as error:
            trouble = reason(error)
    return f"not registered: {trouble}; `python -m pipeline.track` does it later"


def register_model(results: Results, row: dict[str, Any], origin: dict[str, str]) -> str:
    """Put the model of results whose row is written into the registry; what to say of it. Raises store errors."""
    params, scores = results.params, results.scores()
    name = f"{params.corpus}-{params.source}-{params.target}"
    data = {str(one["name"]): f"{one['lines']:,} lines, sha256 {one['sha256']}" for one in row["datasets"]}
    card = model_card(name, (params.source, params.target), vars(params), scores, results.signatures(), data,
                      {"train_key": row["train_key"], "config_key": row["config_key"], **origin})  # fmt: skip
    valid_sha256 = "".join(results.sha256(f"data/raw/valid.{side}") for side in ("src", "tgt"))
    options = params.only("beam_size", "length_penalty", "extra_length")
    with tempfile.TemporaryDirectory() as folder:
        for file, place in results.folder("data/model").items():
            shutil.copyfile(place, Path(folder) / file)  # MLflow follows no links out of the folder
        return register(
            project_root(), name, Path(folder), options, row["config_key"], scores["valid_bleu"], valid_sha256, card,
            results.engines_agree(),
        )  # fmt: skip


if __name__ == "__main__":
    run(main)
