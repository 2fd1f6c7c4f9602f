"""The versions of the packages that stages compute with, which dvc.yaml lists as params.

    python -m pipeline versions

Reads   versions.yaml: the names of the packages
Writes  versions.yaml: the installed versions. `dvc repro` then runs again the stages that compute with a package whose
        version changed
"""

from __future__ import annotations

import argparse
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pipeline.workflow.params import parse_yaml
from transformer.files import Mistake, write_text

ROOT = Path(__file__).parents[2]  # of this checkout, which may be a temporary copy of the project
VERSIONS = "versions.yaml"
HEADER = """\
# Versions of the packages that stages compute with. dvc.yaml lists for each stage those that can change its result, so
# that DVC runs it again under another version. `python -m pipeline versions` writes the installed versions.
"""


def release(number: str) -> str:
    """A version without the part from `+` on, which names the build, such as the CUDA version of torch."""
    return number.split("+")[0]


def installed_version(package: str) -> str:
    """The installed version of a package without its build, or "" if it is not installed."""
    try:
        return release(version(package))
    except PackageNotFoundError:
        return ""


def recorded_versions(root: Path = ROOT) -> dict[str, str]:
    """versions.yaml: package -> version. Raises Mistake if it is not written as `text` writes it."""
    remedy = "`git checkout HEAD -- versions.yaml` restores it."
    versions = parse_yaml((root / VERSIONS).read_text(encoding="utf-8"), VERSIONS, remedy)
    for name, number in versions.items():
        if not isinstance(number, str):
            raise Mistake(f'{VERSIONS}: the version of {name} must be in quotes, as in {name}: "{number}". {remedy}')
    return versions


def packages_of(stage: dict) -> list[str]:
    """The packages that a stage's entry in dvc.yaml lists; [] for all of versions.yaml."""
    listed = [entry[VERSIONS] for entry in stage.get("params", []) if isinstance(entry, dict) and VERSIONS in entry]
    return [name for names in listed for name in names or []]


def check_versions(stage: dict, root: Path = ROOT) -> None:
    """Raise Mistake if a package that a stage's entry in dvc.yaml lists is not of the recorded version."""
    versions = recorded_versions(root) if (packages := packages_of(stage)) else {}
    for package in packages:
        number = versions.get(package, "")
        if (here := installed_version(package)) != release(number):
            raise Mistake(
                f"{package} {here or '(none)'} is installed, {VERSIONS} records {number or 'none'}. "
                "Install the recorded versions: uv pip install -r requirements.lock. Or record the installed ones: "
                "python -m pipeline versions; `dvc repro` then runs again what computes with them."
            )


def text(versions: dict[str, str]) -> str:
    """The text of versions.yaml."""
    return HEADER + "".join(f'{name}: "{versions[name]}"\n' for name in sorted(versions, key=str.lower))


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    before = recorded_versions()
    now = {name: installed_version(name) for name in before}
    for name, number in now.items():
        if not number:
            raise Mistake(f"{name} is not installed. Run: uv pip install -r requirements.lock. Nothing was written.")
    changed = [f"{name} {before[name]} -> {now[name]}" for name in before if now[name] != before[name]]
    if changed:
        write_text(ROOT / VERSIONS, text(now))
    print(f"written to {VERSIONS}: {', '.join(changed)}" if changed else f"{VERSIONS} names the installed versions.")
