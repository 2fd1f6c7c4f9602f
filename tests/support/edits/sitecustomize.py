"""For the stages that DVC runs, loaded by Python itself: logs each file that they open, and edits one at some moment.

EDITS: a folder with plan.json (moment: after how many opened files; STAGE: a file and its new text, if that stage runs
then). It gets moment (how many files were opened), edited (empty, after the edit) and STAGE.jsonl (path and content of
each file).
"""

import json
import os
import sys
from importlib.util import source_from_cache
from pathlib import Path

WATCHED = ("params.yaml", "versions.yaml", "own", "pipeline", "transformer")
stage = next((word.removeprefix("pipeline.") for word in sys.orig_argv if word.startswith("pipeline.")), "")
folder, root = Path(os.environ["EDITS"]), Path.cwd()
busy = False


def log(event: str, arguments: tuple) -> None:
    """Log a file of the project before it is opened, then edit the planned file if this is the moment."""
    global busy
    if event != "open" or busy or not isinstance(arguments[0], str | Path):
        return
    path = Path(os.path.normpath(root / arguments[0]))
    if path.suffix == ".pyc":  # Python reads it in place of the source
        path = Path(source_from_cache(path))
    if not path.is_relative_to(root) or path.relative_to(root).parts[:1] not in [(name,) for name in WATCHED]:
        return
    busy = True
    if path.is_file():
        moment = int((folder / "moment").read_text()) + 1
        (folder / "moment").write_text(str(moment))
        with open(folder / f"{stage}.jsonl", "a", encoding="utf-8") as lines:
            entry = [path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")]
            lines.write(json.dumps(entry) + "\n")
        plan = json.loads((folder / "plan.json").read_text())
        if moment == plan["moment"]:
            file, text = plan[stage]
            (root / file).write_text(text, encoding="utf-8")
            (folder / "edited").touch()
    busy = False


if stage and "DVC_STAGE" in os.environ:
    sys.addaudithook(log)
