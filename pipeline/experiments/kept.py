"""The results that git and DVC keep: of experiments and of commits."""

from __future__ import annotations

from pipeline.git import experiments, git, resolved
from pipeline.tracking.results import Experiment


def kept() -> list[tuple[Experiment, dict[str, str]]]:
    """Each DVC experiment and each commit that changed dvc.lock, with the tags that say where it comes from.

    Order: HEAD and the experiments by date, then the other commits by date, which a clone has without having run
    them. If several have the same configuration, its run gets the name of the first one, as when they were run.
    """
    marked = {
        found.commit: {"git_commit": found.baseline, "DVC_EXP_NAME": found.name, "DVC_EXP_BASELINE_REV": found.baseline}
        for found in experiments()
    }
    listed = git("rev-list", "--branches", "--tags", "--remotes", "--", "dvc.lock").split()
    if not listed and not marked:
        return []
    head = resolved("HEAD")
    dates = git("log", "--no-walk=unsorted", "--format=%ct %H", head, *listed, *marked).split("\n")
    dated = {commit: int(date) for date, commit in (line.split() for line in dates if line)}
    order = sorted(dated, key=lambda commit: (commit != head and commit not in marked, dated[commit], commit))
    found = [(commit, marked.get(commit, {"git_commit": commit})) for commit in order]
    return [(Experiment(tags.get("DVC_EXP_NAME", commit[:10]), commit), tags) for commit, tags in found]
