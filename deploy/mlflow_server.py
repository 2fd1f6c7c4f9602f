"""Start a team's MLflow server over PostgreSQL, with a name and password for each member. Caddy in front adds TLS.

    python deploy/mlflow_server.py --secrets SECRETS --files FILES --site runs.example.org

SECRETS is a folder with three files of one line each: database_password, admin_password, session_key. No secret is on a
command line or in a file that others can read. Needs mlflow, flask-wtf and psycopg.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

SECRETS = ("database_password", "admin_password", "session_key")
# Members read everything and add to everything; only who made an experiment or a model, and admins, delete or share it.
CONFIG = """\
[mlflow]
default_permission = EDIT
database_uri = {database}
admin_username = admin
authorization_function = mlflow_server:authenticate
auth_cache_ttl_seconds = 60
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--secrets", type=Path, required=True, help="the folder of the secrets")
    parser.add_argument("--files", type=Path, required=True, help="the folder for the files of runs and models")
    parser.add_argument("--site", required=True, help="the name in the address that members use, with its port if any")
    parser.add_argument(
        "--database",
        default="mlflow@127.0.0.1/mlflow",
        metavar="USER@HOST/NAME",
        help="of PostgreSQL (default: mlflow@127.0.0.1/mlflow)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, for a Caddy on this machine")
    parser.add_argument("--port", default="5000", help="default: 5000")
    options = parser.parse_args()
    secrets = {name: secret(options.secrets / name) for name in SECRETS}
    database = f"postgresql+psycopg://{options.database}"
    with tempfile.NamedTemporaryFile("w", prefix="mlflow-auth-", suffix=".ini", delete=False) as file:
        file.write(CONFIG.format(database=database.replace("%", "%%")))  # % has a meaning in .ini files
    os.environ |= {
        "PYTHONPATH": str(Path(__file__).resolve().parent),  # of `authenticate`
        "PGPASSWORD": secrets["database_password"],  # read by PostgreSQL's library
        "MLFLOW_BACKEND_STORE_URI": database,
        "MLFLOW_AUTH_CONFIG_PATH": file.name,
        "MLFLOW_AUTH_ADMIN_PASSWORD": secrets["admin_password"],
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets["session_key"],
        "MLFLOW_SERVER_ALLOWED_HOSTS": f"{options.site},localhost:*,127.0.0.1:*",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    words = ["-m", "mlflow", "server", "--app-name", "basic-auth", "--artifacts-destination", str(options.files)]
    os.execv(sys.executable, [sys.executable, *words, "--host", options.host, "--port", options.port])


def secret(path: Path) -> str:
    """The secret in a file. Exits with a message if there is none, or if other users can read it."""
    if not path.is_file() or not path.read_text(encoding="utf-8").strip():
        sys.exit(f"error: {path} is missing or empty. Make it: python -c 'import secrets; print(secrets.token_hex())'")
    hidden = not all(place.stat().st_mode & 0o077 for place in (path, path.parent))
    if not hidden and not str(path).startswith("/run/secrets/"):  # where Docker puts them
        sys.exit(f"error: other users can read {path}. Forbid it: chmod 700 {path.parent}")
    return path.read_text(encoding="utf-8").strip()


def authenticate() -> Any:
    """MLflow's check of name and password, and an error for an experiment whose files would be elsewhere.

    Files of an experiment in a local folder would be written there by the server, for any member.
    """
    from flask import Response, request
    from mlflow.exceptions import MlflowException
    from mlflow.server.auth import authenticate_request_basic_auth

    if request.path.endswith("/experiments/create"):
        body: Any = None
        with suppress(RecursionError):
            body = request.get_json(force=True, silent=True)
        with suppress(ValueError, RecursionError):  # of what MLflow refuses as well
            body = json.loads(body) if isinstance(body, str) else body  # MLflow decodes such text again, too
        values = body if isinstance(body, dict) else {}
        for name in ("artifact_location", "artifactLocation"):
            if (place := values.get(name)) and not str(place).startswith("mlflow-artifacts:"):
                error = MlflowException.invalid_parameter_value(
                    f"{name}={place!r} is not in this server's store of files. The experiment was not created. Leave "
                    f"{name} out."
                )
                return Response(error.serialize_as_json(), 400, content_type="application/json")
    return authenticate_request_basic_auth()


if __name__ == "__main__":
    main()
