"""What the server answers, for OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from starlette.routing import Route

from transformer.serving.fields import Detect, Fields, Translate, TranslateFile

JSON, URLENCODED, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
BODIES: dict[str, tuple[type[Fields], tuple[str, ...]]] = {  # path -> what it takes, and how that may be sent
    "/translate": (Translate, (JSON, URLENCODED, MULTIPART)),
    "/detect": (Detect, (JSON, URLENCODED, MULTIPART)),
    "/translate_file": (TranslateFile, (MULTIPART,)),
}
REFUSALS = {
    "400": "A mistake in the request",
    "403": "No key, or a wrong one",
    "408": "The request did not arrive in time",
    "413": "The request is too large",
    "503": "Too much to do, or the answer took too long",
}
NO_FILE = {"404": "There is no such file"}


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """Routes, with the docstrings of their functions, as OpenAPI."""
    schemas: dict[str, Any] = {kind.__name__: kind.model_json_schema() for kind, _ in BODIES.values()}
    schemas["Refusal"] = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    refusal = {JSON: {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    paths = {}
    for route in routes:
        method, name = "post" if route.path in BODIES else "get", route.endpoint.__name__
        operation: dict[str, Any] = {
            "summary": name.replace("_", " ").title(),
            "description": route.endpoint.__doc__,
            "operationId": re.sub(r"\W", "_", f"{name}{route.path}_{method}"),
            "parameters": [
                {"name": each, "in": "path", "required": True, "schema": {"type": "string"}}
                for each in route.param_convertors
            ],
            "responses": {"200": {"description": "The answer"}},
        }
        if route.path in BODIES:
            kind, media = BODIES[route.path]
            schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
            operation["requestBody"] = {"required": True, "content": {each: {"schema": schema} for each in media}}
        refusals = REFUSALS if route.path in BODIES else NO_FILE if route.param_convertors else {}
        for status, why in refusals.items():
            operation["responses"][status] = {"description": why, "content": refusal}
        paths[route.path] = {method: operation}
    info = {"title": "Translation", "description": "LibreTranslate's interface to models of this server."}
    return {
        "openapi": "3.1.0",
        "info": {**info, "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
