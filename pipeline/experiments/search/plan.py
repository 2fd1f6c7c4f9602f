"""What a search will do, fixed before its first training: params, dimensions, rungs, sampler and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.experiments.search.space import Dimension
from pipeline.identity import content_key
from pipeline.params import Params
from pipeline.stage import content_of, project_root
from pipeline.tracking.results import WorkTree

FACTOR = 3  # one of 3 trials goes on to the next rung, which has about 3 times as many updates
RUNGS = 3
START = "start"  # the end of the name of the experiment of params.yaml as it is


@dataclass(frozen=True)
class Plan:
    """What defines a search. With an equal plan, equal code and data, the command goes on with the same search.

    rungs: in updates; the last one is max_steps.
    """

    params: Params
    space: Sequence[Dimension]
    rungs: Sequence[int]
    sampler: str
    seed: int

    @cached_property
    def name(self) -> str:
        """The name of the search, from all that its results depend on."""
        code = {path: key for folder in ("transformer", "pipeline") for path, key in WorkTree().code(folder).items()}
        data = content_of(Path(self.params.corpus_path)) if self.params.corpus == "files" else ""
        key = content_key(
            params=vars(self.params),
            space=[str(one) for one in self.space],
            rungs=list(self.rungs),
            sampler=self.sampler,
            seed=self.seed,
            code=code,
            data=data,
            versions=Path("versions.yaml").read_text(encoding="utf-8"),
        )
        return f"search-{key[:7]}"

    @property
    def folder(self) -> Path:
        """The folder of the search: the database, and the output of the trainings."""
        return project_root() / "work" / self.name

    @property
    def generation_size(self) -> int:
        """How many trials are proposed at once: one of them reaches the last rung."""
        return FACTOR ** (len(self.rungs) - 1)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the search. Raises ValueError if another process runs it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"Another process runs this search (lock {lock.lock_file}). Wait, or stop it.") from None
        try:
            yield
        finally:
            lock.release()


def default_rungs(max_steps: int, save_every: int) -> list[int]:
    """Up to RUNGS rungs: max_steps, max_steps / 3, max_steps / 9, rounded to multiples of save_every."""
    return sorted({max(1, round(max_steps / FACTOR**place / save_every)) * save_every for place in range(RUNGS)})


def given_rungs(text: str | None, params: Params) -> list[int]:
    """The rungs of the option --rungs; None: the default ones. Raises ValueError for rungs that do not fit."""
    if text is None:
        return default_rungs(params.max_steps, params.save_every)
    parts = text.split(",")
    found = [int(part) for part in parts if part.isascii() and part.isdecimal()]
    every = params.save_every
    if len(found) < len(parts) or found != sorted(set(found)) or any(one < 1 or one % every for one in found):
        raise ValueError(f"--rungs {text} must be rising multiples of save_every={every}, separated by commas.")
    if found[-1] != params.max_steps:
        raise ValueError(f"--rungs {text} must end with max_steps={params.max_steps}.")
    return found
