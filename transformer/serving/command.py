"""Serve model folders: a page to type into, and LibreTranslate's interface for other programs.

    python -m transformer serve data/model                    # the page is at http://127.0.0.1:5002
    python -m transformer serve de-en/model en-de/model       # both directions
    python -m transformer serve data/model --host 0.0.0.0 --name translate.example.org

If the environment variable TRANSLATION_API_KEY is set, each request must have this key, and the page is off.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import uvicorn

from transformer.cores import cores
from transformer.files import Mistake
from transformer.serving.limits import SECONDS
from transformer.serving.port import HOST, open_port
from transformer.serving.served_model import Model, ModelEntry
from transformer.serving.server import Server, Settings, application

EVERYWHERE = {"0.0.0.0": HOST, "::": "::1"}  # addresses that mean all of this machine -> the one that it calls itself
KEY = "TRANSLATION_API_KEY"
MOST_CONNECTIONS = 900  # more are answered with 503; many systems let a process have 1,024 files
KEPT_OPEN = 130  # seconds that a connection waits for the next request: longer than those of proxies to this server


def host_of(name: str) -> str:
    """The name of a host as browsers send it, of one with a port or of an address. Raises Mistake for no name."""
    host = urlsplit(name if "://" in name else f"//{name}").hostname
    if not host or "*" in host:
        raise Mistake(f"--name {name!r} is not a host name. Use one such as translate.example.org.")
    return address_host(host)


def address_host(host: str) -> str:
    """A host as addresses of pages have it: an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of a server by the options of its command. Raises Mistake for a wrong name or origin."""
    own = [] if options.host in EVERYWHERE else [address_host(options.host)]
    origins = tuple(origin.rstrip("/").lower() for origin in options.origin)
    if wrong := [origin for origin in origins if not re.fullmatch(r"\*|[a-z][a-z\d+.-]*://[^/\s*]+", origin)]:
        raise Mistake(f"--origin {wrong[0]!r} is not the origin of a site. Use one like https://example.org, or *.")
    if options.threads < 1:
        raise Mistake(f"--threads {options.threads} is not a number of threads. Use 1 or more, or leave it out.")
    if options.files and not options.files.is_dir():
        raise Mistake(f"--files {options.files} is not a folder. Make it, or leave this out.")
    names = [*Settings.hosts, *own, *(host_of(name) for name in options.name)]
    return Settings(tuple(names), origins, os.environ.get(KEY) or None, options.threads, options.files)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a server."""
    parser.add_argument("--host", default=HOST, help=f"address to listen on (default: {HOST}, this machine alone)")
    parser.add_argument("--port", type=int, default=5002, help="default: 5002")
    parser.add_argument(
        "--name", action="append", default=[], help="a name by which clients call this server, beside localhost"
    )
    parser.add_argument(
        "--origin",
        action="append",
        default=[],
        help="a site whose pages may use this server, or *: https://example.org",
    )
    parser.add_argument(
        "--threads", type=int, default=cores(), metavar="N", help="batches at a time (default: one for each core)"
    )
    parser.add_argument(
        "--files", type=Path, metavar="FOLDER", help="folder of translated files, which several servers may share"
    )
    parser.add_argument("--glossary", type=Path, metavar="FILE", help="a term, a tab and its translation in each line")


def serve(find: Callable[[], Sequence[ModelEntry]], options: argparse.Namespace) -> None:
    """Serve models until a signal ends the process. find: called when the port is open."""
    settings = settings_of(options)
    if options.glossary and len(options.models) > 1:
        raise Mistake("--glossary is for one model. Serve the others without it, by a server of their own.")
    with open_port(options.host, options.port) as listener:
        print(f"Loading {' and '.join(map(str, dict.fromkeys(options.models)))} ...", file=sys.stderr, flush=True)
        server = Server([Model(entry, options.glossary, options.threads) for entry in find()], settings)
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.INFO)

        here = address_host(EVERYWHERE.get(options.host) or options.host)
        if options.host in EVERYWHERE and not options.name:
            print("Other machines are answered if they call this server by a --name.", file=sys.stderr)

        class Uvicorn(uvicorn.Server):
            """On SIGTERM it answers what it has begun, on Ctrl-C it stops its work. Either way it ends with 0."""

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                print(f"http://{here}:{options.port}", flush=True)

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                if sig == signal.SIGINT:
                    server.stop()
                server.is_ending = True
                self.should_exit, self.force_exit = True, self.should_exit and sig == signal.SIGINT

        config = uvicorn.Config(
            application(server),
            loop="asyncio",
            http="h11",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEPT_OPEN,
            log_config=None,
            access_log=False,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=SECONDS + 5,
        )
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it would log bytes of a request
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it would log each connection that it cannot open
        with suppress(KeyboardInterrupt):
            Uvicorn(config).run(sockets=[listener])


def main() -> None:
    """Run python -m transformer serve. Raises Mistake as Translator.load does for a folder without a model."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer serve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="FOLDER", help="model folder")
    add_options(parser)
    options = parser.parse_args(sys.argv[2:])
    serve(lambda: [ModelEntry(str(folder), folder) for folder in options.models], options)
