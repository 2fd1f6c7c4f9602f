"""The demo's server: one page, and the answers of one or more models as JSON. Only this machine can reach it.

    GET  /              the page
    GET  /models        what the models are
    POST /translations  {"model": 0, "text": "Ein Hund rennt.", "beam_size": 4}
    POST /attention     {"model": 0, "text": "Ein Hund rennt.", "target": ["▁A", "▁dog", "▁runs", "."]}

A mistake is answered with status 400 (413: too large, 503: too slow) and {"message": reason}. Web pages of other sites
cannot use this server. Those whose name leads to this machine send that name as the Host header, which is refused. All
others would have to send JSON to another site, for which a browser first asks that site; this server never agrees.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.demo.answers import MOST_MAPPED, Model
from pipeline.results.servers import HOST
from transformer import reporting
from transformer.inference.engine import Check
from transformer.serving.limits import MAX_CHARACTERS, Deadline, OutOfTime

MOST_BYTES = 20 * MAX_CHARACTERS  # of a request; JSON writes a character in up to 12 bytes
SECONDS = 30  # for an answer
LOOK = 0.1  # seconds between two looks at whether the browser still waits
TEMPLATES = [Path(__file__).parent / "templates", Path(reporting.__path__[0]) / "templates"]


class Stopped(Exception):
    """Nobody waits for the answer any more."""


class Sentence(BaseModel):
    """A request for translations. model: its place on the command line, from 0. beam_size: None: the model's own."""

    model: int = Field(ge=0)
    text: str
    beam_size: int | None = None


class Pair(BaseModel):
    """A request for attention. target: the subwords of a translation."""

    model: int = Field(ge=0)
    text: str
    target: list[str] = Field(max_length=10 * MOST_MAPPED)


class SmallRequests:
    """Refuses a request whose size is too large or not known, before its body is read."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        size = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not size.isdecimal() or int(size) > MOST_BYTES:
            large = answer(f"The request is larger than {MOST_BYTES:,} bytes: shorten the text.", 413)
            await large(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def answer(message: str, status: int) -> JSONResponse:
    """A mistake as the page reads it."""
    return JSONResponse({"message": message}, status, {"X-Content-Type-Options": "nosniff"})


def application(models: Sequence[Model], ending: Event) -> FastAPI:
    """The demo of these models. ending: when it is set, all work stops.

    One thread does the work of all requests, so a model is never used by two, and the page is there while it works.
    """
    worker = ThreadPoolExecutor(1)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)  # FastAPI's pages would load scripts from elsewhere
    app.add_middleware(SmallRequests)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False)
    html, headers = page()

    @app.get("/")
    async def root() -> HTMLResponse:
        return HTMLResponse(html, headers=headers)

    @app.get("/models")
    async def described() -> dict[str, Any]:
        return {"models": [model.description() for model in models], "most_characters": MAX_CHARACTERS}

    @app.post("/translations")
    async def translations(asked: Sentence, request: Request) -> Any:
        model = chosen(models, asked.model)
        return await worked(request, ending, worker, partial(model.translations, asked.text, asked.beam_size))

    @app.post("/attention")
    async def attention(asked: Pair, request: Request) -> Any:
        work = partial(chosen(models, asked.model).attention, asked.text, asked.target)
        return await worked(request, ending, worker, work)

    say_mistakes(app)
    return app


def say_mistakes(app: FastAPI) -> None:
    """Answer what `worked` and FastAPI raise with the reason."""

    @app.exception_handler(ValueError)
    async def refused(request: Request, error: Exception) -> JSONResponse:
        return answer(str(error), 400)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        return answer(f"{' '.join(map(str, first['loc']))}: {first['msg']}", 400)

    @app.exception_handler(HTTPException)
    async def unreadable(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return answer(error.detail, error.status_code)

    @app.exception_handler(OutOfTime)
    async def slow(request: Request, error: Exception) -> JSONResponse:
        return answer(
            f"This took longer than {SECONDS} s and was ended. Shorten the text, or lower the beam size.", 503
        )

    @app.exception_handler(Stopped)
    async def ended(request: Request, error: Exception) -> JSONResponse:
        return answer(str(error), 503)


def chosen(models: Sequence[Model], number: int) -> Model:
    """The model with a number. Raises ValueError if there is none."""
    if number >= len(models):
        raise ValueError(f"model={number}: there are {len(models)}, counted from 0")
    return models[number]


async def worked(
    request: Request, ending: Event, worker: Executor, work: Callable[[Check], dict[str, Any]]
) -> dict[str, Any]:
    """The result of `work`, which `worker` does. It is stopped when the browser goes away or the server ends.

    The time that it may take begins when it begins, not while it waits for the work of other requests.
    """
    stop = Event()

    def limited() -> dict[str, Any]:
        deadline = Deadline(SECONDS)

        def check() -> None:
            if stop.is_set():
                raise Stopped("The request was ended.")
            deadline()

        check()
        return work(check)

    task = asyncio.get_running_loop().run_in_executor(worker, limited)
    while not (await asyncio.wait({task}, timeout=LOOK))[0]:
        if ending.is_set() or await request.is_disconnected():
            stop.set()
    return task.result()


def page() -> tuple[str, dict[str, str]]:
    """The page, and the headers that forbid it all but its own script, its own style and requests to its server."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    parts = {name: environment.get_template(f"demo.{name}.jinja").render() for name in ("css", "js")}
    digests = {name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for name, text in parts.items()}
    policy = (
        f"default-src 'none'; script-src 'sha256-{digests['js']}'; style-src 'sha256-{digests['css']}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    html = environment.get_template("demo.html.jinja").render({name: Markup(text) for name, text in parts.items()})
    return html, {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin",
    }


class Server(uvicorn.Server):
    """Uvicorn, which on a signal first stops the work that it would wait for. ending: the event that stops it."""

    def __init__(self, config: uvicorn.Config, ending: Event):
        super().__init__(config)
        self.ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.ending.set()
        super().handle_exit(signal.Signals(sig), frame)


def serve(models: Sequence[Model], listener: socket.socket) -> None:
    """Answer requests until a signal ends the process."""
    ending = Event()
    app = application(models, ending)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=3)
    Server(config, ending).run(sockets=[listener])
