"""Stage record: complete the MLflow run of this configuration and register its model.

train makes the run and sends its curve. This stage adds params, scores, tags, files and what the curve lacks, and sets
FINISHED. A run that does not exist, as after a pull, is made here.

Reads   data/model, data/raw, data/hypotheses, data/back/training.csv if there is one, dvc.lock and all reports.
        reports/engines.json is used to choose the champion if it was measured on this model; it is not a dependency,
        so DVC may run compare_engines later
Writes  the MLflow run; data/run.json: config_key and train_key, the hashes that identify the run and its training. It
        is git-ignored, not cached and kept between runs, so DVC runs this stage in a fresh clone, after `dvc pull` and
        with a shared cache, even if all other outs are cached
Params  all: each configuration has a run
"""

from pipeline.tracking.content import FinishedRun, finished_run, origin
from pipeline.tracking.registry import register_model
from pipeline.tracking.store import connect, reason, store_errors
from pipeline.tracking.write import write_run
from pipeline.workflow.dvc_lock import Result
from pipeline.workflow.stage import arguments, project_root, require, run
from transformer.files import write_json

PLACES = {  # option -> path in the project
    "raw": "data/raw",
    "hypotheses": "data/hypotheses",
    "model": "data/model",
    "curve": "reports/training.csv",
    "summary": "reports/training.json",
    "environment": "reports/environment.json",
    "engines": "reports/engines.json",
    "scores": "reports/scores.json",
    "signatures": "reports/signatures.json",
    "samples": "reports/samples.csv",
    "page": "reports/report.html",
    "attention": "reports/attention.svg",
}


def main() -> None:
    paths = arguments(__doc__, None, **PLACES, run="data/run.json")
    places = {path: getattr(paths, option) for option, path in PLACES.items()}
    require(*(place for place in places.values() if place != paths.engines))
    results, tags = Result(), origin()
    results.entries()
    finished = finished_run(results, tags, baseline(tags.get("DVC_EXP_BASELINE_REV")))
    print(record(results, finished, tags))
    write_json(paths.run, {"config_key": finished.config_key, "train_key": finished.train_key})


def baseline(commit: str | None) -> Result | None:
    """The results of the commit that an experiment started from; None outside of an experiment."""
    if commit is None:
        return None
    return Result("baseline", commit)


def record(results: Result, finished: FinishedRun, origin: dict[str, str]) -> str:
    """Write the run and register the model. Returns the message to print, also if MLflow cannot be reached."""
    try:
        store = connect(project_root())
        write_run(store, finished)
        return register_model(store, results, finished, origin)
    except store_errors() as error:
        return (
            f"The run or its model was not written: {reason(error)}. Result are not affected. Check "
            "MLFLOW_TRACKING_URI or, if unset, mlflow.db, then run `python -m pipeline track`."
        )


if __name__ == "__main__":
    run(main)
