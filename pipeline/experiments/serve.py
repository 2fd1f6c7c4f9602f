"""Serve a registered model over HTTP, after its weights and code were compared with DVC's and git's hashes.

    python -m pipeline serve toy-de-en                # the champion
    python -m pipeline serve toy-de-en@challenger
    python -m pipeline serve toy-de-en/3 --port 5002

Whoever can write to MLflow's files can replace a registered model, and `mlflow models serve` executes the code in it.
So this command serves a model only if a dvc.lock in this repository names its weights and a commit has its code; it
starts the code of that commit. Raises ValueError, which names the file, if either is unknown here.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.experiments.md5 import md5_on_disk
from pipeline.experiments.revisions import stored_results
from pipeline.experiments.servers import HOST, open_port, run_server
from pipeline.git import files_of, git, resolve
from pipeline.results import Results, WorkTree
from pipeline.stage import project_root
from pipeline.tracking.model_files import FOLDER, code_files, save
from pipeline.tracking.registry import download, find_version, options
from pipeline.tracking.store import connect, reason, store_errors

PACKAGE = "transformer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="NAME (the champion), NAME@ALIAS or NAME/VERSION")
    parser.add_argument("--port", type=int, default=5001, help="default: 5001")
    parser.add_argument("--host", default=HOST, help=f"default: {HOST}, which other machines cannot reach")
    chosen = parser.parse_args()
    open_port(chosen.host, chosen.port, f"python -m pipeline serve {chosen.name} --host {chosen.host}").close()
    with TemporaryDirectory() as scratch:
        place = Path(scratch)
        try:
            store = connect(project_root())
            version = find_version(store, chosen.name)
            fetched = download(store, version, place / "fetched")
        except store_errors() as error:
            raise ValueError(
                f"The model {chosen.name} cannot be fetched: {reason(error)}. Name a version, as in toy-de-en/1: the "
                "line `Registered models:/NAME/1` of `dvc repro` has it. `python -m pipeline promote` chooses a "
                "champion."
            ) from None
        weights, commit = check_and_extract(fetched, place, f"version {version.version} of {version.name}")
        save(place / "served", weights, options(version), place / "git" / PACKAGE)
        print(
            f"Serving {version.name}/{version.version}: weights as in dvc.lock, code as in commit {commit[:10]}",
            flush=True,
        )
        serve(place / "served", chosen.host, chosen.port)


def check_and_extract(fetched: Path, place: Path, name: str) -> tuple[Path, str]:
    """Check a downloaded model, and write the package of the commit that it contains to <place>/git.

    Returns the folder of the weights, and the commit. Raises ValueError if weights or code are unknown here.
    """
    weights, experiments = fetched / FOLDER, [results for results, _ in stored_results()]
    digest = md5_on_disk(weights)
    if not any(digest in lock_text(results) for results in (WorkTree(), *experiments)):
        raise ValueError(
            f"The weights of {name} are not those of any dvc.lock in this repository, so they may have been replaced. "
            "They were not loaded. If another clone made them, fetch its commits (git fetch, dvc exp pull)."
        )
    code = {path: blob_hash(file) for path, file in code_files(fetched / "code" / PACKAGE).items()}
    head = resolve("HEAD")
    for commit in dict.fromkeys([head, *(experiment.commit for experiment in experiments)]):
        if code_of(commit) == code:
            archive = place / "code.tar"
            git("archive", "--output", str(archive), commit, PACKAGE)
            with tarfile.open(archive) as files:
                files.extractall(place / "git", filter="data")
            return weights, commit
    here = code_of(head)
    changed = sorted(path for path in code.keys() | here.keys() if code.get(path) != here.get(path))
    raise ValueError(
        f"The code of {name} is that of no commit in this repository, so it may have been replaced. It was not "
        f"started. It differs from HEAD in {', '.join(changed[:3])}. If it is yours, commit it."
    )


def lock_text(results: Results) -> str:
    """The text of dvc.lock; empty if there is none."""
    try:
        return results.text("dvc.lock")
    except (ValueError, OSError):
        return ""


def code_of(commit: str) -> dict[str, str]:
    """The Python files of the package in a commit: path in the package -> hash of the content in git."""
    return {path: blob for path, blob in files_of(commit, PACKAGE).items() if path.endswith(".py")}


def blob_hash(path: Path) -> str:
    """The hash of a file as git names its content."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def serve(model: Path, host: str, port: int) -> None:
    """Start the model server on a folder that was checked, and wait until it ends."""
    words = [sys.executable, "-m", f"{PACKAGE}.serving.app", str(model)]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # In the folder of the checked code, since the packages of the current one could be imported in place of it.
    with run_server([*words, "--host", host, "--port", str(port)], cwd=model / "code", env=env) as server:
        sys.exit(server.wait())
