"""The server of model folders: LibreTranslate's interface, and a page to type into.

    POST /translate, /detect, /translate_file    GET /languages, /frontend/settings, /spec, /health, /metrics
    GET  /                                       the page, which uses /models, /translations and /details

A mistake is answered as {"error": reason}. A browser sends the name of a page's site as Origin, and the name of the
server that it asks as Host. Only allowed names are answered, so pages of other sites cannot use this server.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from babel import Locale
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from transformer import reporting, serving
from transformer.cores import cores
from transformer.decoding.config import SearchConfig
from transformer.files import Mistake
from transformer.inference.documents import HTML, PO, Document, read_catalogue_file
from transformer.inference.html_text import HtmlText, encoded
from transformer.inference.translation import Sentence, join_translations
from transformer.serving.batches import Batches
from transformer.serving.fields import (
    Detect,
    PagePair,
    PageText,
    Result,
    Translate,
    TranslateFile,
    read,
    run_while_connected,
)
from transformer.serving.gate import LATER, Gate, Measures
from transformer.serving.kept_files import fetch, keep
from transformer.serving.limits import MAX_CATALOGUE, MAX_CHARACTERS, check_html, check_line, check_lines
from transformer.serving.served_model import MOST_MAPPED, Model, describe_remarks
from transformer.serving.spec import describe
from transformer.text.identify import label, rank_languages

FOLDERS = [Path(module.__path__[0]) / "templates" for module in (serving, reporting)]
TEMPLATES = Environment(loader=FileSystemLoader(FOLDERS), autoescape=True, undefined=StrictUndefined)
FILES = (".txt", PO, *HTML)
READERS = 2  # catalogues that are read at the same time
PREFIX = re.compile(r"(/[\w.~-]+)*/?", re.ASCII)  # the path of a site under which a proxy has this server
NO_KEY, WRONG_KEY = "Please contact the server operator to get an API key", "Invalid API key"
NO_PAGE = "This server needs a key, so it has no page. Programs send it as api_key to /translate."


@dataclass(frozen=True)
class Settings:
    """hosts: the names by which clients may call this server. origins: sites whose pages may use it; `*`: all.

    api_key: what each request for a translation must have; None: nothing. With a key the page is off. threads: how many
    batches of a model are translated at a time. files: the folder of translated files.
    """

    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    origins: tuple[str, ...] = ()
    api_key: str | None = None
    threads: int = field(default_factory=cores)
    files: Path | None = None


class Server:
    """What the answers are made of: models, their batches and the files that wait to be fetched.

    Threads are for batches (workers), for the page and HTML (threads), and for catalogues (readers).
    """

    def __init__(self, models: Sequence[Model], settings: Settings):
        self.models, self.settings, self.measures, self.is_ending = models, settings, Measures(), False
        self.workers, self.threads = ThreadPoolExecutor(2 * settings.threads), ThreadPoolExecutor(2)
        self.readers, self.free_readers = ThreadPoolExecutor(READERS), threading.Semaphore(READERS)
        self.batches = [Batches(model.translator, self.workers, settings.threads) for model in models]
        self.temporary = TemporaryDirectory()
        self.files = settings.files or Path(self.temporary.name)
        self.measures.queue.set_function(lambda: sum(len(batches.waiting) for batches in self.batches))
        self.codes = list(dict.fromkeys(code for model in models for code in model.languages))
        detect(".", self.codes)  # loads py3langid

    def stop(self) -> None:
        """End all work; what waits is answered with status 503."""
        for batches in self.batches:
            batches.stopping = True

    @asynccontextmanager
    async def run_models(self, app: Starlette) -> AsyncIterator[None]:
        """Translate, until the block ends."""
        tasks = [asyncio.create_task(batches.run()) for batches in self.batches]
        yield
        for task in tasks:
            task.cancel()

    def check_key(self, api_key: Any) -> None:
        """Raise HTTPException if a key is needed: 400 without one, 403 for another; it may be of any type."""
        if (key := self.settings.api_key) and not hmac.compare_digest(repr(api_key).encode(), repr(key).encode()):
            raise HTTPException(403, WRONG_KEY) if api_key else HTTPException(400, NO_KEY)

    def find_code(self, language: str) -> str:
        """The code of a language as a model has it, with or without its region. Raises HTTPException 400."""
        same = [code for code in self.codes if code.lower() == language.lower()]
        near = [code for code in self.codes if label(code) == label(language[:40].replace("_", "-"))]
        if not same + near:
            raise HTTPException(400, f"{language[:40]} is not supported. This server has {', '.join(self.codes)}.")
        return (same + near)[0]

    def choose_model(self, source: str, target: str, texts: Sequence[str]) -> tuple[int, dict[str, Any] | None]:
        """The number of the model from one language to another; for `auto` also the language of the texts.

        Raises HTTPException 400 if there is none.
        """
        target = self.find_code(target)
        detected = None
        if source == "auto":
            sources = [model.languages[0] for model in self.models if model.languages[1] == target]
            if not sources:
                raise HTTPException(400, f"{language_name(target)} ({target}) is not available as a target language")
            ranked = detect("\n".join(texts)[:MAX_CHARACTERS], self.codes)
            unknown = {"confidence": 0.0, "language": sources[0]}  # a source that py3langid does not know
            detected = next((each for each in ranked if each["language"] in sources), unknown)
            source = detected["language"]
        source = self.find_code(source)
        for number, model in enumerate(self.models):
            if model.languages == (source, target):
                return number, detected
        names = [f"{language_name(code)} ({code})" for code in (target, source)]
        raise HTTPException(400, f"{names[0]} is not available as a target language from {names[1]}")

    async def translate(
        self, request: Request, number: int, lines: Sequence[str], config: SearchConfig, remarks: bool = False
    ) -> list[list[Sentence]]:
        """The sentences of lines, which passed `check_lines`, with their translations by a model."""
        results = await run_while_connected(request, self.batches[number].translate(lines, config, remarks))
        self.measures.sentences.inc(sum(map(len, results)))
        return results

    async def translate_html(
        self, request: Request, number: int, texts: Sequence[str], config: SearchConfig
    ) -> list[str]:
        """The translations of HTML, which passed `check_html`, by a model."""
        placeholders = self.models[number].translator.source.placeholders
        parts = await self.run(lambda: [HtmlText(text, placeholders) for text in texts])
        await self.fill(request, number, parts, config)
        return await self.run(lambda: [part.result for part in parts])

    async def fill(
        self, request: Request, number: int, documents: Sequence[Document], config: SearchConfig, name: str = "text"
    ) -> None:
        """Translate documents by a model. name: what an error calls one of their lines."""
        while lines := [line for document in documents for line in document.lines]:
            check_lines(lines, name)
            results = await self.translate(request, number, lines, config)
            texts = map(best_text, results)
            await self.run(lambda texts=texts: [part.fill([next(texts) for _ in part.lines]) for part in documents])

    async def run(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, which a thread does."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def read_catalogue(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, which reads a catalogue. Raises HTTPException 503 if all readers are busy."""
        if not self.free_readers.acquire(blocking=False):
            raise HTTPException(503, "The server reads other files. Try later.", LATER)
        reading = self.readers.submit(work)
        reading.add_done_callback(lambda _: self.free_readers.release())  # also when nobody waits for it any more
        return await asyncio.wrap_future(reading)


def language_name(code: str) -> str:
    """The English name of a language."""
    return Locale("en").languages.get(code.replace("-", "_")) or code


def detect(text: str, codes: Sequence[str]) -> list[dict[str, Any]]:
    """Languages among `codes` with the confidence that a text is in them, in percent, the likeliest first."""
    ranked = rank_languages(text, codes) or [(code, 0.0) for code in dict.fromkeys(codes)]  # py3langid knows none
    return [{"confidence": round(100 * probability, 1), "language": code} for code, probability in ranked]


def best_text(sentences: Sequence[Sentence]) -> str:
    """The best translation of a line."""
    return join_translations(sentence.best for sentence in sentences)


def other_texts(sentences: Sequence[Sentence], count: int) -> list[str]:
    """Other translations of a line that is one sentence; a text of several has none."""
    if len(sentences) != 1:
        return []
    texts = dict.fromkeys(translation.text for translation in sentences[0].translations)
    return list(texts)[1 : count + 1]


def application(server: Server) -> Starlette:
    """The program that answers requests."""
    routes = interface(server)
    routes.append(Route("/spec", JSONResponse(describe(routes)), methods=["GET"]))
    routes += [Route("/", JSONResponse({"error": NO_PAGE}, 404))] if server.settings.api_key else page_routes(server)
    middleware = [Middleware(Gate, server)]
    if server.settings.origins:
        middleware.insert(0, Middleware(CORSMiddleware, allow_origins=server.settings.origins, allow_methods=["*"]))
    handlers: Any = {Mistake: answer_mistake, HTTPException: answer_refusal}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=server.run_models)


async def answer_mistake(request: Request, error: Mistake) -> JSONResponse:
    """The reason, as 400."""
    return JSONResponse({"error": str(error)}, 400)


async def answer_refusal(request: Request, error: HTTPException) -> JSONResponse:
    """The reason and the status that the error has."""
    reason, headers = error.detail, error.headers
    if error.status_code == 405 and headers:
        reason = f"{reason}: use {headers['Allow']}"
    return JSONResponse({"error": reason}, error.status_code, headers)


def interface(server: Server) -> list[Route]:
    """LibreTranslate's interface."""

    async def translate(request: Request) -> JSONResponse:
        """Translate a text, or each of several."""
        asked = await read(request, Translate, server.check_key)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        html = asked.format == "html"
        (check_html if html else check_lines)(texts)
        number, detected = server.choose_model(asked.source, asked.target, texts)
        search = asked.search(server.models[number].entry.search)
        if html:
            results = [[] for _ in texts]
            translations = await server.translate_html(request, number, texts, search)
        else:
            results = await server.translate(request, number, texts, search, asked.remarks)
            translations = [best_text(sentences) for sentences in results]
        answer: dict[str, list] = {"translatedText": translations}
        if detected:
            answer["detectedLanguage"] = [detected] * len(texts)
        if asked.alternatives:
            answer["alternatives"] = [other_texts(sentences, asked.alternatives) for sentences in results]
        if asked.remarks and not html:
            answer["remarks"] = [describe_remarks(sentences) for sentences in results]
        if isinstance(asked.q, str):
            answer = {name: values[0] for name, values in answer.items()}
        return JSONResponse(answer)

    async def detect_language(request: Request) -> JSONResponse:
        """The languages of this server's models that a text may be in."""
        asked = await read(request, Detect, server.check_key)
        text = asked.q if isinstance(asked.q, str) else "\n".join(asked.q)
        check_line("the text", text)
        return JSONResponse(detect(text, server.codes))

    async def translate_file(request: Request) -> JSONResponse:
        """Translate a .txt, .po or .html file of at most 1,000 texts. The answer has the address of the result."""
        asked = await read(request, TranslateFile, server.check_key)
        end = Path(f"name{asked.file.filename}").suffix.lower()  # also of a file that is called .txt
        if end not in FILES:
            raise HTTPException(400, f"Invalid request: file format not supported. Send {' or '.join(FILES)}.")
        content = await asked.file.read()
        if not content:
            raise HTTPException(400, "Invalid request: empty file")
        result = await translate_content(request, server, asked, end, content)
        name = await server.run(lambda: keep(server.files, result, end))
        prefix = request.headers.get("x-forwarded-prefix", "")
        site = str(request.base_url).rstrip("/") + (prefix.rstrip("/") if PREFIX.fullmatch(prefix) else "")
        return JSONResponse({"translatedFileUrl": f"{site}/download_file/{name}"})

    async def download_file(request: Request) -> Response:
        """A translated file, one of the newest."""
        address = request.path_params["address"]
        content = await server.run(lambda: fetch(server.files, address))
        if content is None:
            raise HTTPException(404, "There is no such file. Translate it again.")
        headers = {"Content-Disposition": f'attachment; filename="translated{Path(address).suffix}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def languages(request: Request) -> JSONResponse:
        """The languages of this server's models, and for each the languages it can be translated to."""
        pairs = [model.languages for model in server.models]
        targets = {code: dict.fromkeys(target for source, target in pairs if source == code) for code in server.codes}
        return JSONResponse(
            [{"code": code, "name": language_name(code), "targets": list(targets[code])} for code in server.codes]
        )

    async def settings(request: Request) -> JSONResponse:
        """What a page needs to know of this server."""
        source, target = server.models[0].languages
        key = bool(server.settings.api_key)
        answer = {
            "charLimit": MAX_CHARACTERS,
            "frontendTimeout": 500,
            "apiKeys": key,
            "keyRequired": key,
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": FILES,
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
        }
        return JSONResponse(answer)

    async def health(request: Request) -> JSONResponse:
        """Whether the server answers."""
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        """Counts, in Prometheus' text format."""
        return Response(generate_latest(server.measures.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return [
        Route("/translate", translate, methods=["POST"]),
        Route("/detect", detect_language, methods=["POST"]),
        Route("/translate_file", translate_file, methods=["POST"]),
        Route("/download_file/{address}", download_file),
        Route("/languages", languages),
        Route("/frontend/settings", settings),
        Route("/health", health),
        Route("/metrics", metrics),
    ]


async def translate_content(request: Request, server: Server, asked: TranslateFile, end: str, content: bytes) -> bytes:
    """The translation of a file whose name has this end. Raises HTTPException and Mistake."""
    if end == PO:
        return await translate_catalogue(request, server, asked, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Mistake(f"The file is not UTF-8 at byte {error.start + 1}. Convert it.") from None
    if end in HTML:
        check_html([text])
        number, _ = server.choose_model(asked.source, asked.target, [text])
        (page,) = await server.translate_html(request, number, [text], server.models[number].entry.search)
        return encoded(page, text)
    last = "\n" if text.endswith("\n") else ""  # begins no line
    lines = text.removesuffix(last).split("\n")
    check_lines(lines, "line")
    number, _ = server.choose_model(asked.source, asked.target, lines)
    results = await server.translate(request, number, lines, server.models[number].entry.search)
    return ("\n".join(map(best_text, results)) + last).encode()


async def translate_catalogue(request: Request, server: Server, asked: TranslateFile, content: bytes) -> bytes:
    """The translation of a .po file. Raises HTTPException and Mistake."""
    if (count := content.count(b"\n") + content.count(rb"\n")) > MAX_CATALOGUE:
        raise Mistake(f"The file has {count:,} lines; the server takes {MAX_CATALOGUE:,}: send it in parts")
    target = server.find_code(asked.target)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.po"
        path.write_bytes(content)
        try:
            document = await server.read_catalogue(partial(read_catalogue_file, path, asked.source, target))
        except Mistake as error:
            raise Mistake(str(error).replace(str(path), "The file")) from None
        number, _ = server.choose_model(asked.source, target, document.lines)
        await server.fill(request, number, [document], server.models[number].entry.search, "line")
        await server.run(partial(document.write, path))
        return path.read_bytes()


def page_routes(server: Server) -> list[Route]:
    """The page, and what it asks for."""

    def model_of(number: int) -> Model:
        if number >= len(server.models):
            raise Mistake(f"model={number}: there are {len(server.models)}, counted from 0")
        return server.models[number]

    async def translations(request: Request) -> JSONResponse:
        asked = await read(request, PageText, server.check_key)
        model = model_of(asked.model)
        check_line("the text", asked.text)
        search = replace(model.entry.search, beam_size=asked.beam_size or model.entry.search.beam_size)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        (sentences,) = await server.translate(request, asked.model, [asked.text], search, remarks=True)
        seconds = loop.time() - begin
        return JSONResponse({**model.answer(sentences), "seconds": seconds})

    async def details(request: Request) -> JSONResponse:
        asked = await read(request, PagePair, server.check_key)
        check_line("the text", asked.text)
        work = partial(model_of(asked.model).details, asked.text, asked.target)
        return JSONResponse(await run_while_connected(request, server.run(work)))

    return [
        Route("/", page),
        Route("/models", JSONResponse([model.description() for model in server.models]), methods=["GET"]),
        Route("/translations", translations, methods=["POST"]),
        Route("/details", details, methods=["POST"]),
    ]


async def page(request: Request) -> HTMLResponse:
    """The page, which may run its own script and style, and ask its own server, and nothing else."""
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
    return HTMLResponse(
        TEMPLATES.get_template("translate.html.jinja").render(
            nonce=nonce, most_mapped=MOST_MAPPED, most_characters=MAX_CHARACTERS
        ),
        headers=headers,
    )
