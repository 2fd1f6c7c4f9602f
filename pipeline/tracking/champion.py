"""The champion of a registered model, which is the version to serve: a new version challenges it once.

The first version is the champion. A later one becomes champion if it is better than the champion on the same validation
data by a difference that is significant; else it is the challenger. A person may move either alias in MLflow's page.
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
    champion = champion_of(store, version.name)
    objection = object_to(store, champion, version, hypotheses, references, target) if champion else ""
    store.client.set_registered_model_alias(version.name, CHALLENGER if objection else CHAMPION, str(version.version))
    if objection:
        return f"It is the challenger: {objection} MLflow's page moves the alias `{CHAMPION}`."
    if champion is None:
        return "It is the champion, since there was none."
    return f"It is the champion: it is significantly better on valid than the former one, version {champion.version}."


def object_to(
    store: Store, champion: Any, version: Any, hypotheses: Sequence[str], references: Sequence[str], target: str
) -> str:
    """Why a version does not become champion; empty if it does."""
    if champion.tags.get("valid_sha256") != version.tags.get("valid_sha256"):
        return f"the champion, version {champion.version}, was measured on other validation data."
    try:
        with TemporaryDirectory() as folder:
            former = list(read_lines(Path(store.client.download_artifacts(champion.run_id, VALID, folder))))
    except StoreError:
        return f"the run of the champion, version {champion.version}, has no file {VALID} to compare with."
    compared = gain(former, hypotheses, references, target)
    delta, p = compared["delta_bleu"], compared["p_randomisation"]
    numbers = f"{delta:+.2f} BLEU on valid against version {champion.version}, p = {p:.3f}"
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
