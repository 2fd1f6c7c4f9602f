"""Lines of many requests, translated in batches: one line alone leaves most of a processor unused.

A batch has lines of requests with the same search (SearchConfig). Each core works on one batch. What waits is divided
among the free cores: at once if nothing is in work, else after WAIT seconds, in which more requests may come. Requests
that do not fit into one batch take turns, one line each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from starlette.exceptions import HTTPException

from transformer.decoding.config import SearchConfig
from transformer.files import Mistake
from transformer.inference.translation import Sentence
from transformer.inference.translator import Translator
from transformer.serving.gate import INTERNAL, LATER, log_bug
from transformer.serving.limits import MOST_BATCH_COST, MOST_WAITING_COST, check_sentences, line_costs, name_of

WAIT = 0.005  # seconds, for other requests
LONG_LINE = 1_000  # characters of a line from which its request is a batch of its own


class Job:
    """The lines of a request, and their translations. config: of the search. remarks: whether these are wanted.

    Raises Mistake if the search of one line, or of all lines together, may take too long.
    """

    def __init__(self, lines: Sequence[str], config: SearchConfig, remarks: bool = False):
        self.lines, self.config, self.remarks = lines, config, remarks
        self.future: asyncio.Future = asyncio.get_running_loop().create_future()
        self.results: list[Any] = [None] * len(lines)
        self.taken = self.done = 0  # lines
        self.costs = line_costs(lines, self.config)
        self.cost = sum(self.costs)  # of the lines that are not taken into a batch yet
        self.group = (config, remarks, id(self) if max(map(len, lines)) > LONG_LINE else 0)

    def finish(self, number: int, result: list[Sentence] | Exception) -> None:
        """Take the translation of a line, or why there is none, which is then the answer."""
        self.results[number] = result
        self.done += 1
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        elif self.done == len(self.lines):
            self.future.set_result(self.results)


Batch = list[tuple[Job, int]]  # a line of a job, by its number


class Batches:
    """The requests that wait for one translator. workers: threads, of which so many translate for it at a time."""

    def __init__(self, translator: Translator, workers: Executor, threads: int):
        self.translator, self.workers, self.threads = translator, workers, threads
        self.waiting: deque[Job] = deque()
        self.arrived, self.free, self.in_work = asyncio.Event(), asyncio.Semaphore(threads), 0
        self.stopping = False

    def cost(self) -> int:
        """Of all requests that wait."""
        return sum(job.cost for job in self.waiting)

    async def translate(
        self, lines: Sequence[str], config: SearchConfig, remarks: bool = False
    ) -> list[list[Sentence]]:
        """The sentences of each line. When this is cancelled, what is not translated yet is left out.

        Raises HTTPException 503 if too much waits and if the process ends, and Mistake for a line with too many
        subwords.
        """
        if not lines:
            return []
        job = Job(lines, config, remarks)
        if self.waiting and self.cost() + job.cost > MOST_WAITING_COST:
            raise HTTPException(503, "The server has too much to do. Try later.", LATER)
        self.waiting.append(job)
        self.arrived.set()
        try:
            return await job.future
        finally:
            job.future.cancel()  # without effect on one that is done
            if job in self.waiting:
                self.waiting.remove(job)

    async def run(self) -> None:
        """Translate what arrives, for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self.arrived.wait()
                await self.free.acquire()
                if self.in_work and self.cost() < MOST_BATCH_COST:
                    await asyncio.sleep(WAIT)
                batch = self._take_batch()
                if not self.waiting:
                    self.arrived.clear()
                self.in_work += 1
                tasks.create_task(self._work(batch))

    async def _work(self, batch: Batch) -> None:
        """Translate a batch, and finish its jobs."""
        work = asyncio.get_running_loop().run_in_executor(self.workers, self._translate_or_retry, batch)
        for (job, number), result in zip(batch, await work, strict=True):
            job.finish(number, result)
        self.in_work -= 1
        self.free.release()

    def _take_batch(self) -> Batch:
        """The lines of the next batch: of the job that waits longest, and of others of its search."""
        batch: Batch = []
        same = [job for job in self.waiting if job.group == self.waiting[0].group]
        share = max(1, self.cost() // (self.threads - self.in_work))
        room, open_jobs = min(MOST_BATCH_COST, share), same
        while room > 0 and open_jobs:
            for job in open_jobs:
                cost = job.costs[job.taken]
                if batch and cost > room:
                    room = 0
                if room > 0:
                    batch.append((job, job.taken))
                    job.taken += 1
                    job.cost -= cost
                    room -= cost
            open_jobs = [job for job in open_jobs if job.taken < len(job.lines)]
        for job in same:
            self.waiting.remove(job)
            if job.taken < len(job.lines):
                self.waiting.append(job)  # behind those of another search
        return batch

    def _translate_or_retry(self, batch: Batch) -> list[list[Sentence] | Exception]:
        """The sentences of each line of a batch, or why there are none. After a Mistake each line is tried singly."""
        try:
            return self._translate_batch(batch)
        except Mistake as error:
            if len(batch) == 1:
                return [error]
            return [result for line in batch for result in self._translate_or_retry([line])]
        except HTTPException as error:
            return [error for _ in batch]
        except Exception as error:
            log_bug(error)
            return [HTTPException(500, INTERNAL) for _ in batch]

    def _translate_batch(self, batch: Batch) -> list[Any]:
        """The sentences of each line of a batch. Raises Mistake and what the translator raises.

        Raises HTTPException 503 when the process ends or nobody waits for any line of the batch.
        """
        jobs = [job for job, _ in batch]

        def check() -> None:
            if self.stopping or all(job.future.done() for job in jobs):
                raise HTTPException(503, "The server is ending.")

        lines = [job.lines[number] for job, number in batch]
        check()
        for line, (job, number) in zip(lines, batch, strict=True):
            check_sentences(name_of(number + 1, len(job.lines)), line, self.translator)
        return self.translator.alternatives_of_sentences(
            lines, before_step=check, config=jobs[0].config, remarks=jobs[0].remarks
        )
