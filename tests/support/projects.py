"""Small copies of this project for tests that run whole pipelines; commands in them, and their MLflow runs."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock
from mlflow import MlflowClient
from ruamel.yaml import YAML
from support.forks import CAN_FORK, forget, forked, run_dvc
from support.tiny import ROOT

from pipeline.__main__ import main

SMALL = {
    "corpus": "own",
    "bpe_merges": 40,
    "d_model": 16,
    "d_ff": 32,
    "heads": 2,
    "layers": 1,
    "batch_tokens": 256,
    "device_tokens": 128,
    "max_steps": 12,
    "warmup": 4,
    "log_every": 2,
    "save_every": 4,
    "optimiser": "adam",
    "lr_factor": 1.0,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "keep": 3,
    "average_last": 2,
    "extra_length": 5,
    "max_length": 60,
    "variants": 0.0,
}
LIVE = ("gradient_norm", "tokens_per_second")
SPLITS = {"train": 150, "valid": 12, "test": 12}
PATHS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def params_file(folder: Path, **changes) -> None:
    """Write params.yaml: the toy recipe with the values of SMALL and `changes`."""
    yaml = YAML()
    values = yaml.load(ROOT / "recipes/toy.yaml")
    values.update({**SMALL, **changes})
    yaml.dump(values, folder / "params.yaml")


def own_corpus(folder: Path) -> None:
    """Write a corpus of own files: counting in German and English."""
    chance = random.Random(1)
    german, english = ["eins", "zwei", "drei", "vier", "fünf"], ["one", "two", "three", "four", "five"]
    folder.mkdir()
    for split, count in SPLITS.items():
        rows = [[chance.randrange(5) for _ in range(chance.randint(1, 6))] for _ in range(count)]
        for code, words in (("de", german), ("en", english)):
            lines = [" ".join(words[place] for place in row) + "." for row in rows]
            (folder / f"{split}.{code}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def environment(**more: str) -> dict[str, str]:
    """The environment of a command line: without settings of DVC and MLflow, but for `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_"))}
    return {**kept, "PATH": PATHS, "DVC_NO_ANALYTICS": "1", "MLFLOW_DISABLE_TELEMETRY": "true", **more}


def command(folder: Path, *words: str, status: int | tuple[int, ...] = 0, **variables: str) -> str:
    """Run a command line in a folder; returns what it printed. status: the one it must end with, or several."""
    env = environment(**variables)
    apart = ("exp", "queue", "status")  # they start DVC again, or print by a console that this process made
    if CAN_FORK and words[0] == "dvc" and words[1] not in apart:
        done = forked(run_dvc, words, folder, env, merged=True)
    else:
        done = subprocess.run(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode in (status if isinstance(status, tuple) else (status,)), done.stdout
    return done.stdout


def pipeline_command(folder: Path, capsys: pytest.CaptureFixture[str], *words: str, error: bool = False) -> str:
    """Run `python -m pipeline` in a folder, in this process; returns what it prints. error: whether it must fail.

    As in a new process, nothing is remembered of other folders or of commits made since.
    """
    forget()
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["pipeline", *words])
        with pytest.raises(SystemExit) if error else contextlib.nullcontext() as ended:
            main()
    return (f"{ended.value.code}\n" if ended else "") + "".join(capsys.readouterr())


def copied_project(folder: Path) -> None:
    """Copy this project's code and recipes, without data and results."""
    ignored = shutil.ignore_patterns("__pycache__", "cache", "tmp")
    for name in (".dvc", "pipeline", "transformer", "corpora", "recipes"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("dvc.yaml", "versions.yaml", ".gitignore", ".dvcignore"):
        shutil.copy(ROOT / name, folder / name)


def commit_all(folder: Path) -> None:
    """Make a folder a git repository whose first commit has all files."""
    command(folder, "git", "init", "-q")
    command(folder, "git", "config", "user.name", "t")
    command(folder, "git", "config", "user.email", "t@t")
    command(folder, "git", "add", "-A")
    command(folder, "git", "commit", "-qm", "start")


def shipped_project(folder: Path) -> Path:
    """A copy of this project with params.yaml as shipped, committed and not run."""
    copied_project(folder)
    shutil.copy(ROOT / "params.yaml", folder / "params.yaml")
    commit_all(folder)
    return folder


def small_project(folder: Path) -> Path:
    """A copy of this project with a small corpus, committed, and run once by dvc repro."""
    copied_project(folder)
    own_corpus(folder / "own")
    params_file(folder)
    commit_all(folder)
    command(folder, "dvc", "repro")
    command(folder, "git", "add", "-A")
    command(folder, "git", "commit", "-qm", "run")
    return folder


def finished_project(shared: Path) -> Path:
    """A small project that was run once, in a folder with a space in its name. Tests read it or copy it.

    shared: a folder of all test processes, of which the first runs the project there.
    """
    folder = shared / "small project"
    with FileLock(shared / "small_project.lock"):
        if not (shared / "small_project.done").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a test that failed
            small_project(folder)
            (shared / "small_project.done").touch()
    return folder


def prepared_project(shared: Path, folder: Path) -> Path:
    """A copy of the finished project in `folder`, with an MLflow run of its own: it runs record, as after a pull."""
    ignored = shutil.ignore_patterns("mlflow.db*", "mlartifacts", "runs", "run.json")
    shutil.copytree(finished_project(shared), folder, ignore=ignored)
    command(folder, "dvc", "repro")
    return folder


def runs(folder: Path, uri: str = "") -> list:
    """The runs in the MLflow database of a project, or of the server with the address `uri`."""
    client = reader(folder, uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return [client.get_run(run.info.run_id) for run in client.search_runs(experiments)]


def reader(folder: Path, uri: str = "") -> MlflowClient:
    """A client on a copy of the database, since MLflow keeps a database open that a test may delete; or on a server."""
    if not uri:
        copy = Path(tempfile.mkdtemp(dir=folder / "work")) / "mlflow.db"
        shutil.copy(folder / "mlflow.db", copy)
        uri = f"sqlite:///{copy}"
    return MlflowClient(uri)


def seen(folder: Path, uri: str = "") -> dict[str, tuple]:
    """What a person sees of each run: config_key -> name, status, params, metrics, files, data, tags.

    Without the metrics that only the live curve has.
    """
    client, shown = reader(folder, uri), {}
    for run in runs(folder, uri):
        files = {file.path for file in client.list_artifacts(run.info.run_id)} - {"model"}
        data = {(entry.dataset.name, entry.dataset.profile) for entry in run.inputs.dataset_inputs}
        prefixes = ("dvc_", "env_", "signature", "mlflow.user")
        tags = {name: value for name, value in run.data.tags.items() if name.startswith(prefixes)}
        metrics = {name: value for name, value in run.data.metrics.items() if name not in LIVE}
        key = run.data.tags["config_key"]
        assert key not in shown
        shown[key] = (run.info.run_name, run.info.status, run.data.params, metrics, files, data, tags)
    return shown
