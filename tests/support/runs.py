"""Trainings and configurations for tests, as the stages write them to MLflow."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import Run

from pipeline.tracking import store as tracking
from pipeline.tracking.content import FinishedRun
from pipeline.tracking.live import LiveRun, run_of_training
from pipeline.tracking.write import run_of, write_run

HERE = Path(__file__).resolve().parents[2]
PARAMS = {"corpus": "corpora/toy", "warmup": 100, "dropout": 0.1, "lowercase": False, "beam_size": 4}
SCORES = {"bleu": 31.5, "valid_bleu": 32.0, "chrf": 51.0, "sentences": 200}
KEYS = ("train_loss", "valid_loss", "learning_rate")


def curve(last: int) -> list[dict]:
    """The rows of a curve at steps 10, 20, ... `last`; every third one has a validation loss."""
    return [
        {
            "step": step,
            "train_loss": 100 / step,
            "valid_loss": 90 / step if step % 30 == 0 else None,
            "learning_rate": 0.1,
        }
        for step in range(10, last + 1, 10)
    ]


opened = tracking.connect


def training(root: Path, key: str, **changed: str | int) -> LiveRun:
    """A training to enter by `with`; changed: params."""
    return LiveRun(root / f"work/train-{key}", PARAMS | changed, key, {"env_torch": "2"})


def runs_of(root: Path, key: str) -> list[Run]:
    """The runs of a training, newest first."""
    return opened(root).search(f"tags.train_key = '{key}'")


def train(root: Path, key: str, last: int = 60, **changed: str | int) -> str:
    """Train to the end; returns the id of the newest run of this training."""
    with training(root, key, **changed) as live:
        live.log_curve(curve(last))
    return runs_of(root, key)[0].info.run_id


def wait_for_steps(root: Path, key: str, last: int) -> str:
    """Return the id of the run of a training when the store has its curve up to a step."""
    while True:
        for run in runs_of(root, key):
            if last in steps(opened(root), run.info.run_id, "train_loss"):
                return run.info.run_id
        time.sleep(0.01)


def configuration(key: str, config: str, last: int = 60, **changed: str | int) -> dict:
    """The fields of a FinishedRun, with the name of a DVC experiment if the environment has one."""
    name = {"DVC_EXP_NAME": os.environ["DVC_EXP_NAME"]} if "DVC_EXP_NAME" in os.environ else {}
    return {
        "params": PARAMS | changed,
        "train_key": key,
        "config_key": config,
        "curve": curve(last),
        "scores": SCORES,
        "tags": {"recorded_at": "abc", **name},
    }


def record(root: Path, fields: Mapping[str, Any]) -> Run:
    """Write the run of a configuration, as the stage record does. fields: of a FinishedRun."""
    store, finished = opened(root), FinishedRun(**fields)
    run = run_of(store, run_of_training(store, finished.params, finished.train_key), finished.config_key)
    if run is None or run.info.status != "FINISHED":
        run = write_run(store, finished, run)
    return store.client.get_run(run.info.run_id)


def score(root: Path, key: str, config: str, last: int = 60, **changed: str | int) -> str:
    """Write the run of a configuration, as the stage record does; returns its id. changed: params."""
    return record(root, configuration(key, config, last, **changed)).info.run_id


def steps(store: tracking.Store, run_id: str, metric: str) -> list[int]:
    """The steps at which a metric of a run has a value, in MLflow's order."""
    return [point.step for point in store.client.get_metric_history(run_id, metric)]


def start(code: str, *arguments: str, cwd: Path = HERE, **environment: str) -> subprocess.Popen[str]:
    """Start Python code in a new process that can import the project and the tests; environment: more variables."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=os.environ
        | {"PYTHONPATH": f"{HERE}{os.pathsep}{HERE / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
        | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
