"""The record of a run: a folder in work/runs with all that the run in MLflow shall be.

    run.json      params, keys, tags, scores, status
    curve.jsonl   the curve, a row per line
    files/        the files of the run
    sent.json     what of these a store has

Stages write records. sync.py brings a store to what a record says, at once or later. A folder `back-...` has only the
curve of a model that translates back, until `train` opens the run that it is part of.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from pipeline.tracking.owner import has_ended, is_same, owner
from pipeline.tracking.run import Curve, Params, Row, now
from transformer.files import sha256_text, write_json, write_text

FOLDER = "work/runs"
ORIGIN = ("git_commit", "git_dirty", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV", "mlflow.user")
COMPARED = ("delta_bleu", "p_bootstrap", "p_randomisation")  # with the baseline of the first recording
NEEDED = {"name", "params", "train_key", "tags", "status", "start", "address"}  # what each run.json has
RUNNING, FINISHED, KILLED, FAILED = "RUNNING", "FINISHED", "KILLED", "FAILED"  # MLflow's words


def is_origin(tag: str) -> bool:
    """Whether a tag says by whom, where and from which commit a run was recorded: those of the first recording stay."""
    return tag in ORIGIN or tag.startswith(("env_", "mlflow."))


class Record:
    """The record in a folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows, self._points = list[Row](), set[tuple[int, str]]()
        self._read = 0  # number of bytes of curve.jsonl that are in _rows
        self._lock = threading.RLock()

    def read(self) -> dict[str, Any]:
        """The contents of run.json; empty if there is none, or if it was damaged."""
        found = read_json(self.folder / "run.json")
        return found if found.keys() >= NEEDED else {}

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """Yield the contents of run.json, and write them back if the block changed them. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "run.lock"):
            contents = self.read()
            before = json.dumps(contents)
            yield contents
            if json.dumps(contents) != before:
                write_json(self.folder / "run.json", contents)

    def add_rows(self, rows: Curve) -> None:
        """Add the points that the curve lacks. Raises OSError."""
        with self._lock:
            self.rows()
            lines = []
            for row in rows:
                new = {name: value for name, value in row.items() if self._is_new(row, name)}
                if new:
                    lines.append(json.dumps({"step": row["step"], "time": row.get("time"), **new}) + "\n")
            path = self.folder / "curve.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a+b") as file:
                if file.seek(0, 2) > self._read:  # the process that wrote the last line was killed
                    lines.insert(0, "\n")
                file.write("".join(lines).encode())

    def _is_new(self, row: Row, name: str) -> bool:
        """Whether the curve lacks a point."""
        return (
            name not in ("step", "time") and row[name] is not None and (int(row["step"] or 0), name) not in self._points
        )

    def rows(self) -> list[Row]:
        """The rows of the curve. A step may be in several rows, each with other metrics."""
        with self._lock, suppress(FileNotFoundError), (self.folder / "curve.jsonl").open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):  # being written
                    break
                self._read += len(line)
                with suppress(ValueError, TypeError, KeyError):  # incomplete, empty or damaged
                    row = json.loads(line)
                    step = int(row["step"])
                    self._points |= {(step, name) for name in row}
                    self._rows.append(row)
        return self._rows

    def write_files(self, texts: Mapping[str, str]) -> None:
        """Keep the files of the run: name -> text. A file that has its text already is not touched. Raises OSError."""
        for name, text in texts.items():
            path = self.folder / "files" / name
            if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
                write_text(path, text)

    def files(self) -> dict[str, Path]:
        """The files of the run: name -> where it is kept."""
        return {path.name: path for path in sorted(self.folder.glob("files/*")) if path.is_file()}

    def state(self) -> dict[str, Any]:
        """What this record holds now, to compare with what was sent."""
        curve = self.folder / "curve.jsonl"
        files = {name: [path.stat().st_size, path.stat().st_mtime_ns] for name, path in self.files().items()}
        run = sha256_text(json.dumps(self.read()))
        return {"run": run, "curve": curve.stat().st_size if curve.is_file() else 0, "files": files}

    def sent(self) -> dict[str, Any]:
        """The contents of sent.json: Store.identity -> the state that this store has."""
        return read_json(self.folder / "sent.json")

    def mark_sent(self, store: str, state: Mapping[str, Any]) -> None:
        """Note that a store has a state of this record. store: Store.identity."""
        if (sent := self.sent()).get(store) != state:
            write_json(self.folder / "sent.json", {**sent, store: state})

    def forget_sent(self) -> None:
        """Forget what stores have: from now on, what was deleted there is missing. Raises OSError."""
        (self.folder / "sent.json").unlink(missing_ok=True)

    def is_unsent(self, store: str) -> bool:
        """Whether a store lacks something of this record. store: Store.identity."""
        return self.sent().get(store) != self.state()

    def close_if_abandoned(self) -> None:
        """If the DVC of a RUNNING run has ended: FINISHED and `incomplete` if its training was completed, else KILLED.

        Raises OSError.
        """
        with self.change() as run:
            if run.get("status") == RUNNING and has_ended(run["owner"]):
                if "trained" in run:
                    run |= {"status": FINISHED, "end": run["trained"], "incomplete": run["stage"]}
                else:
                    rows = self.rows()
                    run |= {"status": KILLED, "end": int(rows[-1].get("time") or 0) if rows else run["start"]}

    def open(self, **fields: Any) -> None:
        """Make the run RUNNING, owned by the DVC above this process. Raises OSError.

        fields: more contents of run.json. A configuration that was recorded stays as it is: its updates are repeated.
        """
        self.forget_sent()
        with self.change() as run:
            if "config_key" not in run:
                tags = {**fields["tags"], **run.get("tags", {})}  # who began it stays
                run |= {**fields, "tags": tags, "status": RUNNING, "owner": owner(), "stage": "train"}
                run.setdefault("start", now())
                for name in ("end", "trained", "incomplete", "pulled"):
                    run.pop(name, None)
            run["address"] = fields["address"]


def short_hash(part: str | Params) -> str:
    """A short hash of a key or of params, for the name of a folder."""
    return sha256_text(part if isinstance(part, str) else json.dumps(dict(part), sort_keys=True))[:12]


def record_of(root: Path, train_key: str, params: Params, config_key: str = "") -> Record:
    """The record of a training with these params and, if given, of this configuration.

    The first configuration that is recorded from a training uses the training's folder. Another one with the same
    params, such as other translations after an edit of the search, gets a folder of its own.
    """
    name = f"{short_hash(train_key)}-{short_hash(params)}"
    record = Record(root / FOLDER / name)
    if config_key and record.read().get("config_key", config_key) != config_key:
        return Record(root / FOLDER / f"{name}-{short_hash(config_key)}")
    return record


def records(root: Path) -> list[Record]:
    """All records of a project, the oldest first."""
    found = [Record(path.parent) for path in (root / FOLDER).glob("*/run.json")]
    ages = {record: run["start"] for record in found if (run := record.read())}
    return sorted(ages, key=lambda record: (ages[record], record.folder.name))


def note_stage(root: Path, stage: str) -> None:
    """Write the stage's name into the RUNNING records whose training this DVC has completed. Never raises OSError."""
    current = owner()
    with suppress(OSError):
        for record in records(root):
            run = record.read()
            if run["status"] == RUNNING and "trained" in run and is_same(run["owner"], current):
                with record.change() as run:
                    run["stage"] = stage


def read_json(path: Path) -> dict[str, Any]:
    """The contents of a JSON file; empty if it is missing or damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
