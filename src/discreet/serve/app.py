"""``discreet serve``: recommendations over HTTP, from histories that are not stored.

Histories are accepted in request bodies only, so that they appear in no URL, log or metric. A
history becomes a vector, the vector a list, and neither is kept. `create_app` makes the
application, `server` runs it.

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
import difflib
import functools
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.routing import Route

from discreet.errors import ConfigError, DataError, DiscreetError
from discreet.kernels import thread_count
from discreet.models.diversity import NO_EFFECT, NOTHING_TO_EXPLAIN
from discreet.models.histories import History, parse_history
from discreet.serve.batching import Batcher
from discreet.serve.docs_page import docs_page
from discreet.serve.metrics import Metrics, SharedCounters
from discreet.serve.middleware import FAILED, Middleware, TooLarge
from discreet.serve.model_registry import ModelRegistry, ServedModel
from discreet.serve.schemas import (
    LARGEST_BATCH_ITEMS,
    LARGEST_N,
    LONGEST_EXPLAINED,
    LONGEST_NAME,
    BatchRequest,
    BatchResponse,
    ErrorResponse,
    ExplainRequest,
    ExplainResponse,
    HistoryRequest,
    RatedItem,
    RecommendRequest,
    RecommendResponse,
)
from discreet.version import __version__

# numbers in the factors up to which a request is answered on the event loop: a thread costs more
AT_ONCE = 4_000_000
LONG_BODY = 1 << 14  # bytes; a body of this size takes about a millisecond to read
LONG_LIST = 100  # items; a list of this length takes about half a millisecond to write
SLICE_QUESTIONS = 16  # at 20,000 items and rank 64, seven milliseconds
LONGEST_SHOWN = 60  # characters of a wrong name in an error message
SLICE_ITEMS = 1_000  # about 100 kB of answers
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse}
    for status in (400, 401, 403, 404, 405, 413, 415, 421, 422, 503)
}
# read by `_parse_body` and not by FastAPI, so the OpenAPI schema gets them from here
BODIES: tuple[type[BaseModel], ...] = (RecommendRequest, BatchRequest, ExplainRequest)


@dataclass(frozen=True)
class Settings:
    """Limits and options of a service.

    Parameters
    ----------
    token : str, optional
        Needed in every request but /health, if given.
    origins : tuple of str
        Web sites whose pages may ask (CORS).
    max_body : int
        Bytes.
    max_concurrent : int
        Requests under way; more are answered with 503.
    hosts : tuple of str
        Names that requests may go to, in addition to those of this machine (see `Middleware`).
    heading, noun : str, optional
        Of the web page (see `web_page`).
    account : (store, name), optional
        Budget account whose balance /v1/privacy shows.
    """

    token: str | None = None
    origins: tuple[str, ...] = ()
    max_body: int = 1 << 20
    max_concurrent: int = 512
    hosts: tuple[str, ...] = ()
    heading: str | None = None
    noun: str | None = None
    account: tuple[str, str] | None = None


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
            "Recommendations from models trained with differential privacy. Histories are not"
            " stored."
        ),
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from other hosts
        redoc_url=None,
        responses=_REFUSALS,
        dependencies=[Depends(_check_query)],
    )
    _add_errors(app)
    add_recommendation_routes(app, shelf, workers, long_work)
    add_information_routes(app, shelf, counters, settings)
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
        max_body=settings.max_body,
        max_concurrent=settings.max_concurrent,
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
    here = Batcher(None)

    async def run(work: Callable[[], Any], *, long: bool = False, large: bool = False) -> Any:
        """Run short work here, long work in its own thread, and large catalogs in the pool."""
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
        large = _is_large(served)
        long = long or asked[2] > LONG_LIST
        plain = None if long and not large else _without_wishes(asked)
        if plain is not None:
            best, scores = await (together if large else here).best(served, plain)
            return _json(
                {
                    "model": served.name,
                    "recommendations": _list_items(served, best, scores),
                    "ignored": asked[-1],
                }
            )
        made: Response = await run(lambda: _json(answer(served, *asked)), long=long, large=large)
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
        )  # before the status is sent: after that an error could not be reported

        async def stream() -> AsyncIterator[bytes]:
            yield b'{"answers":[' + first
            for part in slices[1:]:
                yield b"," + await run(functools.partial(_answer_slice, part), long=True)
            yield b"]}"

        if request.scope.get("http_version") == "1.0":  # it has no chunked transfer encoding
            return Response(
                b"".join([part async for part in stream()]), media_type="application/json"
            )
        return StreamingResponse(stream(), media_type="application/json")

    @app.post(
        "/v1/explain",
        response_model=ExplainResponse,
        openapi_extra=_body(ExplainRequest),
        tags=["recommend"],
    )
    async def explain(request: Request) -> Response:
        """Explain a score: how much each item of the history raised or lowered it."""
        body = await request.body()
        return _json(await run(functools.partial(_explain, shelf, body), long=True))

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
            raise Refused(404, "unknown item", _unknown(served, [item], skip=False))
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
    """Parse a request into its model and the positions of its items."""
    question = _parse_body(body, RecommendRequest)
    served = _find_model(shelf, question.model)
    return served, parse_request(served, question)


def _read_batch(
    shelf: ModelRegistry, body: bytes
) -> list[list[tuple[ServedModel, tuple[Any, ...]]]]:
    """Parse a batch into slices with a bounded number of requests and items."""
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
            asked = parse_request(served, question)
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
    """Answer some requests of a batch, as JSON objects separated by commas."""
    return b",".join(_dump(answer(served, *own)) for served, own in asked)


def parse_request(served: ServedModel, question: RecommendRequest) -> tuple[Any, ...]:
    """Return the request in positions: history, ratings, n, options, number of unknown items."""
    at, values, strange = _parse_items(served, question)
    others = {item: served.position(item) for item in (*question.exclude, *(question.only or ()))}
    strange = list(dict.fromkeys([*strange, *(i for i, place in others.items() if place < 0)]))
    _check_known(served, question, strange)
    exclude, only = (
        None if items is None else [others[item] for item in items if others[item] >= 0]
        for items in (question.exclude, question.only)
    )
    options = {
        "exclude_seen": question.exclude_seen,
        "exclude": exclude or None,
        "only": only,
        "diversity": question.diversity,
    }
    if question.diversity:
        try:
            served.scorer.boost(question.diversity)
        except ConfigError as error:
            raise Refused(422, "invalid", str(error)) from None
    return at, values, question.n, options, len(strange)


def _parse_items(served: ServedModel, question: HistoryRequest) -> History:
    given: Any = question.history
    if not isinstance(given, dict):
        liked = served.scorer.default_rating
        pairs = [(e.item, e.rating) if isinstance(e, RatedItem) else (e, None) for e in given]
        given = {item: liked if rating is None else rating for item, rating in pairs}
    try:
        return parse_history(given, served.scorer, "skip", served.position)
    except DataError as error:
        raise Refused(422, "invalid", str(error)) from None


def _check_known(served: ServedModel, question: HistoryRequest, strange: list[Any]) -> None:
    if strange and question.unknown == "error":
        raise Refused(422, "unknown item", _unknown(served, strange))


def _explain(shelf: ModelRegistry, body: bytes) -> dict[str, Any]:
    """Answer a request of /v1/explain."""
    question = _parse_body(body, ExplainRequest)
    served = _find_model(shelf, question.model)
    at, values, strange = _parse_items(served, question)
    _check_known(served, question, strange)
    if len(at) > LONGEST_EXPLAINED:
        sentence = f"histories of up to {LONGEST_EXPLAINED:,} items can be explained: shorten it"
        raise Refused(422, "too many items", sentence)
    place = served.position(question.item)
    if place < 0:
        raise Refused(422, "unknown item", _unknown(served, [question.item], skip=False))
    items, contributions = served.scorer.explain(at, values, place)
    listed = [
        _describe_item(served, at) | {"contribution": much}
        for at, much in zip(items.tolist(), contributions.tolist(), strict=True)
    ]
    about = {"model": served.name, **_describe_item(served, place)}
    found = about | {"contributions": listed, "ignored": len(strange)}
    return found | ({"note": NOTHING_TO_EXPLAIN} if served.scorer.is_popularity else {})


def answer(
    served: ServedModel, at: Any, values: Any, n: int, options: dict[str, Any], ignored: int
) -> dict[str, Any]:
    """Return the response to one request."""
    best, scores = served.scorer.best(at, values, n, **options)
    found = {
        "model": served.name,
        "recommendations": _list_items(served, best, scores),
        "ignored": ignored,
    }
    no_effect = options.get("diversity") and served.scorer.is_popularity
    return found | ({"note": NO_EFFECT} if no_effect else {})


def _without_wishes(asked: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return a request that can be batched, for all items; or None."""
    at, values, n, options, _ = asked
    wishes = options["exclude"] is not None or options["only"] is not None or options["diversity"]
    if wishes:
        return None
    return at, values, n, options["exclude_seen"]


def _is_large(served: ServedModel) -> bool:
    """Return whether ranking this catalog would block the event loop for too long."""
    return bool(served.scorer.factors.size > AT_ONCE)


def _list_items(served: ServedModel, best: Any, scores: Any) -> list[dict[str, Any]]:
    return [
        _describe_item(served, at) | {"score": score}
        for at, score in zip(best.tolist(), scores.tolist(), strict=True)
    ]


def _describe_item(served: ServedModel, at: int) -> dict[str, Any]:
    item = served.scorer.name(at)
    named = item if isinstance(item, int | str) else str(item)
    return {"item_id": named, "title": served.scorer.title(at)}


def _unknown(served: ServedModel, items: list[Any], skip: bool = True) -> str:
    """Return the message about unknown items, with names that resemble the first."""
    first = items[0]
    if served.position(first) == -2:
        return f"several items are called {first!r}: name it by its id"
    others = f" and {len(items) - 1:,} more" if len(items) > 1 else ""
    near = served.near(str(first))
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see /v1/items"
    skipping = ' To leave out unknown items, send "unknown": "skip".' if skip else ""
    return f"the model does not know the item {first!r}{others}: {hint}{skipping}"


def _find_model(shelf: ModelRegistry, name: str | None) -> ServedModel:
    found = shelf.get(name)
    if found is None:
        raise Refused(
            404,
            "unknown model",
            f"unknown model: use one of {', '.join(shelf.names)}",
        )
    return found


async def _check_query(request: Request) -> None:
    """Refuse query parameters that the route does not have, and those given twice."""
    known = [entry.alias for entry in request.scope["route"].dependant.query_params]
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"use {' or '.join(known)}"
            hint = hint if known else "this path has none"
            raise Refused(
                422, "invalid", f"unknown query parameter {name[:LONGEST_SHOWN]!r}: {hint}"
            )
        if given.count(name) > 1:
            raise Refused(
                422, "invalid", f"{name} was given {given.count(name)} times: give it once"
            )


def _parse_body(body: bytes, kind: type[Any]) -> Any:
    """Parse the body. FastAPI's own parser fails on deeply nested bodies."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise Refused(
            422, "invalid", _sentence(error.errors(include_input=False, include_url=False), kind)
        ) from None


def _sentence(errors: Any, kind: type[BaseModel] | None = None) -> str:
    """Return the most helpful of the problems as a sentence, without what was sent."""
    first = errors[0]
    if first["type"] == "dict_type" and "history" in first["loc"]:
        # of a history that is no object, each other form that it may have is a problem as well
        forms = [error for error in errors if "history" in error["loc"]]
        first = max(forms, key=lambda error: len(error["loc"]))
        if first["type"] in ("dict_type", "int_type", "int_from_float"):
            return (
                "history should be a list of items, each an id, a title or"
                ' {"item": …, "rating": …}, or an object of ratings by item'
            )
    # a misspelled field is missing as well, which is the lesser problem
    first = next((error for error in errors if error["type"] == "extra_forbidden"), first)
    parts = [part for part in first["loc"] if isinstance(part, int) or str(part).isidentifier()]
    parts = [part for part in parts if part not in ("query", "path", "RatedItem")]
    name = str(parts[-1]) if parts else ""
    if first["type"] == "extra_forbidden" and kind is not None:
        inner = RatedItem if "history" in parts[:-1] else RecommendRequest
        known = list((inner if len(parts) > 1 else kind).model_fields)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}"
        return f"unknown field {name[:LONGEST_SHOWN]!r}: {hint}"
    message = str(first["msg"])
    for pydantic, ours in (
        ("Input should", "should"),
        ("valid array", "list"),
        ("Field required", "is missing"),
        ("Invalid JSON", "is not JSON"),
    ):
        message = message.replace(pydantic, ours)
    return f"{'.'.join(map(str, parts)) or 'the body'} {message}"


# ------------------------------------------------------------------ information


def add_information_routes(
    app: FastAPI, shelf: ModelRegistry, counters: Metrics, settings: Settings
) -> None:
    """Add the routes that describe items, models and the service."""

    @app.get("/v1/items", tags=["items"])
    async def items(
        query: Annotated[str, Query(max_length=200)] = "",
        n: Annotated[int, Query(ge=1, le=100)] = 20,
        model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    ) -> Response:
        """Search items whose title or id contains all words of the query."""
        served = _find_model(shelf, model)
        found = [_describe_item(served, at) for at in served.search(query, n)]
        return _json({"model": served.name, "items": found})

    @app.get("/v1/privacy", tags=["privacy"])
    async def privacy(
        model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    ) -> Response:
        """Return the privacy statement, the ledger, and the balance of the budget account."""
        served = _find_model(shelf, model)
        found = {
            "model": served.name,
            "class": served.opened.name,
            "statement": served.opened.statement,
            "ledger": served.opened.ledger,
            "requests": "histories are read from request bodies and are not stored",
        }
        if settings.account is not None:
            found["account"] = await asyncio.to_thread(_read_balance, *settings.account, served)
        return _json(found)

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
            served = _find_model(shelf, model)
            whole = await asyncio.to_thread(served.page, settings.heading, settings.noun)
        except ConfigError as error:
            raise Refused(404, "no page", str(error)) from None
        headers = {
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
        }
        return Response(whole, media_type="text/html; charset=utf-8", headers=headers)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        title = None if settings.token else _find_model(shelf, None).scorer.title(0)
        page, policy = docs_page(
            app.openapi(), str(request.base_url), title, settings.token is not None
        )
        headers = {"content-security-policy": policy, "x-content-type-options": "nosniff"}
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)


def _read_balance(store: str, name: str, served: ServedModel) -> dict[str, Any]:
    """Return the balance of an account, and whether it was charged for a model."""
    from discreet.privacy.release.budget_store import BudgetStore
    from discreet.privacy.release.ledger import Ledger

    account = BudgetStore(store)[name]
    ledger = served.opened.ledger
    charged = ledger is not None and account.has_ledger(Ledger.from_dict(ledger))
    return account.balance.to_dict() | {"charged_for_this_model": charged}


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
        near = difflib.get_close_matches(request.url.path, list(app.openapi()["paths"]), n=1)
        allowed = (error.headers or {}).get("Allow", "")
        text = {
            404: f"unknown path: {f'did you mean {near[0]}?' if near else 'see /docs'}",
            405: f"this path does not support {request.method}: use {allowed or 'another method'}",
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
    """Return FastAPI's schema, with the bodies that are parsed here."""
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
