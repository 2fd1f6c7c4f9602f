"""A team's server is closed: nothing without a password, no more than its members need, TLS in front."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from support.servers import ADMIN, TeamServer, closed_server
from support.tiny import ROOT

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[TeamServer]:
    """MLflow with passwords behind Caddy, over PostgreSQL, with the members anna and ben."""
    with closed_server(tmp_path_factory.mktemp("team")) as started:
        for name in ("anna", "ben"):
            member = {"username": name, "password": f"{name}'s long password"}
            assert ask(started, "/api/2.0/mlflow/users/create", "admin", member) == 200
        yield started


def ask(server: TeamServer, path: str, member: str = "", body: dict | str | None = None, password: str = "") -> int:
    """Send a request, as a member or as nobody; returns the status."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{server.address}{path}", data, {"Content-Type": "application/json"})
    if member:
        secret = password or (ADMIN if member == "admin" else f"{member}'s long password")
        request.add_header("Authorization", server.login(member, secret))
    try:
        with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=server.authority)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


CLOSED = [
    ("/", None),
    ("/graphql", {}),
    ("/model-versions/get-artifact?path=a&name=b&version=1", None),
    ("/api/2.0/mlflow/runs/create", {"experiment_id": "0"}),
    ("/api/2.0/mlflow/users/create", {"username": "eve", "password": "a long password"}),
    ("/ajax-api/2.0/mlflow/experiments/search", {}),
]


@pytest.mark.parametrize(("path", "body"), CLOSED, ids=[path for path, _ in CLOSED])
def test_nothing_is_answered_without_a_password(server, path, body):
    assert ask(server, path, body=body) == 401
    assert ask(server, path, "anna", body, password="wrong") == 401


@pytest.mark.parametrize(
    "path",
    [
        "/ajax-api/3.0/mlflow/assistant/config",
        "/gateway/x",
        "/api/2.0/mlflow/runs/%2e%2e/webhooks",
        "//ajax-api/3.0/mlflow/assistant/config",
        "/ajax-api/3.0/mlflow/%61ssistant/config",
        "/ajax-api/3.0/mlflow/x/../assistant/config",
        "/metrics",
        "/openapi.json",
    ],
)
def test_what_a_team_does_not_need_is_not_even_an_admins(server, path):
    assert ask(server, path, "admin") == 404
    assert ask(server, path, "admin", {}) == 404


def test_members_write_and_read_and_the_admin_makes_members(server):
    assert ask(server, "/api/2.0/mlflow/experiments/create", "anna", {"name": "of anna"}) == 200
    assert ask(server, "/api/2.0/mlflow/experiments/get-by-name?experiment_name=of%20anna", "ben") == 200
    assert ask(server, "/api/2.0/mlflow/users/create", "ben", {"username": "eve", "password": "a long password"}) == 403


def test_no_secret_is_on_a_command_line_or_in_a_temporary_file(server, tmp_path_factory):
    lines = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout
    assert "mlflow server" in lines
    assert not any(secret in lines for secret in server.secrets)
    configs = [path.read_text() for path in tmp_path_factory.getbasetemp().glob("team*/mlflow-auth-*.ini")]
    assert configs
    assert not any(secret in config for secret in server.secrets for config in configs)


def test_a_missing_or_readable_secret_is_named(tmp_path):
    options = ["--secrets", tmp_path, "--files", tmp_path, "--site", "x"]
    words = [sys.executable, ROOT / "deploy/mlflow_server.py", *options]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert "database_password is missing or empty. Make it: " in done.stderr
    (tmp_path / "database_password").write_text("a")
    tmp_path.chmod(0o755)
    (tmp_path / "database_password").chmod(0o644)
    done = subprocess.run(words, capture_output=True, text=True)
    assert "other users can read" in done.stderr
    assert "chmod 700" in done.stderr
