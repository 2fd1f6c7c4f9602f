"""`python -m pipeline serve` starts the weights and the code that DVC and git know, and no others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from support.projects import PATHS, command, pipeline_command, prepared_project, registered_name
from support.servers import free_port

COMMAND = (sys.executable, "-m", "pipeline")


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run once, with a registered model."""
    return prepared_project(shared_folder, tmp_path_factory.mktemp("serve") / "project")


def stored(project: Path) -> Path:
    """The folder in which MLflow keeps the files of the registered model."""
    (model,) = (project / "mlartifacts/models").iterdir()
    return model / "artifacts"


@pytest.mark.full
def test_the_champion_is_served_with_checked_weights_and_code(project):
    port = free_port()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_", "PYTHONPATH"))}
    words = [*COMMAND, "serve", registered_name(project), "--port", str(port)]
    server = subprocess.Popen(
        words,
        cwd=project,
        env=env | {"PATH": PATHS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    body = json.dumps({"inputs": ["eins zwei."]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"})
    try:
        for _ in range(600):  # tries, every 0.1 s
            try:
                with urllib.request.urlopen(request) as answer:
                    reply = json.loads(answer.read())
                break
            except OSError:
                assert server.poll() is None, server.stdout and server.stdout.read()
                time.sleep(0.1)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        output, _ = server.communicate()
    assert len(reply["predictions"]) == 1
    head = command(project, "git", "rev-parse", "HEAD")[:10]
    assert f"weights as in dvc.lock, code as in commit {head}" in output


@pytest.mark.full
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("artifacts/model/weights.safetensors", "The weights of version 1 of {name} are not those of any dvc.lock"),
        ("artifacts/model/model.bin", "The weights of version 1 of {name} are not those of any dvc.lock"),
        ("artifacts/model/vocab.txt", "The weights of version 1 of {name} are not those of any dvc.lock"),
        ("code/transformer/serving/served_translator.py", "differs from HEAD in serving/served_translator.py"),
        ("code/transformer/new.py", "differs from HEAD in new.py"),
    ],
)
def test_a_replaced_file_of_a_model_is_named_and_not_started(project, path, message):
    name, file = registered_name(project), stored(project) / path
    before = file.read_bytes() if file.exists() else None
    file.write_bytes((before or b"") + b"\n# replaced")
    try:
        output = command(project, *COMMAND, "serve", name, status=1)
    finally:
        file.write_bytes(before) if before is not None else file.unlink()
    assert message.format(name=name) in " ".join(output.split())
    assert "Serving" not in output
    assert "Traceback" not in output


@pytest.mark.full
def test_a_replaced_description_of_the_model_is_not_used(project):
    file = stored(project) / "MLmodel"
    before = file.read_text()
    file.write_text(before.replace("mlflow.pyfunc.model", "os").replace("serving.py", "../evil.py"))
    try:
        words = (*COMMAND, "serve", registered_name(project), "--port", str(free_port()))
        output = command(project, *words, status=1, TRANSLATION_DEADLINE="-1")  # which ends the server
    finally:
        file.write_text(before)
    assert "Serving" in output  # what is started is made anew from weights and code that were checked
    assert "evil" not in output


def test_a_port_that_is_none_is_named_in_one_line(tmp_path, capsys):
    line = pipeline_command(tmp_path, capsys, "serve", "toy-de-en", "--port", "70000", error=True)
    assert line == "error: --port 70000 is not a port number. Choose one from 1024 to 65535.\n"


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("serve", "nobody"), "nobody cannot be fetched"),
        (("serve", "a@b@c"), "is not NAME, NAME@ALIAS or NAME/VERSION"),
        (("promote", "nobody", "1"), "nobody is not a registered model"),
        (("rollback", "nobody"), "nobody is not a registered model"),
    ],
)
def test_an_unknown_model_is_named_in_one_line(project, words, message):
    output = command(project, *COMMAND, *words, status=1)
    assert message in output
    assert "Traceback" not in output
