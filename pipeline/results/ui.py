"""Start MLflow's server and print the address of the table of runs, with scores and the knobs that differ.

    python -m pipeline ui              # `make ui`
    python -m pipeline ui --port 5001

Reads   the store that the stages write to: mlflow.db in $DVC_ROOT or the current folder, or MLFLOW_TRACKING_URI
Writes  the runs that are missing, as `python -m pipeline track` does; work/mlflow-ui.log
"""

import argparse
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.results.track import rebuild
from pipeline.tracking.runs_table import VIEW, show_differing_params
from pipeline.tracking.store import Store, StoreError, connect
from pipeline.workflow.stage import project_root
from transformer.credentials import mask_credentials
from transformer.serving.port import HOST, open_port

START_SECONDS = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=5000, help="port on this machine (default: 5000)")
    port = parser.parse_args().port
    root = project_root().resolve()
    open_port(HOST, port).close()
    print("Writing the runs that are missing, then starting MLflow ...", file=sys.stderr, flush=True)
    store = write_missing_runs(root)
    table = f"/#/experiments/{store.experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
    if store.uri.startswith("http"):
        print("The runs are on the server of MLFLOW_TRACKING_URI:")
        print(mask_credentials(store.uri).rstrip("/") + table)
        return
    log = root / "work" / "mlflow-ui.log"
    log.parent.mkdir(exist_ok=True)
    # One worker, and no job runners, which this project does not use.
    words = [sys.executable, "-m", "mlflow", "ui", "--host", HOST, "--port", str(port), "--workers", "1"]
    words += ["--allowed-hosts", f"{HOST}:{port},localhost:{port}"]  # by default all of 10.*, which is a name too
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment |= {"MLFLOW_BACKEND_STORE_URI": store.uri}  # not on the command line: it may hold a password
    with (
        log.open("w") as output,
        run_server(words, cwd=root, env=environment, stdout=output, stderr=output) as server,
    ):
        wait_for(f"http://{HOST}:{port}/health", server, log)
        print(f"http://{HOST}:{port}{table}", flush=True)
        server.wait()


def write_missing_runs(root: Path) -> Store:
    """Write a run for each result, and let the table show the knobs that differ. Returns the store."""
    os.chdir(root)
    try:
        store = connect(root)
        rebuild(root)
        show_differing_params(store.client, store.experiment_id)
    except StoreError as error:
        raise SystemExit(f"MLflow's runs cannot be read: {error}") from None
    return store


def wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    """Return when the server answers. Raises SystemExit if it ends, or does not answer in START_SECONDS."""
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    if server.poll() is not None:
        raise SystemExit(f"The MLflow server did not start. {log} has its error messages.")
    raise SystemExit(
        f"MLflow's server did not answer in {START_SECONDS} seconds. The machine may be busy: try again, or type "
        "`mlflow ui`."
    )


@contextmanager
def run_server(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen]:
    """Start a server, and end it when the block ends or is ended by Ctrl-C. options: of Popen."""
    server = subprocess.Popen(words, **options)
    try:
        yield server
    except KeyboardInterrupt:
        print()
    finally:
        server.terminate()
        server.wait()
