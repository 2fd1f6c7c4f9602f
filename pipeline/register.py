"""Stage register: complete the MLflow row, and put the model into the registry; the best on valid is the champion.

Reads   data/model, data/raw, data/{valid,test}.hyp, dvc.lock and all reports
Writes  nothing here: DVC runs a stage without outs whenever a configuration comes back, also when all else is cached,
        so the row is always there
Params  every one: each configuration is a row
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipeline.experiments import Results, WorkTree
from pipeline.rows import origin, whole_row
from pipeline.stage import arguments, project_root, require, run
from transformer.recording import record
from transformer.registry import model_card, register
from transformer.tracking import reason, store_errors


def main() -> None:
    paths = arguments(
        __doc__, raw="data/raw", valid="data/valid.hyp", test="data/test.hyp", model="data/model",
        curve="reports/training.csv", summary="reports/training.json", environment="reports/environment.json",
        engines="reports/engines.json", scores="reports/scores.json", signatures="reports/signatures.json",
        page="reports/report.html",
    )  # fmt: skip
    require(paths.raw, paths.valid, paths.test, paths.model, paths.curve, paths.scores, paths.signatures, paths.page)
    results, here = WorkTree.of_stage(paths), origin()
    row = whole_row(results, here)
    if not record(project_root(), row):
        print("not registered: MLflow is out of reach; `python -m pipeline.track` does it later")
        return
    try:
        print(register_model(results, row, here))
    except store_errors() as error:
        print(f"not registered: {reason(error)}; `python -m pipeline.track` does it later", file=sys.stderr)


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
            project_root(), name, Path(folder), options, row["config_key"], scores["valid_bleu"], valid_sha256, card
        )


if __name__ == "__main__":
    run(main)
