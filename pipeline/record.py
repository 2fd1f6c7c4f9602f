"""Stage record: complete the MLflow run of this configuration and register its model.

train makes the run and sends its curve. This stage adds scores, tags and files and sets FINISHED. A run that does not
exist, as after a pull, is made here.

Reads   data/model, data/raw, data/hypotheses, dvc.lock and all reports. reports/engines.json is used to choose
        the champion if it was measured on this model; it is not a dependency, so DVC may run compare_engines later
Writes  work/runs (the record of the run, which is sent to MLflow); data/run.json: config_key and train_key, the hashes
        that identify the run and its training. It is git-ignored, not cached and kept between runs, so DVC runs this
        stage in a fresh clone, after `dvc pull` and with a shared cache, even if all other outs are cached
Params  all: each configuration has a run
"""

from pipeline.stage import arguments, project_root, require, run
from pipeline.tracking.content import configuration_of, origin
from pipeline.tracking.recorder import Configuration, record_configuration
from pipeline.tracking.registration import register_model
from pipeline.tracking.results import Results, WorkTree
from pipeline.tracking.store import reason, store_errors
from transformer.files import write_json


def main() -> None:
    paths = arguments(
        __doc__,
        raw="data/raw",
        hypotheses="data/hypotheses",
        model="data/model",
        curve="reports/training.csv",
        summary="reports/training.json",
        environment="reports/environment.json",
        engines="reports/engines.json",
        scores="reports/scores.json",
        signatures="reports/signatures.json",
        samples="reports/samples.csv",
        page="reports/report.html",
        attention="reports/attention.svg",
        run="data/run.json",
    )
    require(
        paths.raw,
        paths.hypotheses,
        paths.model,
        paths.curve,
        paths.summary,
        paths.samples,
        paths.scores,
        paths.signatures,
        paths.page,
        paths.attention,
    )
    results, tags = WorkTree.of_stage(paths), origin()
    configuration = configuration_of(results, tags)
    print(recorded_and_registered(results, configuration, tags))
    write_json(paths.run, {"config_key": configuration.config_key, "train_key": configuration.train_key})


def recorded_and_registered(results: Results, configuration: Configuration, origin: dict[str, str]) -> str:
    """Write the run and register the model. Returns the message to print, also if MLflow cannot be reached."""
    problem = "MLflow cannot be reached"
    if record_configuration(project_root(), configuration):
        try:
            return register_model(results, configuration, origin)
        except store_errors() as error:
            problem = reason(error)
    return f"The model was not registered: {problem}. `python -m pipeline track` registers it later."


if __name__ == "__main__":
    run(main)
