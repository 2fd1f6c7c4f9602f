"""Repeat a commit or an experiment in a clean clone and compare each out with the recorded one.

    python -m pipeline verify           # HEAD
    python -m pipeline verify EXP       # an experiment (`dvc exp show`), commit, branch or tag

Exit status: 0 all outs are identical, byte for byte; 2 some are only within the tolerance that the table names; 3 some
differ; 1 the pipeline could not be run. Each stage is run, without DVC's cache, and your MLflow runs do not change. On
a CPU the repetition uses as many threads and processes as were recorded, and shards if those were used, unless
OMP_NUM_THREADS, DEVICES or SHARDING is set. The clone is in work/.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from filelock import FileLock

from pipeline.results.tolerances import FACTS, SPREAD, WIDER, Agreement
from pipeline.workflow.dvc_lock import LAST, PROCESSOR, Result, cache_file, members
from pipeline.workflow.git import command, environment_elsewhere
from pipeline.workflow.stage import project_root
from transformer.cores import cores

STATUS = {"identical": 0, "within tolerance": 2, "different": 3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default="HEAD", metavar="EXP", help="default: HEAD")
    parser.add_argument("--keep", action="store_true", help="keep the clone, to inspect the differences")
    options = parser.parse_args()
    recorded = Result(options.experiment)
    recorded.entries()
    print(f"Repeating {recorded.name} in a clean clone, with its training.", file=sys.stderr)
    with own_clone(recorded, options.keep) as project:
        repeat(project, recorded_settings(recorded))
        verdict = show(recorded, Result(root=project))
    print(f"\n{recorded.name}: {verdict}" + (f"; the clone is {project}" if options.keep else ""))
    sys.exit(STATUS[verdict])


def show(recorded: Result, new: Result) -> str:
    """Print the table of outs and what else differs. Returns the verdict on all outs."""
    facts = differences(recorded, json.loads(new.text(FACTS)))
    like = facts.empty or not set(facts["fact"]) & set(PROCESSOR)
    table = Agreement(recorded, new, like).table()
    print(table.to_string(index=False))
    if not like:
        print(
            "\nThe processor or the number of threads is another. Trainings of the toy recipe with only this "
            f"difference were this far apart: {SPREAD}.\n"
            f"So the tolerances are {WIDER} times as wide."
        )
    print("\nenvironment: " + ("the same as recorded" if facts.empty else ""))
    if not facts.empty:
        print(facts.to_string(index=False))
    if changed := changed_inputs(recorded, new):
        print(f"\nnot the recorded input: {', '.join(changed)}")
    return max(table["verdict"], key=lambda verdict: STATUS[verdict])


@contextmanager
def own_clone(recorded: Result, keep: bool) -> Iterator[Path]:
    """The project in a clone in work/ that no other `verify` uses, and that `clean` keeps until this process ends."""
    work = project_root() / "work"
    work.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"verify-{recorded.commit[:10]}-", dir=work))
    # A corpus_path like ../corpus is beside the clone, so the clone is as many folders below its place.
    above = max((Path(path).parts.count("..") for path in inputs_of(recorded)), default=0)
    try:
        with FileLock(place / "lock"):
            yield prepare(recorded, place.joinpath(*["above"] * above, "clone"))
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def inputs_of(results: Result) -> dict[str, str]:
    """See `sources`; those of the stage `record` are left out."""
    return sources(entry for name, entry in results.lock.items() if name != LAST)


def prepare(recorded: Result, clone: Path) -> Path:
    """Fill a new folder with a commit and its inputs that are not in git; returns the project in it.

    It has a DVC cache of its own.
    """
    root = project_root()
    repository, inner = command("git", "rev-parse", "--show-toplevel", "--show-prefix", folder=root).split("\n")[:2]
    clone.mkdir(parents=True)
    # One commit is fetched, since a shallow clone has no others and git clones no commit of an experiment.
    command("git", "init", "--quiet", "--template=", folder=clone)
    command("git", "fetch", "--quiet", "--depth", "1", repository, recorded.commit, folder=clone)
    command("git", "checkout", "--quiet", "--detach", "FETCH_HEAD", folder=clone)
    project = clone / inner
    for name, md5 in inputs_of(recorded).items():
        if not (project / name).exists():
            fetch_input(Path(name), md5, project / name, recorded.name)
    (project / "dvc.lock").unlink()  # with it DVC would skip stages whose reports are in git
    local = project / ".dvc" / "config.local"
    local.write_text(f"[cache]\n    dir = {json.dumps(str(project / '.dvc' / 'cache'))}\n", encoding="utf-8")
    # The same locks of cores and GPUs as here: trainings that share cores are several times slower each.
    (project / "work").mkdir(exist_ok=True)
    for name in ("cores", "gpus"):
        (root / "work" / name).mkdir(exist_ok=True)
        (project / "work" / name).symlink_to(root / "work" / name)
    return project


def fetch_input(path: Path, md5: str, target: Path, name: str) -> None:
    """Copy a dependency that git does not have to `target`: from DVC's cache (`dvc add`), else from this folder.

    name: of the recorded results. Raises ValueError if it is in neither.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if files := members(md5):
        for inside, digest in files.items():
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cache_file(digest), target / inside)
    elif path.is_dir():
        shutil.copytree(path, target)
    else:
        file = cache_file(md5) if cache_file(md5).is_file() else path
        if not file.exists():
            raise ValueError(
                f"{path}, a dependency of {name}, is neither in git, in DVC's cache, nor in this folder. Nothing was "
                "repeated. Put it back, then repeat this."
            )
        shutil.copyfile(file, target)


def recorded_settings(recorded: Result) -> dict[str, str]:
    """Variables for the threads, processes and shards that were recorded, since the order of sums depends on them.

    Empty if a GPU was used or this machine has fewer cores.
    """
    facts = recorded.environment()
    threads, devices = int(facts.get("threads", 0)), int(facts.get("devices", 1))
    if facts.get("device") != "CPU" or not 0 < threads * devices <= cores():
        return {}
    return {"OMP_NUM_THREADS": str(threads), "DEVICES": str(devices), "SHARDING": str(facts.get("sharding", "none"))}


def repeat(project: Path, same: dict[str, str]) -> None:
    """Run the pipeline in the clone and print the name of each stage as it starts. Raises ValueError if one fails.

    same: environment variables of the recorded run, which this process's own ones override.
    """
    own = {name: text for name, text in environment_elsewhere().items() if not name.startswith(("DVC_", "MLFLOW_"))}
    own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{own.get('PATH', '')}"
    log = project / "verify.log"
    # In a session of its own, so that all its processes can be stopped together.
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "dvc", "repro"],
            cwd=project,
            env=same | own,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout
        try:
            for line in process.stdout:
                file.write(line)
                if line.startswith("Running stage"):
                    print(line, end="", flush=True)
            failed = process.wait()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if failed:
        work = project_root() / "work"
        kept = work / f"{project.relative_to(work).parts[0]}.log"
        shutil.move(log, kept)
        raise ValueError(f"A stage of the repetition failed. {kept} has its output.")
    print()


def differences(recorded: Result, here: dict) -> pd.DataFrame:
    """A table with a row per fact of this environment that differs from the recorded one, or was not recorded."""
    known = {name: str(value) for name, value in recorded.environment().items()}
    rows = [
        {"fact": name, "recorded": known.get(name, "not recorded"), "here": str(value)}
        for name, value in here.items()
        if known.get(name, "").split("+")[0] != str(value).split("+")[0]
    ]
    return pd.DataFrame(rows)


def changed_inputs(recorded: Result, new: Result) -> list[str]:
    """Deps that no stage makes and whose content is not the recorded one: a corpus outside git that was edited."""
    before, after = inputs_of(recorded), inputs_of(new)
    return sorted(path for path in before.keys() & after.keys() if before[path] != after[path])
