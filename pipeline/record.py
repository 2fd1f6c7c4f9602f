"""Stage record: complete the MLflow run of this configuration and register its model.

train makes the run and sends its curve. This stage adds params, scores, tags, files and what the curve lacks, and sets
FINISHED. A run that does not exist, as after a pull, is made here.

Reads   dvc.lock, and what it names: data/model, data/raw, data/hypotheses, data/back and all reports
Writes  the MLflow run; data/run.json: config_key and train_key, the hashes that identify the run and its training. It
        is git-ignored, not cached and kept between runs, so DVC runs this stage in a fresh clone, after `dvc pull` and
        with a shared cache, even if all other outs are cached
Params  all: each configuration has a run
"""

from pipeline.tracking.content import config_key, origin, train_key
from pipeline.tracking.store import StoreError, connect
from pipeline.tracking.write import write_missing
from pipeline.workflow.dvc_lock import Result
from pipeline.workflow.stage import arguments, project_root, run
from transformer.files import write_json


def main() -> None:
    paths = arguments(__doc__, run="data/run.json")
    result = Result()
    keys = {"config_key": config_key(result), "train_key": train_key(result)}
    try:
        print(write_missing(connect(project_root()), result, origin())[1])
    except StoreError as error:
        print(
            f"The run or its model was not written: {error}. Results are not affected. When the "
            "store (MLFLOW_TRACKING_URI or, if unset, mlflow.db) works, run `python -m pipeline track`."
        )
    write_json(paths.run, keys)


if __name__ == "__main__":
    run(main)
