"""The service: what it answers, what it refuses, and what it never writes down."""

import asyncio
import json
import logging
import os

import httpx
import numpy as np
import pytest
from served_here import serve_here

import discreet
from discreet.errors import ConfigError
from discreet.models.diversity import NO_EFFECT, NOTHING_TO_EXPLAIN
from discreet.serve.app import Settings, create_app
from discreet.serve.model_registry import ModelRegistry, parse_folders
from support.served_models import ITEMS, fitted, histories, ratings

SECRET = "xq-unheard-of-7c1"
EXAMPLES = int(os.environ.get("DISCREET_EXAMPLES", "15"))  # requests made up for each route


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    for name, model in (("lists", "DPMF"), ("stars", "DPMF, ratings"), ("open", "Popularity")):
        fitted(model).save(place / name)
    return {name: place / name for name in ("lists", "stars", "open")}


@pytest.fixture(scope="module")
def shelf(folders):
    return ModelRegistry(folders)


def ask(app, method, path, *, base="http://test", **options):
    """One request, answered in this process. Bodies are said to be JSON, whatever they are."""
    if "content" in options:
        options["headers"] = {"content-type": "application/json"} | options.get("headers", {})

    async def send():
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await client.request(method, path, **options)

    return asyncio.run(send())


@pytest.fixture
def app(shelf):
    return create_app(shelf)


def test_diversity_is_that_of_the_model(app):
    asked = {"history": next(iter(histories(20))), "n": 7, "diversity": 0.6}
    answer = ask(app, "POST", "/v1/recommend", json=asked | {"model": "lists"}).json()
    ids, _ = fitted("DPMF").recommend(asked["history"], 7, diversity=0.6)
    assert [row["item_id"] for row in answer["recommendations"]] == ids.tolist()
    for wrong in ({"diversity": 1.5}, {"model": "stars"}):
        refused = ask(app, "POST", "/v1/recommend", json={"model": "lists"} | asked | wrong)
        assert refused.status_code == 422, refused.text
    assert "learned their popularity" in refused.text


def test_lists_are_those_of_the_model(app):
    for name, model in (("lists", "DPMF"), ("stars", "DPMF, ratings")):
        for history in histories(20):
            answer = ask(
                app, "POST", "/v1/recommend", json={"history": history, "n": 7, "model": name}
            ).json()
            ids, scores = fitted(model).recommend(history, 7)
            assert answer["model"] == name
            assert [row["item_id"] for row in answer["recommendations"]] == ids.tolist()
            assert (
                np.float32([row["score"] for row in answer["recommendations"]]).tobytes()
                == scores.tobytes()
            )


def test_items_go_by_id_or_title_with_a_rating_or_without(app):
    by_id = ask(
        app, "POST", "/v1/recommend", json={"history": {"i3": 5, "i4": 5}, "model": "stars"}
    ).json()
    others = (
        {"Film № 3 <b>": 5, "i4": 5},
        ["i3", "film  № 4 <B>"],
        [{"item": "i3", "rating": 5}, {"item": "i4"}],
    )
    for history in others:
        assert (
            ask(app, "POST", "/v1/recommend", json={"history": history, "model": "stars"}).json()
            == by_id
        )
    assert {"item_id", "title", "score"} == set(by_id["recommendations"][0])


def test_questions_about_a_large_catalog_are_answered_together(app, monkeypatch):
    """Many at once, of which some wait for others: each gets what it would get alone."""
    some = [
        {"history": history, "n": 3 + at % 5, "model": "stars"}
        for at, history in enumerate(histories(40))
    ]
    alone = [ask(app, "POST", "/v1/recommend", json=question).json() for question in some]
    monkeypatch.setattr("discreet.serve.app.AT_ONCE", 0)

    async def at_once():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await asyncio.gather(
                *(client.post("/v1/recommend", json=question) for question in some)
            )

    assert [answer.json() for answer in asyncio.run(at_once())] == alone


def test_exclude_only_and_seen(app):
    def listed(**more):
        answer = ask(
            app, "POST", "/v1/recommend", json={"history": ["i3"], "n": 200, **more}
        ).json()
        return [row["item_id"] for row in answer["recommendations"]]

    whole = listed()
    assert len(whole) == ITEMS - 1
    assert listed(exclude=["i9", "i10"]) == [item for item in whole if item not in ("i9", "i10")]
    assert listed(only=["i9", "i3", "i10"]) == [item for item in whole if item in ("i9", "i10")]
    assert "i3" in listed(exclude_seen=False)
    assert listed(only=[]) == []


def test_several_at_once_are_as_one_by_one(app):
    some = [{"history": history, "n": 4} for history in histories(5)] + [
        {"history": ["i1"], "model": "open"}
    ]
    together = ask(app, "POST", "/v1/recommend/batch", json={"requests": some}).json()["answers"]
    assert together == [
        ask(app, "POST", "/v1/recommend", json=question).json() for question in some
    ]


def test_unknown_items(app):
    refused = ask(app, "POST", "/v1/recommend", json={"history": ["i3", "who"]})
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "unknown item"
    skipped = ask(
        app, "POST", "/v1/recommend", json={"history": ["i3", "who"], "unknown": "skip"}
    ).json()
    assert skipped["ignored"] == 1
    assert (
        skipped["recommendations"]
        == ask(app, "POST", "/v1/recommend", json={"history": ["i3"]}).json()["recommendations"]
    )
    batch = ask(
        app,
        "POST",
        "/v1/recommend/batch",
        json={"requests": [{"history": []}, {"history": ["who"]}]},
    )
    assert "request 1" in batch.json()["error"]["message"]


def test_looks(app):
    assert ask(app, "GET", "/health").json()["models"]["lists"] == {"items": ITEMS}
    found = ask(app, "GET", "/v1/items", params={"query": "FILM 14", "n": 3}).json()["items"]
    assert [row["item_id"] for row in found] == ["i14", "i114", "i140"]
    alike = ask(app, "GET", "/v1/similar/i3", params={"n": 4}).json()["recommendations"]
    assert [row["item_id"] for row in alike] == fitted("DPMF").similar_items("i3", 4)[0].tolist()
    assert ask(app, "GET", "/v1/similar/i3", params={"model": "open"}).status_code == 404
    assert ask(app, "GET", "/v1/similar/nobody").status_code == 404
    privacy = ask(app, "GET", "/v1/privacy").json()
    assert privacy["statement"]["epsilon"] == pytest.approx(50)
    assert privacy["ledger"]["entries"]
    assert (
        ask(app, "GET", "/v1/privacy", params={"model": "open"}).json()["statement"]["status"]
        == "not private"
    )
    page = ask(app, "GET", "/")
    assert "connect-src 'none'" in page.text
    assert page.headers["discreet-version"] == discreet.__version__
    assert set(ask(app, "GET", "/openapi.json").json()["paths"]) == {
        "/",
        "/health",
        "/metrics",
        "/v1/explain",
        "/v1/items",
        "/v1/privacy",
        "/v1/recommend",
        "/v1/recommend/batch",
        "/v1/similar/{item}",
    }


def test_the_documentation_is_rendered_from_local_files(app, shelf):
    docs = ask(app, "GET", "/docs", base="http://localhost:9123")
    assert docs.status_code == 200
    policy = docs.headers["content-security-policy"]
    assert "connect-src 'self'" in policy
    assert "style-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert "//" not in docs.text.replace("http://localhost:9123", "").replace("// ", "")
    for path, methods in ask(app, "GET", "/openapi.json").json()["paths"].items():
        for method in methods:
            assert f'data-method="{method.upper()}" data-path="{path}"' in docs.text
    assert "curl -s &#39;http://localhost:9123/v1/recommend&#39;" in docs.text
    assert "Film № 0" in docs.text
    # without a token it is shown as well, but then nothing of a model is in it
    closed = ask(create_app(shelf, Settings(token="open sesame")), "GET", "/docs")
    assert closed.status_code == 200
    assert "Film № 0" not in closed.text
    assert "Bearer $DISCREET_TOKEN" in closed.text


def test_the_documentation_in_a_browser(browser, shelf, monkeypatch):
    """Every form is used as it is, and axe-core finds nothing to complain about."""
    with serve_here(create_app(shelf), monkeypatch) as here, browser.page(1000) as page:
        page.open(f"http://127.0.0.1:{here.port}/docs")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        page.evaluate("document.querySelectorAll('[name=item]').forEach(one => one.value = 'i3')")
        page.evaluate(
            "Promise.all([...document.forms].map(async form => { form.requestSubmit();"
            " while (!form.querySelector('output pre'))"
            " await new Promise(done => setTimeout(done, 20)); }))"
        )
        answers = page.evaluate(
            "[...document.forms].map(form => [form.dataset.path,"
            " form.querySelector('output').textContent.slice(0, 3)])"
        )
        assert len(answers) == 9
        assert {status for _, status in answers} == {"200"}, answers
        assert page.accessibility_problems() == []
        assert page.complaints() == []
    with browser.page(390, phone=True, scheme="dark") as page:
        monkeypatch.undo()
        with serve_here(create_app(shelf), monkeypatch) as here:
            page.open(f"http://127.0.0.1:{here.port}/docs")
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert page.accessibility_problems() == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_lists_that_are_popularity_are_called_so(app):
    """As in Python and on the command line."""
    asked = {"history": next(iter(histories(20))), "n": 3, "diversity": 1.0}

    def notes(model):
        listed = ask(app, "POST", "/v1/recommend", json=asked | {"model": model}).json()
        many = {"requests": [asked | {"model": model}]}
        several = ask(app, "POST", "/v1/recommend/batch", json=many).json()["answers"][0]
        assert several == listed
        question = {"history": asked["history"], "item": "i7", "model": model}
        reasons = ask(app, "POST", "/v1/explain", json=question).json()
        plain = ask(app, "POST", "/v1/recommend", json=asked | {"diversity": 0.0, "model": model})
        assert "note" not in plain.json()
        return [found.get("note") for found in (listed, reasons)]

    assert notes("lists") == [None, None]
    assert notes("open") == [NO_EFFECT, NOTHING_TO_EXPLAIN]


def test_reasons_are_those_of_the_scorer(app, shelf):
    for name in ("lists", "stars", "open"):
        scorer = shelf.get(name).scorer
        for history in histories(5, seed=4):
            asked = {"history": history, "item": "Film № 7 <b>", "model": name}
            answer = ask(app, "POST", "/v1/explain", json=asked).json()
            items, contributions = scorer.explain(*scorer.history(history), 7)
            rows = answer["contributions"]
            assert answer["item_id"] == "i7"
            assert [row["item_id"] for row in rows] == [f"i{at}" for at in items]
            assert [row["contribution"] for row in rows] == contributions.tolist()


def test_what_cannot_be_explained_is_refused(app, monkeypatch):
    def refusal(**body):
        answer = ask(app, "POST", "/v1/explain", json=body)
        assert answer.status_code == 422
        return answer.json()["error"]["message"]

    assert "does not know the item 'film nr 7'" in refusal(history=["i3"], item="film nr 7")
    assert "does not know the item 'who'" in refusal(history=["who"], item="i7")
    assert "outside the range 1 to 5" in refusal(history={"i3": 77}, item="i7")
    assert "unknown field 'itm': did you mean 'item'?" in refusal(history=[], itm="i7")
    skipped = {"history": ["i3", "who"], "item": "i7", "unknown": "skip"}
    assert ask(app, "POST", "/v1/explain", json=skipped).json()["ignored"] == 1
    monkeypatch.setattr("discreet.serve.app.LONGEST_EXPLAINED", 2)
    assert "up to 2 items" in refusal(history=["i1", "i2", "i3"], item="i7")


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("GET", "/v1/items?querry=x", None, "unknown query parameter 'querry': did you mean"),
        ("GET", "/v1/items?other=x", None, "use query or n or model"),
        ("GET", "/health?other=x", None, "this path has none"),
        ("GET", "/v1/items?n=1&n=2", None, "n was given 2 times"),
        ("POST", "/v1/recommend?n=1", {"history": []}, "unknown query parameter 'n'"),
        ("GET", "/v1/item", None, "did you mean /v1/items?"),
        ("GET", "/v1/similar/fillm № 14", None, "did you mean 'Film № 14 <b>'"),
        ("POST", "/v1/recommend", {"histroy": []}, "unknown field 'histroy': did you mean"),
        ("POST", "/v1/recommend", {"history": [], "x": 1}, "use history, unknown, model, n"),
        (
            "POST",
            "/v1/recommend/batch",
            {"requests": [{"history": [], "exlude": []}]},
            "did you mean 'exclude'?",
        ),
        ("POST", "/v1/recommend", {"history": ["flim № 3 <b>"]}, "did you mean 'Film № 3 <b>'"),
        ("POST", "/v1/recommend", {"history": ["i3", "who", "me"]}, "'who' and 1 more"),
        ("POST", "/v1/recommend", {"history": "i3"}, "history should be a list of items, each"),
        ("POST", "/v1/recommend", {"history": [True]}, "history should be a list of items, each"),
        ("POST", "/v1/recommend", {"history": [1.5]}, "history should be a list of items, each"),
        ("POST", "/v1/recommend", {"history": {"i3": "5"}}, "history.i3 should be a valid number"),
        ("POST", "/v1/recommend", {"history": [{"rating": 5}]}, "history.0.item is missing"),
        (
            "POST",
            "/v1/recommend",
            {"history": [{"item": "i3", "ratng": 5}]},
            "unknown field 'ratng': did you mean 'rating'?",
        ),
        ("POST", "/v1/recommend", {"history": [], "exclude": "i3"}, "exclude should be a list"),
        ("POST", "/v1/recommend", {"n": 3}, "history is missing"),
        ("POST", "/v1/recommend", [], "the body should be an object"),
        ("GET", "/v1/items?n=0", None, "n should be greater than or equal to 1"),
    ],
)
def test_errors_name_what_was_meant(app, method, path, body, words):
    answer = ask(app, method, path, **({} if body is None else {"json": body}))
    assert answer.status_code in (404, 422)
    assert words in answer.json()["error"]["message"]


def test_a_body_that_is_not_json_is_called_so(app):
    answer = ask(app, "POST", "/v1/recommend", content=b"{")
    assert answer.json()["error"]["message"].startswith("the body is not JSON: EOF while parsing")


def test_the_balance_of_the_account_is_shown(folders, tmp_path):
    """A model that was charged to it, and one that was not."""
    store = discreet.BudgetStore(tmp_path / "budget.sqlite")
    account = store.open("customers", epsilon=4)
    model = discreet.DPMF(3, epsilon=1, goal="ranking", rating_range=(1, 5))
    model.fit(ratings(), account=account).save(tmp_path / "charged")
    shelf = ModelRegistry({"charged": tmp_path / "charged", "lists": folders["lists"]})
    app = create_app(shelf, Settings(account=(str(tmp_path / "budget.sqlite"), "customers")))
    found = ask(app, "GET", "/v1/privacy").json()["account"]
    assert found["charged_for_this_model"] is True
    assert found["epsilon"] == 4
    assert found["trainings"] == 1
    assert found["epsilon_spent"] == pytest.approx(account.balance.epsilon_spent)
    other = ask(app, "GET", "/v1/privacy?model=lists").json()["account"]
    assert other["charged_for_this_model"] is False
    assert "account" not in ask(create_app(shelf), "GET", "/v1/privacy").json()


def test_refusals_have_one_form(app):
    cases = {
        ("POST", "/v1/recommend", b"{"): 422,
        ("POST", "/v1/recommend", b"[" * 50_000): 422,
        ("POST", "/v1/recommend", b'{"history": {"i3": NaN}}'): 422,
        ("POST", "/v1/recommend", b'{"history": [], "n": 0}'): 422,
        ("POST", "/v1/recommend", b'{"history": [], "n": 1001}'): 422,
        ("POST", "/v1/recommend", b'{"history": [], "more": 1}'): 422,
        ("POST", "/v1/recommend", b'{"history": [true]}'): 422,
        ("POST", "/v1/recommend", b"\xff\xfe"): 422,
        ("POST", "/v1/recommend", b'{"history": [], "model": "nope"}'): 404,
        ("POST", "/v1/recommend/batch", b'{"requests": []}'): 422,
        ("POST", "/v1/recommend", b'{"history": [' + b"1," * 10_001 + b"1]}"): 422,
        ("POST", "/v1/recommend", b" " * (1 << 21)): 413,
        ("GET", "/v1/recommend", b""): 405,
        ("GET", "/v1/items?n=x", b""): 422,
        ("GET", "/nowhere", b""): 404,
    }
    for (method, path, body), status in cases.items():
        answer = ask(app, method, path, content=body)
        assert answer.status_code == status, (path, body[:40], answer.text)
        assert set(answer.json()["error"]) == {"code", "message"}
    message = ask(app, "GET", "/v1/recommend").json()["error"]["message"]
    assert message == "this path does not support GET: use POST"


def test_search_needs_no_accents(tmp_path):
    titles = {1: "Käsereibe", 2: "Amélie (2001)", 3: "Up"}
    seen = discreet.Ratings.from_arrays([1, 2], [1, 2], item_ids=[1, 2, 3]).with_items(titles)
    discreet.Popularity().fit(seen).save(tmp_path / "m")
    app = create_app(ModelRegistry({"m": tmp_path / "m"}), Settings())
    found = ask(app, "GET", "/v1/items?query=kase").json()["items"]
    assert [item["title"] for item in found] == ["Käsereibe"]
    sent = b'{"history": ["amelie"], "n": 1}'
    assert ask(app, "POST", "/v1/recommend", content=sent).status_code == 200


def test_bodies_that_do_not_say_their_length_are_limited_too(app):
    async def stream():
        for _ in range(40):
            yield b" " * (1 << 16)

    assert ask(app, "POST", "/v1/recommend", content=stream()).status_code == 413


def test_a_token_is_needed_where_there_is_one(shelf):
    app = create_app(shelf, Settings(token="open sesame"))
    assert ask(app, "GET", "/health").status_code == 200
    for path in ("/v1/items", "/metrics", "/", "/openapi.json"):
        assert ask(app, "GET", path).status_code == 401
        assert ask(app, "GET", path, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert (
            ask(app, "GET", path, headers={"authorization": "Bearer open sesame"}).status_code
            == 200
        )


def test_other_sites_ask_only_where_they_may(shelf):
    ours = {"origin": "https://ours.example", "access-control-request-method": "POST"}
    plain = ask(create_app(shelf), "OPTIONS", "/v1/recommend", headers=ours)
    assert "access-control-allow-origin" not in plain.headers
    app = create_app(shelf, Settings(origins=("https://ours.example",)))
    assert (
        ask(app, "OPTIONS", "/v1/recommend", headers=ours).headers["access-control-allow-origin"]
        == ours["origin"]
    )
    theirs = ours | {"origin": "https://theirs.example"}
    assert (
        "access-control-allow-origin"
        not in ask(app, "OPTIONS", "/v1/recommend", headers=theirs).headers
    )


LOCAL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST.:80"]
)
def test_on_this_machine_local_names_are_answered(app, host):
    assert ask(app, "GET", "/health", base=LOCAL, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[::1",
        "",
        "evil[::1]",
    ],
)
@pytest.mark.parametrize("path", ["/health", "/v1/privacy", "/"])
def test_on_this_machine_other_names_are_refused(app, host, path):
    """DNS rebinding: a web site has its name point to 127.0.0.1, and its pages ask."""
    answer = ask(app, "GET", path, base=LOCAL, headers={"host": host})
    assert answer.status_code == 421
    assert "--allow-host" in answer.json()["error"]["message"]


def test_names_that_are_allowed(shelf):
    def status(app, host, base=LOCAL):
        return ask(app, "GET", "/health", base=base, headers={"host": host}).status_code

    named = create_app(shelf, Settings(hosts=("ours.example",)))
    closed = create_app(shelf, Settings(hosts=("ours.example",), token="open sesame"))
    for app in (named, closed):
        for base in (LOCAL, "http://192.0.2.1"):
            assert status(app, "Ours.Example:443", base) == 200
            assert status(app, "localhost", base) == 200
            assert status(app, "theirs.example", base) == 421
    assert status(create_app(shelf, Settings(hosts=("*",))), "theirs.example") == 200
    assert status(create_app(shelf, Settings(token="open sesame")), "theirs.example") == 200
    assert status(create_app(shelf), "theirs.example", "http://192.0.2.1") == 200
    twice = [("host", "localhost"), ("host", "theirs.example"), ("host", "localhost")]
    assert ask(create_app(shelf), "GET", "/health", base=LOCAL, headers=twice).status_code == 421


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "", "text/plain; application/json"]
)
def test_bodies_must_be_json(app, kind):
    body = {"content": b'{"history": []}', "headers": {"content-type": kind}}
    for path in ("/v1/recommend", "/v1/recommend/batch"):
        answer = ask(app, "POST", path, **body)
        assert answer.status_code == 415
        assert "application/json" in answer.json()["error"]["message"]
    good = {"content-type": "Application/JSON; charset=utf-8"}
    assert (
        ask(app, "POST", "/v1/recommend", content=body["content"], headers=good).status_code == 200
    )


def test_pages_of_other_sites_are_refused_unless_allowed(shelf):
    def status(app, origin):
        headers = {"origin": origin, "host": "localhost:8000"}
        return ask(
            app, "POST", "/v1/recommend", base=LOCAL, headers=headers, json={"history": []}
        ).status_code

    plain = create_app(shelf)
    assert status(plain, "http://localhost:8000") == 200
    for origin in (
        "https://theirs.example",
        "null",
        "http://localhost:3000",
        "http://localhost",
        "file://localhost:8000",
    ):
        assert status(plain, origin) == 403
    ours = create_app(shelf, Settings(origins=("https://ours.example",)))
    assert status(ours, "https://ours.example") == 200
    assert status(ours, "https://theirs.example") == 403
    assert status(create_app(shelf, Settings(origins=("*",))), "https://theirs.example") == 200


def test_the_page_has_its_heading_and_noun(shelf):
    page = ask(create_app(shelf, Settings(heading="Tonight", noun="films")), "GET", "/").text
    assert "<h1>Tonight</h1>" in page
    assert f"Search {ITEMS} films" in page


def test_a_batch_is_limited_by_the_items_that_it_asks_for(app):
    def batch(n, count):
        return ask(
            app,
            "POST",
            "/v1/recommend/batch",
            json={"requests": [{"history": ["i3"], "n": n}] * count},
        )

    assert len(batch(10, 1000).json()["answers"]) == 1000
    refused = batch(1000, 11)
    assert refused.status_code == 422
    assert "10,000 items in all" in refused.json()["error"]["message"]


def test_answers_are_sent_in_parts(app):
    """A batch slice by slice, and the page in parts of one copy: what a client does not read is
    not held.
    """

    def parts(method, path, value=None):
        found = []

        async def send(message):
            found.append(message.get("body", b""))

        async def receive():
            if given:
                return given.pop()
            await asyncio.sleep(60)

        given = [{"type": "http.request", "body": json.dumps(value).encode()}]
        headers = [(b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": headers,
            "query_string": b"",
            "server": None,
        }
        asyncio.run(app(scope, receive, send))
        return found

    batch = parts("POST", "/v1/recommend/batch", {"requests": [{"history": [], "n": 50}] * 100})
    assert sum(len(part) > 0 for part in batch) >= 5
    assert len(json.loads(b"".join(batch))["answers"]) == 100
    page = parts("GET", "/")
    assert max(map(len, page)) <= 1 << 16
    assert b"".join(page).startswith(b"<!doctype html>")


def test_more_than_it_can_do_is_a_clean_503(shelf):
    app = create_app(shelf, Settings(max_concurrent=1))
    app.counters.under_way = 1
    busy = ask(app, "POST", "/v1/recommend", json={"history": []})
    assert busy.status_code == 503
    assert busy.headers["retry-after"] == "1"
    assert busy.json()["error"]["code"] == "busy"
    assert ask(app, "GET", "/health").status_code == 200


def test_large_answers_that_are_not_read_leave_room_for_short_ones(shelf):
    app = create_app(shelf, Settings(max_concurrent=4))
    app.counters.under_way = app._large = 2
    assert (
        ask(app, "POST", "/v1/recommend/batch", json={"requests": [{"history": []}]}).status_code
        == 503
    )
    assert ask(app, "GET", "/").status_code == 503
    assert ask(app, "POST", "/v1/recommend", json={"history": []}).status_code == 200
    assert app._large == 2


def test_garbage_is_refused_and_nothing_of_it_is_written_down(app, caplog, capfd):
    """A reduced form of what ``discreet bench --only serve`` does ten thousand times."""
    rng = np.random.default_rng(0)
    caplog.set_level(logging.DEBUG)
    for at in range(200):
        size = int(rng.integers(0, 200))
        noise = bytes(rng.integers(0, 256, size, dtype=np.uint8))
        body = (
            noise,
            b'{"history": {"' + SECRET.encode() + b'": ' + noise,
            json.dumps([SECRET] * size).encode(),
        )[at % 3]
        answer = ask(app, "POST", "/v1/recommend", content=body)
        assert 400 <= answer.status_code < 500
    metrics = ask(app, "GET", "/metrics").text
    shown = capfd.readouterr()
    for text in (metrics, caplog.text, shown.out, shown.err):
        assert SECRET not in text


def test_errors_that_nobody_foresaw_say_nothing_of_the_request(shelf, monkeypatch, caplog):
    def fail(*given, **more):
        raise RuntimeError(SECRET)

    monkeypatch.setattr(type(shelf.get("lists")), "position", fail)
    answer = ask(create_app(shelf), "POST", "/v1/recommend", json={"history": ["i3"]})
    assert answer.status_code == 500
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text + answer.text


def test_metrics_name_routes_and_never_what_was_asked(app):
    ask(app, "GET", f"/v1/similar/{SECRET}")
    ask(app, "GET", f"/{SECRET}")
    ask(app, "GET", "/v1/items", params={"query": SECRET})
    text = ask(app, "GET", "/metrics").text
    assert SECRET not in text
    assert 'discreet_requests_total{route="/v1/similar/{item}",status="404"} 1' in text
    assert 'discreet_requests_total{route="other",status="404"} 1' in text


def test_folders_have_names(tmp_path):
    assert list(parse_folders(["a=x/y", "b/c"])) == ["a", "c"]
    with pytest.raises(ConfigError, match="two models are called 'c'"):
        parse_folders(["b/c", "c=d"])


def test_the_schema_is_kept(app):
    """schemathesis makes up requests from the schema, right and wrong ones: none may be a
    failure of ours.
    """
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_dict(ask(app, "GET", "/openapi.json").json())
    checked = 0
    for operation in schema.get_all_operations():
        strategy = operation.ok().as_strategy()

        @given(case=strategy)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def no_failure(case):
            nonlocal checked
            sent = case.as_transport_kwargs(base_url="http://test")
            request = httpx.Request(
                sent["method"],
                sent["url"],
                params=sent.get("params"),
                json=sent.get("json"),
                headers=sent.get("headers"),
            )
            answer = ask(app, request.method, str(request.url), content=request.content)
            assert answer.status_code < 500
            checked += 1

        no_failure()
    assert checked > 60


@pytest.mark.parametrize("name", ["lists", "stars"])
@pytest.mark.parametrize(
    "history", [{"i1": 77}, {"i1": 3, "i2": 0.5}, [{"item": "i1", "rating": -1}]]
)
def test_ratings_outside_the_public_range_are_refused(app, name, history):
    question = {"history": history, "n": 3, "model": name}
    for path, body in (
        ("/v1/recommend", question),
        ("/v1/recommend/batch", {"requests": [question]}),
    ):
        refused = ask(app, "POST", path, json=body)
        assert refused.status_code == 422
        assert "outside the range 1 to 5" in refused.json()["error"]["message"]
    assert (
        ask(app, "POST", "/v1/recommend", json={"history": {"i1": 77}, "model": "open"}).status_code
        == 200
    )
