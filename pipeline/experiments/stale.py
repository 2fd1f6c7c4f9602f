"""Whether dvc.lock belongs to the files beside it: no file, param or command was edited after the run.

When each function that looks for edits is called:

    stage.check_unchanged           while a stage runs, in its process: its own inputs
    earlier_stages.check_params     at the start of report: the params of the stages before it
    check_unedited                  at the start of record: the params, code, data and outs of the stages before it
    work_tree_changes               in commands, of the work tree, by `dvc status`
    commit_changes                  in commands, of a commit or experiment, whose files are not on disk
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache

from pipeline.experiments.md5 import has_md5
from pipeline.experiments.revisions import Experiment, project
from pipeline.params import parse_yaml
from pipeline.results import LAST, Results
from pipeline.stage import params_of, path_of, stages_of
from pipeline.tracking.finished_run import makers


def check_fresh(results: Results) -> None:
    """Raise ValueError if a stage other than `record` would run again: the scores are not those of these files."""
    if edits := stale(results):
        raise ValueError(
            f"The results of {results.name} are not those of its files. `dvc repro` would run again: {edits}. "
            "Run it (and commit what it writes), then repeat this."
        )


def stale(results: Results) -> str:
    """What was edited after the last run, or never run, as `stage (names), ...`; empty if nothing was.

    Prints a remark if git cannot say whether an input was edited.
    """
    edits = commit_changes(results) if isinstance(results, Experiment) else work_tree_changes()
    stages = [f"{name} ({', '.join(names[:3])}{', …' * bool(names[3:])})" for name, names in edits.items()]
    return ", ".join(stages[:3]) + (f" and {len(stages) - 3} more" if stages[3:] else "")


def work_tree_changes() -> dict[str, list[str]]:
    """The stale stages of the work tree: name -> the deps, params and outs that differ from dvc.lock.

    The stage that writes the run is left out.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        status = Repo().status()
    except DvcException as error:
        raise ValueError(str(error)) from None
    return {stage: list(changed_names(parts)) for stage, parts in status.items() if stage != LAST}


def check_unedited(results: Results) -> None:
    """Raise ValueError if params, code, data or outs were edited after a stage that made these results had run.

    `work_tree_changes` says the same, but not while DVC runs a stage.
    """
    outs = results.outs()
    # all at once, since load_one reads dvc.yaml and dvc.lock each time
    stages = {stage.name: stage for stage in project().stage.load_all()}
    for stage, entry in makers(results).items():
        statuses = [file.workspace_status() for file in (*stages[stage].deps, *stages[stage].outs)]
        names = list(changed_names([{"files": status} for status in statuses if status]))
        names += [dep["path"] for dep in entry.get("deps", []) if outs.get(dep["path"], dep["md5"]) != dep["md5"]]
        if names:
            raise ValueError(
                f"{', '.join(names)} changed while or after stage {stage} ran, so the scores are not those of these "
                "files. No run was written. Run `dvc repro`. If you undo the edit first, no training is repeated."
            )


def changed_names(parts: list) -> Iterator[str]:
    """The names of what changed in a stage, from its part of DVC's status."""
    for part in parts:
        for what, changed in part.items() if isinstance(part, dict) else [(part, {})]:
            for path, how in changed.items() or [(what, "")]:  # an edited command has no paths
                yield from how if isinstance(how, dict) else [path]


def commit_changes(results: Experiment) -> dict[str, list[str]]:
    """As `work_tree_changes`, of a commit; an edited command is `changed command`."""
    stages = stages_of(results.text("dvc.yaml"), parse_yaml(results.text("params.yaml"), "params.yaml"))
    lock = results.lock()
    outs = results.outs()

    def differing(stage: dict, entry: dict) -> Iterator[str]:
        if entry.get("cmd") != stage["cmd"].replace("\\${", "${"):  # as DVC hands it to the shell
            yield "changed command"
        recorded = {dep["path"]: dep["md5"] for dep in entry.get("deps", [])}
        deps = {path_of(dep) for dep in stage.get("deps", [])}
        yield from sorted(deps ^ recorded.keys())
        for path in sorted(deps & recorded.keys()):
            same = outs[path] == recorded[path] if path in outs else has_md5(results.commit, path, recorded[path])
            if same is None:
                remark_not_compared(path)
            elif not same:
                yield path
        yield from (
            out["path"] for out in entry.get("outs", []) if has_md5(results.commit, out["path"], out["md5"]) is False
        )
        for file, names in params_of(stage):
            values, used = parse_yaml(results.text(file), file), entry.get("params", {}).get(file, {})
            for name in names or sorted(values.keys() | used.keys()):
                if name not in used or name not in values or used[name] != values[name]:
                    yield name

    stages.pop(LAST, None)
    edits = {
        name: list(differing(stage, lock[name])) if name in lock else ["never run"] for name, stage in stages.items()
    }
    return {name: names for name, names in edits.items() if names}


@cache
def remark_not_compared(path: str) -> None:
    """Print that an input was not compared, once for all results."""
    print(
        f"remark: {path} was not compared, because git does not have the bytes that DVC reads. Results of commits may "
        "be of another version of it.",
        file=sys.stderr,
    )
