"""Repeat a commit or an experiment in a clean clone, and compare its outs and scores with the recorded ones.

    python -m pipeline verify           # HEAD
    python -m pipeline verify EXP       # an experiment (`dvc exp show`), commit, branch or tag

Every stage runs again, without DVC's cache, in a clone in work/; your results and MLflow runs do not change. Another
processor, or another number of threads or devices, rounds sums differently: set OMP_NUM_THREADS and DEVICES as they
were for the same bytes.

Exit status: 0 all outs are the same, byte for byte; 2 some differ; 1 the pipeline could not be run.
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from filelock import FileLock

from pipeline.workflow.dvc_lock import LAST, RESULT, Result, link_folder, result_of
from pipeline.workflow.git import command, environment_elsewhere
from pipeline.workflow.stage import project_root
from transformer.files import Mistake


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default="HEAD", metavar="EXP", help="default: HEAD")
    parser.add_argument("--keep", action="store_true", help="keep the clone, to inspect the differences")
    options = parser.parse_args()
    recorded = result_of(options.experiment)
    if recorded.commit is None:
        parser.error("the work tree is not repeated: commit it, and name the commit")
    recorded.entries(*RESULT)
    print(f"Repeating {recorded.name} in a clean clone, with its training.", file=sys.stderr)
    with own_clone(recorded, options.keep) as project:
        repeat(project)
        equal = show(recorded, Result("the repetition", root=project))
    print(f"\n{recorded.name}: " + ("all outs are the same" if equal else "some outs differ"))
    if options.keep:
        print(f"The clone is {project}")
    sys.exit(0 if equal else 2)


def show(recorded: Result, new: Result) -> bool:
    """Print which outs are the same, the scores of both, and what else differs. Returns whether all outs are."""
    before, after = outs_of(recorded), outs_of(new)
    verdicts = {path: "same" if before[path] == after.get(path) else "DIFFERENT" for path in before}
    print(pd.DataFrame({"out": verdicts.keys(), "verdict": verdicts.values()}).to_string(index=False))
    print(f"\n{beside(recorded.scores(), new.scores()).to_string()}")
    facts = beside(recorded.environment(), new.environment())
    other = facts[facts["recorded"] != facts["repeated"]]
    print(f"\nenvironment: {'the same' if other.empty else ''}{'' if other.empty else other.to_string()}")
    inputs = new.inputs()
    if edited := [path for path, md5 in recorded.inputs().items() if inputs.get(path) != md5]:
        print(f"\nnot the recorded input: {', '.join(edited)}")
    return set(verdicts.values()) == {"same"}


def outs_of(result: Result) -> dict[str, str]:
    """The outs of a result but for those of `record`: path -> md5."""
    last = {out["path"] for out in result.stages.get(LAST, {}).get("outs", [])}
    return {path: md5 for path, md5 in result.outs.items() if path not in last}


def beside(recorded: Mapping[str, object], repeated: Mapping[str, object]) -> pd.DataFrame:
    """A table of names with their values in both."""
    table = pd.DataFrame({"recorded": pd.Series(recorded, dtype=object), "repeated": pd.Series(repeated, dtype=object)})
    return table.fillna("-")


@contextmanager
def own_clone(recorded: Result, keep: bool) -> Iterator[Path]:
    """The project of a commit in a clone in work/, with a DVC cache of its own. `clean` keeps it while this runs."""
    work = project_root() / "work"
    work.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"verify-{str(recorded.commit)[:10]}-", dir=work))
    try:
        with FileLock(place / "lock"):
            yield prepare(recorded, place)
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def prepare(recorded: Result, place: Path) -> Path:
    """Clone a commit, with its inputs that git does not have, below a folder; returns the project in the clone."""
    inputs = recorded.inputs()
    # An input such as ../corpus lies beside the clone, so the clone is as many folders below `place`.
    above = max((Path(path).parts.count("..") for path in inputs), default=0)
    clone = place.joinpath(*["above"] * above, "clone")
    clone.mkdir(parents=True)
    repository, inner = command("git", "rev-parse", "--show-toplevel", "--show-prefix", folder=Path.cwd()).split("\n")[
        :2
    ]
    # One commit is fetched: git clones no commit of an experiment, and a shallow clone has no others.
    command("git", "init", "--quiet", "--template=", folder=clone)
    command("git", "fetch", "--quiet", "--depth", "1", repository, str(recorded.commit), folder=clone)
    command("git", "checkout", "--quiet", "--detach", "FETCH_HEAD", folder=clone)
    project = clone / inner
    (project / "dvc.lock").unlink()
    local = project / ".dvc" / "config.local"
    local.write_text(f"[cache]\n    dir = {json.dumps(str(project / '.dvc' / 'cache'))}\n", encoding="utf-8")
    for path, md5 in inputs.items():
        if not (project / path).exists():
            bring_input(recorded, path, md5, project / path)
    return project


def bring_input(recorded: Result, path: str, md5: str, target: Path) -> None:
    """Link an input that git does not have: from DVC's cache, else as it lies in this folder.

    Raises Mistake if it is in neither.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if md5.endswith(".dir") and recorded.is_cached(md5):
        link_folder(recorded.members(path, md5), target)
    elif recorded.is_cached(md5):
        shutil.copyfile(recorded.place(path, md5), target)
    elif Path(path).exists():
        target.symlink_to(Path(path).resolve())
    else:
        raise Mistake(
            f"{path}, an input of {recorded.name}, is neither in git, in DVC's cache, nor in this folder. Nothing was "
            "repeated. Put it back, then repeat this."
        )


def repeat(project: Path) -> None:
    """Run the pipeline in the clone and print the name of each stage as it starts. Raises Mistake if one fails."""
    own = {name: text for name, text in environment_elsewhere().items() if not name.startswith(("DVC_", "MLFLOW_"))}
    own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{own.get('PATH', '')}"
    log = project_root() / "work" / "verify.log"
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "dvc", "repro", "--force"],
            cwd=project,
            env=own,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that all its processes can be stopped together
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
        raise Mistake(f"A stage of the repetition failed. {log} has its output.")
    print()
