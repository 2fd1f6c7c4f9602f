"""The champion of a registered model, which is the version to serve: promotion and rollback.

The first version is the champion. A later one is the challenger; it becomes champion if it is better than the champion
on the same validation data by a difference that is significant. A person may promote any version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pipeline.tracking.store import VALID, Store, store_errors
from transformer.files import read_lines

CHAMPION, CHALLENGER = "champion", "challenger"
BEFORE, BACK = "champion_before", "rolled_back"  # tags of a version
SIGNIFICANT = 0.05


class Gain(NamedTuple):
    """BLEU on the validation set minus the champion's, and the p-value of that difference."""

    delta: float
    p_value: float


def challenge(store: Store, version: Any, gain_over: Callable[[Sequence[str]], Gain]) -> str:
    """Make a version champion or challenger; returns a sentence that says which, and why.

    gain_over: a function from the champion's translations of the validation set to the Gain over them.
    """
    name, number = version.name, str(version.version)
    champion = champion_of(store, name)
    if champion is not None and str(champion.version) == number:
        return "It is the champion."
    if champion is None and len(versions_of(store, name)) == 1 and BACK not in version.tags:
        promote(store, name, number)
        return "It is the champion, since it is the first version."
    objection = object_to(store, champion, version, gain_over)
    if champion is not None and not objection:
        promote(store, name, number)
        return (
            f"It is the champion: it is significantly better on valid than the former one, version {champion.version}."
        )
    store.client.set_registered_model_alias(name, CHALLENGER, number)
    return f"It is the challenger: {objection} `python -m pipeline promote {name} {number}` makes it champion."


def object_to(store: Store, champion: Any, version: Any, gain_over: Callable[[Sequence[str]], Gain]) -> str:
    """Why a version does not become champion; empty if it does. champion: None if no version is."""
    if champion is None:
        return "there were other versions, and a person decides which of them is the champion."
    if BACK in version.tags:
        return "it was rolled back."
    if champion.tags.get("valid_sha256") != version.tags.get("valid_sha256"):
        return f"the champion, version {champion.version}, was measured on other validation data."
    try:
        with TemporaryDirectory() as folder:
            lines = list(read_lines(Path(store.client.download_artifacts(champion.run_id, VALID, folder))))
    except store_errors():
        return f"the run of the champion, version {champion.version}, has no file {VALID} to compare with."
    gain = gain_over(lines)
    numbers = f"{gain.delta:+.2f} BLEU on valid against version {champion.version}, p = {gain.p_value:.3f}"
    if gain.p_value >= SIGNIFICANT:
        return f"its difference is not significant ({numbers})."
    return "" if gain.delta > 0 else f"it is significantly worse ({numbers})."


def versions_of(store: Store, name: str) -> list[Any]:
    """The versions of a registered model."""
    return list(store.client.search_model_versions(f"name = '{name}'"))


def champion_of(store: Store, name: str) -> Any | None:
    """The champion of a registered model; None if there is none."""
    from mlflow.exceptions import MlflowException

    try:
        return store.client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        return None


def promote(store: Store, name: str, number: str) -> None:
    """Make a version the champion, and remember which was. Raises store errors, as for an unknown version."""
    version, before = store.client.get_model_version(name, number), champion_of(store, name)
    if before is not None and str(before.version) != number:
        store.client.set_model_version_tag(name, number, BEFORE, str(before.version))
    if BACK in version.tags:
        store.client.delete_model_version_tag(name, number, BACK)
    store.client.set_registered_model_alias(name, CHAMPION, number)


def withdraw(store: Store, champion: Any) -> None:
    """Take the alias from a champion whose exports turned out to differ, and give it to the former one, if any."""
    if BEFORE in champion.tags:
        roll_back(store, champion.name)
    else:
        store.client.delete_registered_model_alias(champion.name, CHAMPION)


def check_name(store: Store, name: str) -> None:
    """Raise ValueError for a model that is not registered, with the names of those that are."""
    names = sorted(model.name for model in store.client.search_registered_models())
    if name not in names:
        raise ValueError(f"{name} is not a registered model. Registered are: {', '.join(names) or 'none'}.")


def roll_back(store: Store, name: str) -> tuple[str, str]:
    """Make the former champion champion again; returns the replaced and the new one. Raises ValueError for none."""
    check_name(store, name)
    champion = champion_of(store, name)
    if champion is None or BEFORE not in champion.tags:
        raise ValueError(f"{name} has no former champion. `python -m pipeline promote {name} VERSION` chooses one.")
    number, before = str(champion.version), champion.tags[BEFORE]
    store.client.get_model_version(name, before)
    store.client.set_model_version_tag(name, number, BACK, "true")  # so that the next `record` does not promote it
    store.client.set_registered_model_alias(name, CHAMPION, before)
    return number, before
