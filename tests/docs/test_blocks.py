"""The blocks of README.md, CONTRIBUTING.md and docs/ work as written.

Python blocks are run. Of each shell line it is checked that its programs, commands, options, knobs and files exist; the
full tests run each line in one prepared project, in the order of the pages. NOT_RUN names the lines that are not run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pages import NAMES, OUTPUT, PYTHON, SHELL, Block, blocks, read, shell_lines
from support.projects import command, prepared_project
from support.tiny import ROOT, model_folder

from pipeline.__main__ import COMMANDS
from pipeline.params import Params
from transformer.inference.ctranslate2_export import export

SERVER = "a server, which does not end"
NETWORK = "needs the network"
MINUTES = "takes minutes"
MAKE = "make installs .venv from the network; what it runs is tested elsewhere"
TESTS = "runs tests, or the style checks that .ci/run begins with"
ELSEWHERE = "needs a remote and a second clone; tests/pipeline/test_pipeline.py has them"
QUEUE = "starts workers that outlive the test; tests/pipeline/test_experiments.py runs a queue"
GRID = "queues or reads many experiments; tests/pipeline/test_table3.py does"
CAPTIONS = "needs Multi30k in data/raw, which is downloaded"
TEAM = "starts a server; tests/tracking/test_team_server.py starts it with Caddy and PostgreSQL"
CLUSTER = "needs a cluster; tests/pipeline/test_slurm.py submits jobs to one"
IMAGE = "needs Docker or Kubernetes; tests/pipeline/test_cluster.py checks what deploy/ has for them"
VERSIONS = "needs two versions of a model; tests/tracking/test_serving.py has them"
MACHINES = "needs several machines; tests/pipeline/test_machines.py has two"
BENCH = "needs other programs (make bench-setup) and takes minutes"
NOT_RUN = {
    "make run": MAKE,
    "make ui": SERVER,
    "make setup": MAKE,
    "make bench-setup": MAKE,
    "make clean": MAKE,
    "dvc repro && make walkthrough && python -m pipeline pictures": MAKE,
    "make clean DAYS=30": MAKE,
    "make lint": TESTS,
    "make test": TESTS,
    "make test-all": TESTS,
    ". .venv/bin/activate": "the prepared project has no .venv",
    "python -m pytest -q tests/training/test_loss_and_schedule.py": TESTS,
    "python -m pytest -q tests/text -k comes_back": TESTS,
    'python -m pytest -q tests/test_house.py tests/docs tests/pipeline/test_params.py -m "not full"': TESTS,
    "pip install .": f"{NETWORK}; tests/inference/test_installed.py installs the package",
    "cp recipes/multi30k.yaml params.yaml && dvc exp run": f"{NETWORK} and {MINUTES}",
    'cp recipes/multi30k.yaml params.yaml && dvc exp run -S "test_sets=test_2016_flickr test_2017_flickr"': (
        f"{NETWORK} and {MINUTES}"
    ),
    "python -m pipeline manifest iwslt2017": NETWORK,
    "python -m pipeline manifest wmt14": NETWORK,
    "cp recipes/wmt14_base.yaml params.yaml && DEVICES=gpu dvc repro": "needs GPUs",
    "python -m benchmarks.prepare --pairs 10000,100000,1000000 --json prepare.json": MINUTES,
    "python -m benchmarks.prepare --pairs 100000 --peers": BENCH,
    "DEVICES=gpu dvc repro": "needs a GPU",
    "DEVICES=gpu SHARDING=full dvc repro": "needs a GPU",
    "NODES=2 RENDEZVOUS=10.0.0.1:29400 dvc repro": MACHINES,
    "NODES=2 RENDEZVOUS=10.0.0.1:29400 python -m pipeline.train": MACHINES,
    "sacrebleu data/raw/test.tgt --input data/hypotheses/test.hyp --tokenize flores200": NETWORK,
    "python -m pipeline clean --projects ../other_project": "needs a second project",
    "dvc queue start": QUEUE,
    "dvc queue start --jobs 2": QUEUE,
    "dvc queue start --jobs 8": QUEUE,
    "dvc exp apply EXP1": "changes params.yaml, which the lines after it start from",
    "python -m pipeline search --trials 30 warmup=500..8000 dropout=0.1..0.4": (
        f"{MINUTES}; tests/pipeline/test_search_experiments.py has a search"
    ),
    "python -m pipeline search --jobs 8 --trials 72 warmup=500..8000 dropout=0.1..0.4": MINUTES,
    "OMP_NUM_THREADS=1 dvc queue start --jobs 2": QUEUE,
    "DEVICES=gpu dvc queue start": QUEUE,
    "python -m pipeline table3 queue": GRID,
    "python -m pipeline table3 show --speed": GRID,
    "cp recipes/multi30k.yaml params.yaml && dvc repro download": NETWORK,
    "mkdir captions": CAPTIONS,
    "head -n 10000 data/raw/train.src > captions/train.de": CAPTIONS,
    "head -n 10000 data/raw/train.tgt > captions/train.en": CAPTIONS,
    "cp data/raw/valid.src captions/valid.de && cp data/raw/valid.tgt captions/valid.en": CAPTIONS,
    "cp data/raw/test_2016_flickr.src captions/test_2016_flickr.de": CAPTIONS,
    "cp data/raw/test_2016_flickr.tgt captions/test_2016_flickr.en": CAPTIONS,
    'dvc add captions && git add captions.dvc .gitignore && git commit -m "10,000 captions"': CAPTIONS,
    "cp recipes/table3.yaml params.yaml && python -m pipeline table3 queue --short": GRID,
    "cp recipes/wmt14_base.yaml params.yaml && python -m pipeline table3 queue --name wmt14": GRID,
    "mlflow ui": SERVER,
    "python -m pipeline serve toy-de-en": SERVER,
    "python -m pipeline demo": SERVER,
    "python -m pipeline demo EXP1 EXP2": SERVER,
    "python -m pipeline demo models:/toy-de-en@champion data/model": SERVER,
    "python -m pipeline promote toy-de-en 2": VERSIONS,
    "python -m pipeline rollback toy-de-en": VERSIONS,
    "curl localhost:5001/invocations -H 'Content-Type: application/json' "
    """-d '{"inputs": ["Der Hund schläft."], "params": {"beam_size": 4}}'""": "asks the server above",
    "mkdir -m 700 deploy/secrets": TEAM,
    "openssl rand -hex 32 > deploy/secrets/database_password": TEAM,
    "openssl rand -hex 32 > deploy/secrets/admin_password": TEAM,
    "openssl rand -hex 32 > deploy/secrets/session_key": TEAM,
    "SITE=runs.example.org docker compose --file deploy/compose.yaml up --detach": SERVER,
    """echo "CREATE ROLE mlflow LOGIN PASSWORD '$(cat deploy/secrets/database_password)'" """
    "| sudo -u postgres psql": TEAM,
    "sudo -u postgres createdb --owner mlflow mlflow": TEAM,
    "python deploy/mlflow_server.py --secrets deploy/secrets --files files --site runs.example.org "
    "--database mlflow@127.0.0.1/mlflow": TEAM,
    "SITE=runs.example.org caddy run --config deploy/Caddyfile": TEAM,
    """curl --user admin https://runs.example.org/api/2.0/mlflow/users/create --json """
    """'{"username": "anna", "password": "..."}'""": TEAM,
    "sbatch --array=1-3 deploy/slurm/experiments.sbatch experiments.txt": CLUSTER,
    "sbatch --array=1-3%2 --gpus-per-task=1 --cpus-per-task=8 --time=8:00:00 deploy/slurm/experiments.sbatch "
    "experiments.txt": CLUSTER,
    "sbatch --nodes=4 --gpus-per-node=8 --cpus-per-task=32 deploy/slurm/nodes.sbatch dvc exp run "
    "-S warmup=8000": CLUSTER,
    "kubectl create secret generic mlflow --from-env-file=mlflow.env": IMAGE,
    "kubectl apply --filename deploy/kubernetes/experiments.yaml": IMAGE,
    "kubectl apply --filename deploy/kubernetes/nodes.yaml": IMAGE,
    "docker build --file deploy/Dockerfile --tag transformer-pipeline:0.2.0 .": IMAGE,
    'docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/project" --gpus all --ipc host --env DEVICES=gpu '
    "transformer-pipeline:0.2.0": IMAGE,
    "dvc remote add --default team s3://bucket/path": ELSEWHERE,
    "dvc push --run-cache && git push && dvc exp push origin EXP1": ELSEWHERE,
    "git pull && dvc exp pull origin EXP1 && dvc pull --run-cache": ELSEWHERE,
    "python -m benchmarks.train --size both --json speed.json --plot speed.svg": BENCH,
    "python -m benchmarks.decode --json decode.json": BENCH,
    "python -m benchmarks.profile --size base": MINUTES,
    "python -m benchmarks.predict --page docs/scaling.md": "tests/benchmarks/test_scaling.py computes the page",
    "python -m benchmarks.predict --measure --page docs/scaling.md": MINUTES,
    "python -m benchmarks.profile --size base --device cuda --batch-tokens 25000": "needs a GPU",
}
FOUND = [block for name in NAMES for block in blocks(name, read(name))]
LINES = [place_and_line for block in FOUND if block.kind in SHELL for place_and_line in shell_lines(block)]
PROGRAMS = {
    "caddy",
    "cp",
    "curl",
    "docker",
    "echo",
    "export",
    "git",
    "head",
    "kubectl",
    "mkdir",
    "mlflow",
    "openssl",
    "pip",
    "sacrebleu",
    "sbatch",
    "sudo",
    ".",
}


def mistakes(line: str) -> Iterator[str]:
    """What a command line names that does not exist."""
    words = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
    words.whitespace_split = True
    part: list[str] = []
    for word in [*words, "&&"]:
        if word in ("&&", "||", "|", ";"):
            yield from mistakes_of([one for one in part if one])
            part = []
        elif not part and re.match(r"[A-Z_]+=", word):
            continue  # a variable of the environment
        else:
            part.append(word)


def mistakes_of(words: list[str]) -> Iterator[str]:
    """`mistakes` of one command."""
    words = words[: next((place for place, word in enumerate(words) if word in "<>"), len(words))]
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
        yield from (word for word in rest if word not in targets and "=" not in word)
    elif program == "dvc":
        yield from mistakes_of_dvc(rest)
    elif program == "python":
        yield from mistakes_of_python(rest)
    elif program not in PROGRAMS:
        yield program
    yield from (word for word in rest if word.startswith(("recipes/", "tests/")) and not (ROOT / word).exists())


def mistakes_of_dvc(words: list[str]) -> Iterator[str]:
    """`mistakes` of a dvc command: what its parser refuses, and knobs that params.yaml does not have."""
    from dvc.cli import DvcParserError, parse_args

    try:
        given = parse_args(words)
    except (DvcParserError, SystemExit):
        yield f"dvc {shlex.join(words)}"
        return
    for override in getattr(given, "set_param", None) or []:
        if override.split("=")[0] not in Params.model_fields:
            yield override


def mistakes_of_python(words: list[str]) -> Iterator[str]:
    """`mistakes` of python -m MODULE: the module, the command behind `python -m pipeline`, options; or of a file."""
    if words[0].endswith(".py"):
        words = ["-m", words[0].removesuffix(".py").replace("/", "."), *words[1:]]
    module, *rest = words[1:]
    if module == "pytest":
        return
    if module == "pipeline":
        if not rest or rest[0] not in COMMANDS:
            yield f"python -m pipeline {' '.join(rest)}"
            return
        module, rest = f"pipeline.commands.{rest[0]}", rest[1:]
    spec = find_spec(module)
    if spec is None:
        yield module
        return
    main = find_spec(f"{module}.__main__") if spec.submodule_search_locations else spec
    source = Path(main.origin).read_text(encoding="utf-8")
    for word in rest:
        if word.startswith("--") and word != "--help" and f'"{word}"' not in source:
            yield word


def test_every_block_says_its_language():
    for block in FOUND:
        assert block.kind in (*SHELL, *PYTHON, *OUTPUT), f"{block}: {block.kind}"


@pytest.mark.parametrize(("place", "line"), LINES, ids=[place for place, _ in LINES])
def test_a_shell_line_names_commands_options_knobs_and_files_that_exist(place, line):
    assert list(mistakes(line)) == []


@pytest.mark.parametrize(
    "line",
    [
        "make rum",
        "dvc repo",
        "dvc exp run -S warm_up=3",
        "dvc exp run --naem x",
        "python -m pipeline compar a b",
        "python -m pipeline clean --day 3",
        "python -m transformer data/model --beam 3",
        "python -m transformers x",
        "cp recipes/none.yaml params.yaml && dvc repro",
        "dvc repro && mak test",
        "python -m pipeline",
    ],
)
def test_a_wrong_line_is_found(line):
    assert list(mistakes(line))


def test_only_lines_of_the_pages_are_excepted():
    assert set(NOT_RUN) <= {line for _, line in LINES}


@pytest.fixture(scope="module")
def folder_with_models(tmp_path_factory) -> Path:
    """A folder with a random model, as data/model and exported."""
    folder = tmp_path_factory.mktemp("models")
    model_folder(folder / "data/model")
    export(folder / "data/model", folder / "data/ct2/float32", "float32")
    return folder


@pytest.mark.parametrize("block", [block for block in FOUND if block.kind in PYTHON], ids=str)
def test_a_python_block_runs(block: Block, folder_with_models: Path, monkeypatch, capsys):
    monkeypatch.chdir(folder_with_models)
    exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run, with two experiments, a folder of text and two more models."""
    folder = prepared_project(shared_folder, tmp_path_factory.mktemp("pages") / "project")
    for name in ("README.md", "CONTRIBUTING.md", "docs", "Makefile"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    command(folder, sys.executable, "-m", "pipeline", "plots_template")
    for name, override in (("EXP1", "beam_size=2"), ("EXP2", "beam_size=3")):
        command(folder, "dvc", "exp", "run", "-n", name, "-S", override)
    shutil.copytree(folder / "own", folder / "my_folder")
    for name in ("run1", "run2"):
        shutil.copytree(folder / "data/model", folder / name / "model")
    return folder


@pytest.mark.full
@pytest.mark.parametrize(
    ("place", "line"),
    [one for one in LINES if one[1] not in NOT_RUN],
    ids=[place for place, line in LINES if line not in NOT_RUN],
)
def test_a_shell_line_runs(place, line, project):
    if "pictures" in line and not shutil.which("chromium"):
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=project,
        stdin=subprocess.DEVNULL,
        env={**kept, "PATH": path, "DVC_NO_ANALYTICS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{place}: {line}\n{done.stdout}"
