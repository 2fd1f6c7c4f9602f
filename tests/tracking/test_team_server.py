"""A team's server is closed: nothing without a password, no more than its members need, TLS in front."""

from __future__ import annotations

import json
import os
import re
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
            started.add_member(name)
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


@pytest.mark.parametrize("path", ["/health", "/static-files/favicon.ico", "/api/3.0/mlflow/server-info"])
def test_what_is_public_is_what_the_docs_list(server, path):
    assert ask(server, path) in (200, 404)
    listed = (ROOT / "docs/teams.md").read_text(encoding="utf-8")
    assert any(f"`{part}`" in listed for part in (path, "/static-files", "/server-info"))


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


ROUTES = """
from mlflow.server import app
from mlflow.server.auth import create_app
from mlflow.server.fastapi_app import create_fastapi_app

create_app(app)
routes = [getattr(route, "path", "") for route in create_fastapi_app(app).routes]
print(*(rule.rule for rule in app.url_map.iter_rules()), *routes, sep="\\n")
"""
NOT_OFFERED = {
    *("demo", "gateway", "gateway-proxy", "genai", "issues", "jobs", "label-schemas", "prompt-optimization"),
    *("review-queues", "scorer", "scorers", "webhooks", "workspaces"),
}


def test_every_part_of_mlflows_interface_is_offered_or_refused(tmp_path):
    config = tmp_path / "auth.ini"
    config.write_text(
        "[mlflow]\ndefault_permission = EDIT\nadmin_username = admin\nadmin_password = a long password\n"
        f"database_uri = sqlite:///{tmp_path}/auth.db\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    env = {**os.environ, "MLFLOW_AUTH_CONFIG_PATH": str(config), "MLFLOW_FLASK_SERVER_SECRET_KEY": "x"}
    done = subprocess.run([sys.executable, "-c", ROUTES], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pattern = re.search(r"@offered path_regexp (\S+)", (ROOT / "deploy/Caddyfile").read_text(encoding="utf-8"))
    assert pattern
    routes = {route for route in done.stdout.split() if re.match(r"/(ajax-)?api/", route)}
    refused = {route for route in routes if not re.match(pattern[1], route)}
    assert {re.sub(r".*?/[23]\.0/(mlflow/)?|/.*", "", route, count=1).split("/")[0] for route in refused} == NOT_OFFERED
    assert len(routes - refused) > 100


@pytest.mark.parametrize("name", ["artifact_location", "artifactLocation"])
@pytest.mark.parametrize("encode", [dict, json.dumps])
def test_files_of_an_experiment_stay_in_the_servers_store(server, tmp_path, name, encode):
    for place in (f"file://{tmp_path}", str(tmp_path), "mlruns"):
        body = encode({"name": f"elsewhere {place}", name: place})
        assert ask(server, "/api/2.0/mlflow/experiments/create", "anna", body) == 400
        assert ask(server, "/ajax-api/2.0/mlflow/experiments/create", "anna", body) == 400


def test_members_write_and_read_and_the_admin_makes_members(server):
    assert ask(server, "/api/2.0/mlflow/experiments/create", "anna", {"name": "of anna"}) == 200
    assert ask(server, "/api/2.0/mlflow/experiments/get-by-name?experiment_name=of%20anna", "ben") == 200
    assert ask(server, "/api/2.0/mlflow/users/create", "ben", {"username": "eve", "password": "a long password"}) == 403


RECORD = """
import sys
from pathlib import Path
from support.runs import score, train
train(Path(sys.argv[1]), sys.argv[2])
score(Path(sys.argv[1]), sys.argv[2], sys.argv[2])
"""


def test_runs_of_members_are_in_one_table_without_passwords(server, tmp_path):
    for member in ("anna", "ben"):
        folder = tmp_path / member
        done = subprocess.run(
            [sys.executable, "-c", RECORD, str(folder), f"key {member}"],
            env=server.member(member),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "Tracking" not in done.stderr
        written = "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
        assert "long password" not in written + done.stdout + done.stderr
    listed = subprocess.run(
        [
            sys.executable,
            "-c",
            "from mlflow import MlflowClient; client = MlflowClient(); "
            "experiment = client.get_experiment_by_name('translation').experiment_id; "
            "print(sorted(run.data.tags['config_key'] for run in client.search_runs([experiment])))",
        ],
        env=server.member("anna"),
        capture_output=True,
        text=True,
    )
    assert listed.stdout == "['key anna', 'key ben']\n", listed.stderr


def test_no_secret_is_on_a_command_line_or_in_a_temporary_file(server, tmp_path_factory):
    lines = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout
    assert "mlflow server" in lines
    assert not any(secret in lines for secret in server.secrets)
    configs = [path.read_text() for path in tmp_path_factory.getbasetemp().glob("team*/mlflow-auth-*.ini")]
    assert configs
    assert not any(secret in config for secret in server.secrets for config in configs)


def test_a_missing_or_readable_secret_is_named(tmp_path):
    words = [
        sys.executable,
        ROOT / "deploy/mlflow_server.py",
        "--secrets",
        tmp_path,
        "--files",
        tmp_path,
        "--site",
        "x",
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert "database_password is missing or empty. Make it: " in done.stderr
    (tmp_path / "database_password").write_text("a")
    tmp_path.chmod(0o755)
    (tmp_path / "database_password").chmod(0o644)
    done = subprocess.run(words, capture_output=True, text=True)
    assert "other users can read" in done.stderr
    assert "chmod 700" in done.stderr
