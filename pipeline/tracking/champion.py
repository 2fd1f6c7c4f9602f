"""The champion of a registered model: a version that was better than the best one before it.

The first version has no alias, nor has the first on new validation data, unless there is a champion. A later one
challenges once, when it is made: the champion or, without one, the version with the best BLEU on the same validation
data. It becomes champion if it is better on that data by a difference that is significant; else it is the challenger. A
person may move either alias in MLflow's page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.tracking.content import VALID, gain
from pipeline.tracking.live import ABSENT
from pipeline.tracking.store import Store, StoreError
from transformer.files import read_lines

CHAMPION, CHALLENGER = "champion", "challenger"
SIGNIFICANT = 0.05


def challenge(store: Store, version: Any, hypotheses: Sequence[str], references: Sequence[str], target: str) -> str:
    """Make a new version champion or challenger; returns a sentence that says which, and why. Raises StoreError.

    hypotheses, references: of the validation set. target: the language, which chooses how BLEU splits lines into
    tokens.
    """
    rival = champion_of(store, version.name) or best_before(store, version)
    if rival is None:
        return "It is the first version on this validation data: a later one that is better becomes champion."
    objection = object_to(store, rival, version, hypotheses, references, target)
    store.client.set_registered_model_alias(version.name, CHALLENGER if objection else CHAMPION, str(version.version))
    if objection:
        return f"It is the challenger: {objection} MLflow's page moves the alias `{CHAMPION}`."
    return f"It is the champion: it is significantly better on valid than version {rival.version}."


def object_to(
    store: Store, rival: Any, version: Any, hypotheses: Sequence[str], references: Sequence[str], target: str
) -> str:
    """Why a version does not become champion; empty if it does."""
    if rival.tags.get("valid_sha256") != version.tags.get("valid_sha256"):
        return f"version {rival.version} was measured on other validation data."
    try:
        with TemporaryDirectory() as folder:
            former = list(read_lines(Path(store.client.download_artifacts(rival.run_id, VALID, folder))))
    except StoreError:
        return f"the run of version {rival.version} has no file {VALID} to compare with."
    compared = gain(former, hypotheses, references, target)
    delta, p = compared["delta_bleu"], compared["p_randomisation"]
    numbers = f"{delta:+.2f} BLEU on valid against version {rival.version}, p = {p:.3f}"
    if p >= SIGNIFICANT:
        return f"its difference is not significant ({numbers})."
    return "" if delta > 0 else f"it is significantly worse ({numbers})."


def champion_of(store: Store, name: str) -> Any | None:
    """The champion of a registered model; None if there is none."""
    try:
        return store.client.get_model_version_by_alias(name, CHAMPION)
    except StoreError as error:
        if error.code not in ABSENT:
            raise
        return None


def versions_of(store: Store, name: str) -> list[Any]:
    """All versions of a registered model; none if it is not registered. Raises StoreError."""
    return store.client.search_model_versions(f"name = '{name}'")


def best_before(store: Store, version: Any) -> Any | None:
    """The version before this one with the best BLEU on the same validation data; None if there is none."""
    valid = version.tags.get("valid_sha256")
    before = [
        other
        for other in versions_of(store, version.name)
        if int(other.version) < int(version.version) and other.tags.get("valid_sha256") == valid
    ]
    return max(before, key=lambda other: float(other.tags.get("valid_bleu", 0)), default=None)
