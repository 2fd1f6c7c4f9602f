"""Record the installed versions of the packages that stages compute with.

    python -m pipeline versions

Reads   versions.yaml: the names of the packages
Writes  versions.yaml. `dvc repro` then runs again the stages that compute with a package whose version changed
"""

import argparse

from pipeline.versions import RECORD, ROOT, installed, recorded, text
from transformer.files import write_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    before = recorded()
    now = {name: installed(name) for name in before}
    for name, number in now.items():
        if not number:
            raise ValueError(f"{name} is not installed. Run: pip install -r requirements.lock. Nothing was written.")
    changed = [f"{name} {before[name]} -> {now[name]}" for name in before if now[name] != before[name]]
    if changed:
        write_text(ROOT / RECORD, text(now))
    print(f"written to {RECORD}: {', '.join(changed)}" if changed else f"{RECORD} names the installed versions.")
