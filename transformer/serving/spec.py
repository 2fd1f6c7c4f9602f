"""What the server answers, for OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.routing import Route

from transformer.serving.fields import Detect, Fields, Translate, TranslateFile

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
BODIES: dict[str, tuple[type[Fields], tuple[str, ...]]] = {  # path -> what it takes, and how that may be sent
    "/translate": (Translate, ("application/json", *FORMS)),
    "/detect": (Detect, ("application/json", *FORMS)),
    "/translate_file": (TranslateFile, FORMS[1:]),
}
REASON = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """Routes, with the docstrings of their functions, as OpenAPI."""
    paths = {}
    for route in routes:
        kind, media = BODIES.get(route.path, (None, ()))
        method, name, places = "post" if kind else "get", route.endpoint.__name__, [*route.param_convertors]
        path_of = {"in": "path", "required": True, "schema": {"type": "string"}}
        operation: dict[str, Any] = {
            "summary": name.replace("_", " ").title(),
            "description": route.endpoint.__doc__,
            "operationId": re.sub(r"\W", "_", f"{name}{route.path}_{method}"),
            "parameters": [path_of | {"name": place} for place in places],
            "responses": {"200": {"description": "The answer"}},
        }
        if kind:
            content = {each: {"schema": kind.model_json_schema()} for each in media}
            operation["requestBody"] = {"required": True, "content": content}
        for status in (400, 403, 408, 413, 503) if kind else (404,) if places else ():
            refusal = {"description": HTTPStatus(status).phrase, "content": {"application/json": {"schema": REASON}}}
            operation["responses"][str(status)] = refusal
        paths[route.path] = {method: operation}
    info = {"title": "Translation", "description": "LibreTranslate's interface to models of this server."}
    return {"openapi": "3.1.0", "info": {**info, "version": "1"}, "paths": paths}
