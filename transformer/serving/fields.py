"""What a request asks for: its fields as JSON, as a form or in its address, checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from transformer.decoding.config import MOST_BEAMS, SEARCH_OPTIONS, Beams, ExtraLength, LengthPenalty, SearchConfig
from transformer.serving.gate import CLOSE
from transformer.text.characters import half_character

MOST_ALTERNATIVES = 15
MOST_FIELDS = 20
STRICT: dict[str, Any] = {"keep_blank_values": True, "errors": "strict", "max_num_fields": MOST_FIELDS}
BODY_SECONDS = 10  # for the arrival of a request

Texts = str | Annotated[list[str], Field(fail_fast=True)]
Result = TypeVar("Result")


class Fields(BaseModel):
    """Fields of any request. A field that no class names is a mistake of spelling, and refused."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    api_key: str | None = Field(None, description="needed if the server has a key")
    secret: str | None = Field(None, description="not used; LibreTranslate's page sends it")


class Translate(Fields):
    """A request for translations. Without a search option, that of the model is taken."""

    q: Texts = Field(description="a text, or several; line breaks between the sentences of a text are kept")
    source: str = Field(description="language code; auto: the likeliest source language of the models")
    target: str = Field(description="language code")
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] = 0
    remarks: bool = Field(False, description="whether to say what may be wrong; for text")
    beam_size: Beams | None = None
    length_penalty: LengthPenalty | None = None
    extra_length: ExtraLength | None = None

    def search(self, default: SearchConfig) -> SearchConfig:
        """The settings of the search, of as many hypotheses as there are translations to return."""
        chosen = {name: value for name in SEARCH_OPTIONS if (value := getattr(self, name)) is not None}
        beams = min(MOST_BEAMS, max(chosen.pop("beam_size", default.beam_size), 1 + self.alternatives))
        same = not chosen and beams == default.beam_size
        return default if same else replace(default, beam_size=beams, **chosen)


class Detect(Fields):
    """A request for the language of texts."""

    q: Texts


class TranslateFile(Fields):
    """A request for the translation of a file, .txt, .po or .html."""

    file: Annotated[UploadFile, WithJsonSchema({"type": "string", "format": "binary"})]
    source: str
    target: str


class PageText(BaseModel):
    """What the page asks for: translations by a model, by its position on the command line, from 0."""

    model: int = Field(ge=0)
    text: str = ""
    beam_size: Beams | None = None


class PagePair(PageText):
    """What the page asks for: details of a translation. target: its subwords."""

    target: list[str] = Field(max_length=1_200, fail_fast=True)


Asked = TypeVar("Asked", bound=BaseModel)


async def read(request: Request, kind: type[Asked], check_key: Callable[[Any], None]) -> Asked:
    """The fields of a request. check_key: called with its api_key before the other fields are checked.

    Raises HTTPException: 400 for what is missing, of a wrong type or unknown, 408 for a body that does not arrive.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            values = await read_values(request)
    except TimeoutError:
        raise HTTPException(408, f"The request did not arrive in {BODY_SECONDS} seconds.", CLOSE) from None
    check_key(values.get("api_key"))
    values = {name: value for name, value in values.items() if value not in (None, "") and (name, value) != ("q", [])}
    if wrong := [name for name, value in values.items() if isinstance(value, bool) and name != "remarks"]:
        raise HTTPException(400, f"Invalid request: {wrong[0][:40]} must not be true or false")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        # Of several mistakes an unknown parameter is named; else an item of an array, before the array.
        first = min(error.errors(), key=lambda mistake: (mistake["type"] != "extra_forbidden", -len(mistake["loc"])))
        path = first["loc"] or ("the request",)
        name, value = str(path[0]), json.dumps(first["input"], default=str, ensure_ascii=False)
        name += f"[{path[-1]}]" if isinstance(path[-1], int) else ""
        reason = f"{name}={value if len(value) <= 40 else f'{value[:40]}...'}: {first['msg']}"
        if first["type"] == "missing":
            reason = f"missing {name} parameter"
        elif first["type"] == "extra_forbidden":
            reason = f"there is no parameter {name[:40]!r}. There are {', '.join(kind.model_fields)}."
        elif first["type"] == "is_instance_of":
            reason = f"{name} must be an uploaded file, as by curl -F {name}=@a.txt"
        raise HTTPException(400, f"Invalid request: {reason}") from None


async def read_values(request: Request) -> dict[str, Any]:
    """The fields of a request, of its body and its address. Raises HTTPException for a body that cannot be read."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    content: Any = {}
    form: Sequence[tuple[str, Any]] = ()
    try:
        address = parse_qsl(request.scope["query_string"].decode(), **STRICT)
        if kind == "application/json" and body:
            content = json.loads(body.decode(), object_pairs_hook=unique_fields)
        elif kind == "application/x-www-form-urlencoded":
            if body.lstrip().startswith(b"{"):
                raise HTTPException(400, "Invalid request: JSON needs the header Content-Type: application/json")
            form = parse_qsl(body.decode(), **STRICT)
        elif kind == "multipart/form-data":
            fields = await request.form(max_files=1, max_fields=MOST_FIELDS)
            form = fields.multi_items()
            if not any(isinstance(value, UploadFile) for value in fields.values()):
                body.decode()  # a form with wrong bytes would be read as Latin-1
        elif body:
            raise HTTPException(400, "Invalid request: the Content-Type must be application/json or that of a form")
    except UnicodeDecodeError:
        raise HTTPException(400, "Invalid request: not UTF-8") from None
    except (ValueError, RecursionError):
        raise HTTPException(400, "Invalid JSON format" if kind == "application/json" else "Invalid form") from None
    if not isinstance(content, dict) or len(content) > MOST_FIELDS:
        raise HTTPException(400, f"Invalid JSON format: it must be an object of at most {MOST_FIELDS} fields")
    values = unique_fields([*address, *form, *content.items()])
    if b"\\ud" in body.lower() and (half := half_character(json.dumps(values, default=str, ensure_ascii=False))):
        raise HTTPException(400, f"Invalid request: {half[0]!r}, half a character, is not text")
    return values


def unique_fields(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Fields by their names. Raises HTTPException 400 for two of one name."""
    values = dict(fields)
    if len(values) < len(fields):
        raise HTTPException(400, "Invalid request: a field is there twice. Send several texts as an array, in JSON.")
    return values


async def run_while_connected(request: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled when the client leaves. Raises ClientDisconnect then.

    The body of the request must have been read: then all that can be received is that the client left.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
