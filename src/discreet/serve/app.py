"""``discreet serve``: recommendations over HTTP, from histories that are not stored.

Histories come in bodies alone, so that they are in no address, log or metric. A history becomes a
vector, the vector a list, and nothing is kept of either. `create_app` makes the application,
`server` runs it.

A new route goes into `add_recommendation_routes` if it reads a history, else into
`add_information_routes`. A body has a model in `schemas` and an entry in `BODIES`. Limits, token
and metrics apply to every route (`middleware`).

The event loop answers only what takes about a millisecond. Long questions are read and answered by
a thread of their own, one after the other, and batches in slices that take turns, so that no
request makes others wait for all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import html
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.routing import Route

from discreet.data.safe_io import content_policy
from discreet.errors import ConfigError, DiscreetError
from discreet.kernels import thread_count
from discreet.models.parameters import in_range
from discreet.serve.batching import Batcher
from discreet.serve.metrics import Metrics, SharedCounters
from discreet.serve.middleware import FAILED, Middleware, TooLarge
from discreet.serve.model_registry import ModelRegistry, ServedModel
from discreet.serve.schemas import (
    LARGEST_BATCH_ITEMS,
    LARGEST_N,
    LONGEST_NAME,
    BatchRequest,
    BatchResponse,
    ErrorResponse,
    RatedItem,
    RecommendRequest,
    RecommendResponse,
)
from discreet.version import __version__

# numbers in the factors up to which a question is answered without another thread
AT_ONCE = 4_000_000
LONG_BODY = 1 << 14  # bytes; a body of this size takes about a millisecond to read
LONG_LIST = 100  # items; a list of this length takes about half a millisecond to write
SLICE_QUESTIONS = 16  # at 20,000 items and rank 64, seven milliseconds
SLICE_ITEMS = 1_000  # about 100 kB of answers
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse}
    for status in (400, 401, 403, 404, 405, 413, 415, 421, 422, 503)
}
# read by `_parse_body` and not by FastAPI, so the OpenAPI schema gets them from here
BODIES: tuple[type[BaseModel], ...] = (RecommendRequest, BatchRequest)


@dataclass(frozen=True)
class Settings:
    """Limits and options of a service.

    Parameters
    ----------
    token : str, optional
        Needed in every request but /health, if given.
    origins : tuple of str
        Web sites whose pages may ask (CORS).
    largest_body : int
        Bytes.
    most_at_once : int
        Requests under way; more are answered with 503.
    hosts : tuple of str
        Names that requests may go to, in addition to those of this machine (see `Middleware`).
    """

    token: str | None = None
    origins: tuple[str, ...] = ()
    largest_body: int = 1 << 20
    most_at_once: int = 512
    hosts: tuple[str, ...] = ()


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message


def create_app(
    shelf: ModelRegistry, settings: Settings | None = None, counters: Metrics | None = None
) -> Middleware:
    """Create the application: routes behind the middleware.

    Parameters
    ----------
    shelf : ModelRegistry
        The models that answer.
    settings : Settings, optional
    counters : Metrics, optional
        Those of one worker, where there are several.
    """
    settings = settings or Settings()
    counters = counters or Metrics()
    workers = ThreadPoolExecutor(thread_count(), "discreet")
    long_work = ThreadPoolExecutor(1, "discreet-long")  # one thread: slices of batches take turns

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(shelf.watch())]
        if isinstance(counters, SharedCounters):
            tasks.append(asyncio.create_task(counters.save_regularly(shelf)))
        yield
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        workers.shutdown(cancel_futures=True)
        long_work.shutdown(cancel_futures=True)

    app = FastAPI(
        title="discreet",
        version=__version__,
        summary=(
            "Recommendations from models trained with differential privacy. Histories are read and"
            " forgotten."
        ),
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        responses=_REFUSALS,
    )
    _add_errors(app)
    add_recommendation_routes(app, shelf, workers, long_work)
    add_information_routes(app, shelf, counters)
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]
    inner: Any = app
    if settings.origins:
        inner = CORSMiddleware(
            app,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return Middleware(
        inner,
        counters,
        {route.path_format for route in app.routes if isinstance(route, Route)},
        largest_body=settings.largest_body,
        most_at_once=settings.most_at_once,
        token=settings.token,
        origins=settings.origins,
        hosts=settings.hosts,
    )


# ------------------------------------------------------------------ recommendations


def add_recommendation_routes(
    app: FastAPI, shelf: ModelRegistry, workers: ThreadPoolExecutor, long_work: ThreadPoolExecutor
) -> None:
    """Add the routes that read a history or rank items."""
    together = Batcher(workers)

    async def run(work: Callable[[], Any], *, long: bool = False, large: bool = False) -> Any:
        """Run short work here, long work in its own thread, and work on a large catalog in one
        of several.
        """
        if not long and not large:
            return work()
        return await asyncio.get_running_loop().run_in_executor(
            long_work if long else workers, work
        )

    @app.post(
        "/v1/recommend",
        response_model=RecommendResponse,
        openapi_extra=_body(RecommendRequest),
        tags=["recommend"],
    )
    async def recommend(request: Request) -> Response:
        """Recommend items for one history."""
        body = await request.body()
        long = len(body) > LONG_BODY
        served, asked = await run(functools.partial(_read_question, shelf, body), long=long)
        if plain := _without_wishes(served, asked):
            best, scores = await together.best(served, plain)
            return _json(
                {
                    "model": served.name,
                    "recommendations": _list_items(served, best, scores),
                    "ignored": asked[-1],
                }
            )
        long = long or asked[2] > LONG_LIST
        made: Response = await run(
            lambda: _json(answer(served, *asked)), long=long, large=_is_large(served)
        )
        return made

    @app.post(
        "/v1/recommend/batch",
        response_model=BatchResponse,
        openapi_extra=_body(BatchRequest),
        tags=["recommend"],
    )
    async def batch(request: Request) -> Response:
        """Recommend items for each of several histories."""
        body = await request.body()
        slices = await run(functools.partial(_read_batch, shelf, body), long=True)
        first = await run(
            functools.partial(_answer_slice, slices[0]), long=True
        )  # before the status is sent, as it may fail

        async def stream() -> AsyncIterator[bytes]:
            yield b'{"answers":[' + first
            for part in slices[1:]:
                yield b"," + await run(functools.partial(_answer_slice, part), long=True)
            yield b"]}"

        if request.scope.get("http_version") == "1.0":  # which has no way to send parts
            return Response(
                b"".join([part async for part in stream()]), media_type="application/json"
            )
        return StreamingResponse(stream(), media_type="application/json")

    @app.get("/v1/similar/{item:path}", response_model=RecommendResponse, tags=["items"])
    async def similar(
        item: Annotated[str, Path(max_length=LONGEST_NAME)],
        n: Annotated[int, Query(ge=1, le=LARGEST_N)] = 10,
        model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    ) -> Response:
        """List the items most similar to one, which is named by id or title."""
        served = _find_model(shelf, model)
        at = served.position(item)
        if at < 0:
            raise Refused(404, "unknown item", _unknown([item], at))
        try:
            work = functools.partial(served.scorer.similar, at, n)
            best, scores = await run(work, long=n > LONG_LIST, large=_is_large(served))
        except ConfigError as error:
            raise Refused(404, "nothing to compare", str(error)) from None
        return _json(
            {
                "model": served.name,
                "recommendations": _list_items(served, best, scores),
                "ignored": 0,
            }
        )


def _read_question(shelf: ModelRegistry, body: bytes) -> tuple[ServedModel, tuple[Any, ...]]:
    """Parse a question: the model that is asked, and the question in positions."""
    question = _parse_body(body, RecommendRequest)
    served = _find_model(shelf, question.model)
    return served, understood(served, question)


def _read_batch(
    shelf: ModelRegistry, body: bytes
) -> list[list[tuple[ServedModel, tuple[Any, ...]]]]:
    """Parse a batch into slices of a bounded number of questions and items."""
    questions = _parse_body(body, BatchRequest).requests
    if sum(question.n for question in questions) > LARGEST_BATCH_ITEMS:
        sentence = (
            f"the batch asks for more than {LARGEST_BATCH_ITEMS:,} items in all: lower n, or split"
            " the batch"
        )
        raise Refused(422, "too many items", sentence)
    slices: list[list[tuple[ServedModel, tuple[Any, ...]]]] = []
    items = 0
    for at, question in enumerate(questions):
        try:
            served = _find_model(shelf, question.model)
            asked = understood(served, question)
        except Refused as refusal:
            text = f"request {at} (counting from 0): {refusal.message}"
            raise Refused(refusal.status, refusal.code, text) from None
        items += question.n
        if not slices or len(slices[-1]) == SLICE_QUESTIONS or items > SLICE_ITEMS:
            slices.append([])
            items = question.n
        slices[-1].append((served, asked))
    return slices


def _answer_slice(asked: list[tuple[ServedModel, tuple[Any, ...]]]) -> bytes:
    """Answer some questions of a batch, as JSON objects with commas between them."""
    return b",".join(_dump(answer(served, *own)) for served, own in asked)


def understood(served: ServedModel, question: RecommendRequest) -> tuple[Any, ...]:
    """The question in positions: history, ratings, n, what to leave out, what to choose among,
    how many unknown.
    """
    given = question.history
    pairs: list[tuple[int | str, float | None]] = []
    if isinstance(given, dict):
        pairs = list(given.items())
    else:
        pairs = [
            (entry.item, entry.rating) if isinstance(entry, RatedItem) else (entry, None)
            for entry in given
        ]
    places = {item: served.position(item) for item, _ in pairs}
    others = {item: served.position(item) for item in (*question.exclude, *(question.only or ()))}
    strange = [item for item, at in (places | others).items() if at < 0]
    if strange and question.unknown == "error":
        raise Refused(422, "unknown item", _unknown(strange, (places | others)[strange[0]]))
    liked = served.scorer.default_rating
    ratings = {
        places[item]: liked if rating is None else rating
        for item, rating in pairs
        if places[item] >= 0
    }
    order = sorted(ratings)
    values = np.array([ratings[at] for at in order], np.float32)
    if not in_range(values, served.scorer.history_range):
        low, high = served.scorer.history_range or (0.0, 0.0)
        raise Refused(
            422, "invalid", f"a rating in the history is outside the range {low:g} to {high:g}"
        )
    exclude = [at for item in question.exclude if (at := others[item]) >= 0]
    only = (
        None
        if question.only is None
        else [at for item in question.only if (at := others[item]) >= 0]
    )
    options = {"exclude_seen": question.exclude_seen, "exclude": exclude or None, "only": only}
    return np.array(order, np.int32), values, question.n, options, len(strange)


def answer(
    served: ServedModel, at: Any, values: Any, n: int, options: dict[str, Any], ignored: int
) -> dict[str, Any]:
    """The answer to one question."""
    best, scores = served.scorer.best(at, values, n, **options)
    return {
        "model": served.name,
        "recommendations": _list_items(served, best, scores),
        "ignored": ignored,
    }


def _without_wishes(served: ServedModel, asked: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A question that can be answered together with others: of a large catalog, and about all
    of its items.
    """
    at, values, n, options, _ = asked
    if not _is_large(served) or options["exclude"] is not None or options["only"] is not None:
        return None
    return at, values, n, options["exclude_seen"]


def _is_large(served: ServedModel) -> bool:
    """Check whether a question about this catalog takes longer than the event loop should wait."""
    return bool(served.scorer.factors.size > AT_ONCE)


def _list_items(served: ServedModel, best: Any, scores: Any) -> list[dict[str, Any]]:
    scorer = served.scorer
    return [
        {"item_id": _plain(scorer.name(at)), "title": scorer.title(at), "score": score}
        for at, score in zip(best.tolist(), scores.tolist(), strict=True)
    ]


def _plain(item: Any) -> Any:
    return item if isinstance(item, int | str) else str(item)


def _unknown(items: list[Any], place: int) -> str:
    if place == -2:
        return f"several items are called {items[0]!r}: name it by its id"
    others = f" and {len(items) - 1:,} more" if len(items) > 1 else ""
    return (
        f'the model does not know the item {items[0]!r}{others}: see /v1/items, or say "unknown":'
        ' "skip"'
    )


def _find_model(shelf: ModelRegistry, name: str | None) -> ServedModel:
    found = shelf.get(name)
    if found is None:
        raise Refused(
            404,
            "unknown model",
            f"unknown model: use one of {', '.join(shelf.names)}",
        )
    return found


def _parse_body(body: bytes, kind: type[Any]) -> Any:
    """The body as what it should be. Read here and not by FastAPI, whose parser fails on deeply
    nested bodies.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise Refused(
            422, "invalid", _sentence(error.errors(include_input=False, include_url=False))
        ) from None


def _sentence(errors: Any) -> str:
    """The first problem in words, without what was sent."""
    first = errors[0]
    where = ".".join(
        str(part) for part in first["loc"] if isinstance(part, int) or str(part).isidentifier()
    )
    return f"{where}: {first['msg']}" if where else str(first["msg"])


# ------------------------------------------------------------------ information


def add_information_routes(app: FastAPI, shelf: ModelRegistry, counters: Metrics) -> None:
    """Add the routes that describe items, models and the service."""

    @app.get("/v1/items", tags=["items"])
    async def items(
        query: Annotated[str, Query(max_length=200)] = "",
        n: Annotated[int, Query(ge=1, le=100)] = 20,
        model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    ) -> Response:
        """Search items whose title or id contains all words of the query."""
        served = _find_model(shelf, model)
        scorer = served.scorer
        found = [
            {"item_id": _plain(scorer.name(at)), "title": scorer.title(at)}
            for at in served.search(query, n)
        ]
        return _json({"model": served.name, "items": found})

    @app.get("/v1/privacy", tags=["privacy"])
    async def privacy(
        model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    ) -> Response:
        """What is promised to the people whose ratings the model learned from, and the ledger
        behind it.
        """
        served = _find_model(shelf, model)
        about = {"model": served.name, "class": served.opened.name}
        promise = {"statement": served.opened.statement, "ledger": served.opened.ledger}
        return _json(
            about
            | promise
            | {"requests": "histories are read from request bodies and are not stored"}
        )

    @app.get("/health", tags=["service"])
    async def health() -> Response:
        """Report that the service is up, and its models."""
        models = {
            name: {"items": len(served.scorer)}
            for name in shelf.names
            if (served := shelf.get(name))
        }
        return _json({"status": "ok", "version": __version__, "models": models})

    @app.get("/metrics", tags=["service"], response_class=Response)
    async def metrics() -> Response:
        """Return the service's metrics for Prometheus."""
        return Response(counters.text(shelf), media_type="text/plain; version=0.0.4")

    @app.get("/", tags=["page"], response_class=Response)
    async def page(model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None) -> Response:
        """Return the web page that recommends in the browser, with network access blocked."""
        try:
            whole = await asyncio.to_thread(lambda: _find_model(shelf, model).page)
        except ConfigError as error:
            raise Refused(404, "no page", str(error)) from None
        headers = {
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
        }
        return Response(whole, media_type="text/html; charset=utf-8", headers=headers)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        policy = {"content-security-policy": content_policy(_DOCS_STYLE)}
        return Response(_docs(app.openapi()), media_type="text/html; charset=utf-8", headers=policy)


_DOCS_STYLE = (
    "body{font:16px/1.5 system-ui;max-width:46rem;margin:2rem auto;padding:0 1rem}"
    "dd{margin:0 0 1rem}pre{white-space:pre-wrap}"
)


def _docs(schema: dict[str, Any]) -> str:
    """The routes in plain HTML, which loads nothing from anywhere."""
    rows = []
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            what = html.escape(str(about.get("description", about.get("summary", ""))))
            rows.append(
                f"<dt><code>{method.upper()} {html.escape(path)}</code></dt><dd>{what}</dd>"
            )
    example = html.escape(
        "curl -s localhost:8000/v1/recommend -H 'content-type: application/json' -d '{\"history\":"
        ' [], "n": 3}\''
    )
    return (
        "<!doctype html><html lang=en><meta"
        f" charset=utf-8><title>discreet</title><style>{_DOCS_STYLE}</style>"
        f"<h1>discreet {html.escape(__version__)}</h1><p>The schema is at <a"
        " href=/openapi.json>/openapi.json</a>.</p>"
        f"<pre>{example}</pre><dl>{''.join(rows)}</dl></html>"
    )


# ------------------------------------------------------------------ errors and the schema


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def handle_refusal(request: Request, error: Refused) -> Response:
        return _json({"error": {"code": error.code, "message": error.message}}, error.status)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _json({"error": {"code": "invalid", "message": _sentence(error.errors())}}, 422)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        text = {
            404: "unknown path: see /docs",
            405: "this path does not support the method: see /docs",
        }
        message = text.get(error.status_code, str(error.detail))
        return _json(
            {"error": {"code": "refused", "message": message}}, error.status_code, error.headers
        )

    @app.exception_handler(TooLarge)
    async def too_large(request: Request, error: TooLarge) -> Response:
        return _json(
            {"error": {"code": "too large", "message": str(error)}}, 413, {"connection": "close"}
        )

    @app.exception_handler(Exception)
    async def handle_failure(request: Request, error: Exception) -> Response:
        return _json({"error": {"code": "failed", "message": FAILED}}, 500)

    @app.exception_handler(DiscreetError)
    async def ours(request: Request, error: DiscreetError) -> Response:
        return _json({"error": {"code": "invalid", "message": str(error)}}, 422)


def _json(value: Any, status: int = 200, headers: Any = None) -> Response:
    return Response(_dump(value), status, media_type="application/json", headers=headers)


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _schema(app: FastAPI) -> dict[str, Any]:
    """FastAPI's schema, with the bodies that are parsed here."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        bodies = models_json_schema(
            [(kind, "validation") for kind in BODIES],
            ref_template="#/components/schemas/{model}",
        )[1]["$defs"]
        made.setdefault("components", {}).setdefault("schemas", {}).update(bodies)
        app.openapi_schema = made
    return app.openapi_schema
