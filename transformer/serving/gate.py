"""What each request passes: host, origin, size and time are checked, it is counted and logged, without its texts."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer.serving.limits import MAX_BYTES, SECONDS

LOG = logging.getLogger("transformer.serving")
LARGE = f"The request is larger than {MAX_BYTES:,} bytes: shorten the text."
LATE = f"The request took longer than {SECONDS} s and was ended. Send fewer or shorter texts, or a smaller beam_size."
LATER = {"Retry-After": "5"}  # seconds
INTERNAL = "Internal error: a bug of the server, whose log has it."
CLOSE = {"Connection": "close"}  # where the body of a request was not read
CLIENT_LEFT = 499  # the status that is logged of a client that left


def log_bug(error: Exception) -> None:
    """Log the traceback of a bug without the message of the error, which may have a text."""
    LOG.error("bug: %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))


class Measures:
    """Counts of one server, for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        new: dict[str, Any] = {"registry": self.registry, "namespace": "translation"}
        self.requests = Counter("requests", "requests by path and status", ["path", "status"], **new)
        self.seconds = Histogram("seconds", "from request to answer", ["path"], **new)
        self.sentences = Counter("sentences", "translated sentences", **new)
        self.queue = Gauge("queue", "requests that wait for a translation", **new)


class Gate:
    """The outermost part of the server, but for the headers by which other sites read answers. server: a Server."""

    def __init__(self, app: ASGIApp, server: Any):
        self.app, self.server = app, server

    def refusal(self, path: str, headers: Headers) -> JSONResponse | None:
        """The answer to a request that is refused by its headers."""
        host, origin = headers.get("host", "").lower(), headers.get("origin", "").lower()
        bare = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        settings = self.server.settings
        if bare not in settings.hosts and path != "/health":  # which probes ask by the address of the machine
            reason = f"This server does not answer to the name {bare[:80]!r}. Start it with --name to allow it."
            return JSONResponse({"error": reason}, 400)
        if origin and origin not in (f"http://{host}", f"https://{host}") and not {"*", origin} & {*settings.origins}:
            reason = f"Pages of {origin[:80]!r} may not use this server. Start it with --origin to allow them."
            return JSONResponse({"error": reason}, 403)
        size = headers.get("content-length", "0")
        return None if size.isdecimal() and int(size) <= MAX_BYTES else JSONResponse({"error": LARGE}, 413, CLOSE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, method, status, size = time.perf_counter(), scope["method"], 0, 0

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BYTES:
                raise HTTPException(413, LARGE, CLOSE)
            return message

        async def send_watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
                if self.server.is_ending:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            async with asyncio.timeout(SECONDS):
                answer = self.refusal(scope["path"], Headers(scope=scope)) or self.app
                await answer(scope, receive_limited, send_watched)
        except ClientDisconnect:
            status = status or CLIENT_LEFT
        except TimeoutError:
            if not status:
                await JSONResponse({"error": LATE}, 503, LATER)(scope, receive, send_watched)
        except Exception as error:
            log_bug(error)
            if not status:
                await JSONResponse({"error": INTERNAL}, 500)(scope, receive, send_watched)
        seconds = time.perf_counter() - begin
        path = getattr(scope.get("route"), "path", "other")
        self.server.measures.requests.labels(path, status).inc()
        self.server.measures.seconds.labels(path).observe(seconds)
        LOG.info("%s %s %d %.3f s", method, path, status, seconds)
