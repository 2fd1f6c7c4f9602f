"""Speed of the server with many clients, beside a loop over CTranslate2 alone, and what it does with broken requests.

Each client sends one line after the other, over one connection. The loop has all its lines at once, as subwords, in
batches of CTranslate2's own: no text is split, nobody waits. The two take turns, ROUNDS times, and medians are printed.
Processor time is that of the whole server, and of the loop; p50 is compared with that of the loop, one line at a time.

    python -m benchmarks.serve data/model data/raw/test.src --clients 1,8,64 --seconds 60
    python -m benchmarks.serve data/model data/raw/test.src --clients 64 --seconds 60 --break-some
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from benchmarks.table import text_table
from transformer.cores import cores
from transformer.files import read_lines
from transformer.inference.translator import Translator

COLUMNS = {
    "clients": "clients",
    "rate": "lines/s",
    "cost": "processor ms a line",
    "ratio": "to the loop",
    "p50": "p50 ms",
    "p50_ratio": "to one line of it",
    "p99": "p99 ms",
}
ROUNDS = 5
EARLY = 10  # seconds after which memory should not grow
GARBAGE = (  # what one in twenty requests is with --break-some; each is refused, with 400 or 413
    b'{"q": [1, null], "source": "SRC", "target": "TGT"}',
    b'{"q": "\xff\xfe", "source": "SRC", "target": "TGT"}',
    b'{"q": "a"',
    b'{"q": ' + json.dumps(["a"] * 10_000).encode() + b', "source": "SRC", "target": "TGT"}',
    b"x" * 10_000_000,
)


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """Start the server; yields its port and the number of its process."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "transformer", "serve", str(folder), "--port", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout
        process.stdout.readline()
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


class Client:
    """One connection, which sends a line after the other until the time is over, and keeps what it saw."""

    def __init__(self, port: int, languages: tuple[str, str], lines: list[str], number: int):
        self.port, self.languages, self.lines = port, languages, lines
        self.random = random.Random(number)
        self.seconds: list[float] = []
        self.answers: dict[str, str] = {}  # line -> its translation
        self.counts: Counter[str] = Counter()
        self.reader: asyncio.StreamReader | None = None

    def body(self, line: str) -> bytes:
        """A request for the translation of a line."""
        source, target = self.languages
        return json.dumps({"q": line, "source": source, "target": target}).encode()

    async def send(self, body: bytes, part: int | None = None) -> None:
        """Send a request, or the first bytes of one, over the connection, or over a new one."""
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        self.writer.write((head + "Content-Type: application/json\r\n\r\n").encode() + body[:part])
        await self.writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        assert self.reader
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self.reader.readexactly(length)

    def leave(self) -> None:
        """Close the connection."""
        self.writer.transport.abort()
        self.reader = None

    async def translate(self, line: str) -> None:
        """Ask for a line, and keep its translation and the time that it took."""
        begin = time.perf_counter()
        await self.send(self.body(line))
        status, body = await self.receive()
        self.counts[str(status)] += 1
        if status == 200:
            self.seconds.append(time.perf_counter() - begin)
            text = json.loads(body)["translatedText"]
            self.counts["wrong"] += self.answers.setdefault(line, text) != text

    async def disturb(self, line: str) -> None:
        """Leave before the answer, send half a request, or send garbage."""
        source, target = self.languages
        if self.random.random() < 2 / 3:  # one in ten leaves, one in twenty sends garbage
            await self.send(self.body(line), self.random.choice([None, 20]))
            await asyncio.sleep(self.random.random() / 50)
            self.counts["left"] += 1
            self.leave()
            return
        garbage = self.random.choice(GARBAGE).replace(b"SRC", source.encode()).replace(b"TGT", target.encode())
        status = 0
        with suppress(OSError, asyncio.IncompleteReadError):  # a large body is refused before it is read
            await self.send(garbage)
            status, _ = await self.receive()
        self.counts["garbage refused" if status in (0, 400, 413) else "garbage accepted"] += 1
        self.leave()

    async def run(self, end: float, break_some: bool) -> None:
        """Send until the time `end`."""
        while time.perf_counter() < end:
            line = self.random.choice(self.lines)
            if break_some and self.random.random() < 0.15:
                await self.disturb(line)
            else:
                await self.translate(line)
        if self.reader:
            self.leave()


async def crowd(
    port: int, process: int, languages: tuple[str, str], lines: list[str], asked: argparse.Namespace, count: int
) -> tuple[list[Client], float]:
    """So many clients for a round of the measurement, and the memory of the server after EARLY seconds."""
    clients = [Client(port, languages, lines, number) for number in range(count)]
    seconds = asked.seconds / ROUNDS
    end = time.perf_counter() + seconds
    work = asyncio.gather(*(client.run(end, asked.break_some) for client in clients))
    await asyncio.sleep(min(EARLY, seconds))
    early = resident(process)
    await work
    return clients, early


def resident(process: int) -> float:
    """MiB of memory that a process has."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def processor_seconds(process: int) -> float:
    """Processor time that a process has used, of all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Loop:
    """CTranslate2 alone, with all cores."""

    def __init__(self, folder: Path, translator: Translator, lines: list[str]):
        import ctranslate2

        self.alone = ctranslate2.Translator(str(folder), inter_threads=cores(), intra_threads=1)
        self.subwords = translator.subwords(lines)

    def cost(self, seconds: float) -> float:
        """Processor seconds a line, of all lines at once."""
        count, begin, used = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - begin < seconds:
            self.alone.translate_batch(self.subwords, beam_size=4, max_batch_size=4096, batch_type="tokens")
            count += len(self.subwords)
        return (time.process_time() - used) / count

    def p50(self, seconds: float) -> float:
        """Seconds until one line is translated, the median."""
        taken, end, chance = [], time.perf_counter() + seconds, random.Random(0)
        while (begin := time.perf_counter()) < end:
            self.alone.translate_batch([chance.choice(self.subwords)], beam_size=4)
            taken.append(time.perf_counter() - begin)
        return median(taken)


def measure(
    port: int,
    process: int,
    languages: tuple[str, str],
    lines: list[str],
    asked: argparse.Namespace,
    count: int,
    loop: Loop,
) -> dict:
    """A row of the table."""
    rounds = []
    every: Counter[str] = Counter()
    memory = 0.0
    for _ in range(ROUNDS):
        seconds = asked.seconds / ROUNDS / 2
        loop_cost, loop_p50, used = loop.cost(seconds), loop.p50(seconds / 2), processor_seconds(process)
        clients, early = asyncio.run(crowd(port, process, languages, lines, asked, count))
        cost = processor_seconds(process) - used
        every += sum((client.counts for client in clients), Counter())
        memory = memory or early
        taken = sorted(second for client in clients for second in client.seconds)
        cost, p50 = cost / len(taken), median(taken)
        rounds.append(
            {
                "rate": ROUNDS * len(taken) / asked.seconds,
                "cost": 1000 * cost,
                "ratio": cost / loop_cost,
                "p50": 1000 * p50,
                "p50_ratio": p50 / loop_p50,
                "p99": 1000 * taken[int(0.99 * (len(taken) - 1))],
            }
        )
    print(f"{count} clients: {dict(every)}; {memory:.0f} MiB after {EARLY} s, {resident(process):.0f} at the end")
    return {"clients": count} | {name: median(each[name] for each in rounds) for name in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="model folder with the export for CTranslate2")
    parser.add_argument("text", type=Path, help="lines to translate")
    parser.add_argument("--clients", default="1,8,64", help="default: 1,8,64")
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement (default: 60)")
    parser.add_argument("--break-some", action="store_true", help="one in ten leaves, one in twenty sends garbage")
    asked = parser.parse_args()
    translator = Translator.load(asked.folder, engine="ctranslate2")
    languages = translator.source.language, translator.target.language
    lines = [line for line in read_lines(asked.text) if line.strip()][:400]
    loop = Loop(asked.folder, translator, lines)
    with served(asked.folder) as (port, process):
        asyncio.run(Client(port, languages, [], 0).translate(lines[0]))  # loads what is loaded late
        counts = map(int, asked.clients.split(","))
        rows = [measure(port, process, languages, lines, asked, count, loop) for count in counts]
    print(text_table(rows, COLUMNS))


if __name__ == "__main__":
    main()
