"""MLflow's model server, closed to other sites, with a reason in one line for every bad request.

    python -m transformer.serving.app MODEL --host 127.0.0.1 --port 5001

MODEL is a folder that MLflow saved, run in its folder `code`. Requests must name this machine as their host; set
MLFLOW_SERVER_ALLOWED_HOSTS to the names that others use. A page of another site gets no answer.
"""

from __future__ import annotations

import argparse
import asyncio
from threading import Event

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from mlflow.pyfunc import load_model
from mlflow.pyfunc.scoring_server import init
from mlflow.server.fastapi_security import init_fastapi_security

MOST_BYTES = 10_000_000  # of a request: far more than the limits of lines and characters allow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5001)
    options = parser.parse_args()
    uvicorn.run(Watched(server(init(load_model(options.model)))), host=options.host, port=options.port)


def server(app: FastAPI) -> FastAPI:
    """Make MLflow's app refuse foreign hosts, foreign origins, and JSON that Python cannot read; returns the app."""
    init_fastapi_security(app)

    @app.middleware("http")
    async def refuse_origins(request: Request, call_next):
        origin, host = request.headers.get("origin"), request.headers.get("host")
        if origin and origin not in (f"http://{host}", f"https://{host}"):
            return JSONResponse({"message": f"Requests from {origin} are not answered."}, 403)
        return await call_next(request)

    async def unreadable(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error_code": "INVALID_PARAMETER_VALUE", "message": f"Not valid JSON: {error}"}, 400)

    for kind in (RecursionError, ValueError):  # of brackets in brackets, and of a number with too many digits
        app.add_exception_handler(kind, unreadable)
    return app


class Watched:
    """An ASGI app in which a request sets ABANDONED when its sender has gone."""

    def __init__(self, app: FastAPI):
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        from transformer.serving.limits import ABANDONED  # after MLflow has loaded the model and its code

        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        messages, size = [await receive()], 0
        while messages[-1].get("more_body") and size < MOST_BYTES:
            size += len(messages[-1].get("body", b""))
            messages.append(await receive())
        if size >= MOST_BYTES:
            answer = JSONResponse({"message": f"The request has more than {MOST_BYTES:,} bytes."}, 413)
            return await answer(scope, receive, send)
        abandoned = Event()
        ABANDONED.set(abandoned)

        async def watch():
            message = await receive()
            abandoned.set()
            return message

        watching = asyncio.create_task(watch())

        async def replay():
            return messages.pop(0) if messages else await asyncio.shield(watching)

        try:
            await self.app(scope, replay, send)
        finally:
            watching.cancel()


if __name__ == "__main__":
    main()
