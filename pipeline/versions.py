"""Packages that stages compute with: versions.yaml records their versions, and dvc.yaml lists them as params."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

ROOT = Path(__file__).parent.parent  # of this checkout, which may be a temporary copy of the project
RECORD = "versions.yaml"
HEADER = """\
# Versions of the packages that stages compute with. dvc.yaml lists for each stage those that can change its result, so
# that DVC runs it again under another version. `python -m pipeline versions` writes the installed versions.
"""


def release(number: str) -> str:
    """A version without the part from `+` on, which names the build, such as the CUDA version of torch."""
    return number.split("+")[0]


def installed(package: str) -> str:
    """The installed version of a package without its build, or "" if it is not installed."""
    try:
        return release(version(package))
    except PackageNotFoundError:
        return ""


def recorded(root: Path = ROOT) -> dict[str, str]:
    """versions.yaml: package -> version. Raises ValueError if it is not written as `text` writes it."""
    remedy = "`git checkout versions.yaml` restores it."
    try:
        found = YAML(typ="safe").load((root / RECORD).read_text(encoding="utf-8"))
    except YAMLError as error:
        raise ValueError(f"{RECORD} is not valid YAML ({' '.join(str(error).split())[:100]}). {remedy}") from None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"{RECORD} has no versions. {remedy}")
    for name, number in found.items():
        if not isinstance(number, str):
            raise ValueError(f'{RECORD}: the version of {name} must be in quotes, as in {name}: "{number}". {remedy}')
    return found


def of_stage(stage: dict) -> list[str]:
    """The packages that a stage's entry in dvc.yaml lists; [] for all of versions.yaml."""
    listed = [one[RECORD] for one in stage.get("params", []) if isinstance(one, dict) and RECORD in one]
    return [name for names in listed for name in names or []]


def running_stage() -> str:
    """The stage that this process runs as `python -m pipeline.STAGE`, or another name if it runs none."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removeprefix("pipeline.") if spec else ""


def check_versions(root: Path = ROOT) -> None:
    """Raise ValueError if this process is a stage, and a package it computes with is not of the recorded version."""
    stages = YAML(typ="safe").load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    for package in of_stage(stages.get(running_stage(), {})):
        wanted = recorded(root).get(package, "")
        if installed(package) != release(wanted):
            raise ValueError(
                f"{package} {installed(package) or '(none)'} is installed, {RECORD} records {wanted or 'none'}. "
                "Install the recorded versions: pip install -r requirements.lock. Or record the installed ones: "
                "python -m pipeline versions; `dvc repro` then runs again what computes with them."
            )


def text(versions: dict[str, str]) -> str:
    """The text of versions.yaml."""
    return HEADER + "".join(f'{name}: "{versions[name]}"\n' for name in sorted(versions, key=str.lower))
