"""What a report says, and that it says it whole, escaped and in good order."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
import re
import warnings
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import discreet
from discreet.cli import main
from discreet.data.cinema import make_cinema
from discreet.errors import ConfigError, DataError
from discreet.report import charts, evaluation_section, html, item_map, ledger_summary, write_report
from discreet.report.page import render
from discreet.report.sign_off import write_sign_off
from discreet.serve.web_page import web_page
from support.reported import NASTY, invented

STYLE = (Path(discreet.__file__).parent / "report" / "style.css").read_text(encoding="utf-8")


@pytest.fixture
def run(capsys, monkeypatch):
    """The command line in this process: (exit code, stdout, stderr)."""
    logger = logging.getLogger("discreet")
    before = logger.handlers, logger.propagate, logger.level, warnings.showwarning

    def call(*words):
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        return (left.value.code, *capsys.readouterr())

    yield call
    logger.handlers, logger.propagate, logger.level, warnings.showwarning = before


class Outline(HTMLParser):
    """Tags, in order, and whether they close as they open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "input"):
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


# ------------------------------------------------------------ what it says


def test_a_private_model_states_its_promise_ledger_and_noise(reports, shelf):
    page = text_of(reports["private"])
    statement = discreet.load(shelf / "private").privacy_
    assert f"private, ε = {statement.epsilon:.4g}, δ = 10⁻⁶" in page
    assert f"{math.exp(statement.epsilon):,.3g} times as likely" in page
    for entry in statement.ledger.entries:
        assert f"{entry.sensitivity:.4g} (ℓ₂)" in page
        assert f">{entry.noise_multiplier:.4g}<" in page
    for assumption in statement.assumptions:
        assert assumption.text in page
    assert statement.ledger.to_dict()["seal"] in page
    assert "Effect of the noise" in page


def test_looks_at_ratings_are_marked_and_a_model_alone_is_not_one(reports, shelf, tmp_path):
    assert text_of(reports["private"]).count('class="look"') == 2
    assert "not covered by the model's ε" in html_free(text_of(reports["private"]))
    write_report(discreet.load(shelf / "private"), tmp_path / "alone.html")
    alone = text_of(tmp_path / "alone.html")
    assert 'class="look"' not in alone
    assert "without access to ratings" in alone


def html_free(page: str) -> str:
    return page.replace("&#39;", "'")


def test_a_model_without_a_promise_says_so(reports):
    page = text_of(reports["open"])
    assert "<title>ALS: NOT PRIVATE</title>" in page
    assert "There is no privacy guarantee" in page
    assert "Released statistics" not in page


def test_a_revealed_session_and_a_seed_are_called_what_they_are(tmp_path):
    ratings = make_cinema(0, 0.05)
    model = discreet.DPALS(
        2, epsilon=8, rating_range=(1, 5), item_fraction=0.2, noise="seeded", random_state=1
    )
    write_report(model.fit(ratings), tmp_path / "seeded.html")
    assert "RESEARCH MODE" in text_of(tmp_path / "seeded.html")


def test_the_same_model_gives_the_same_page(shelf, tmp_path):
    for name in ("one", "two"):
        write_report(discreet.load(shelf / "private"), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_models_without_vectors_or_titles_have_reports(tmp_path):
    ratings = discreet.Ratings.from_arrays(
        [1, 1, 2, 2, 3], ["a", "b", "a", "<c>", "b"], [1, 5, 4, 2, 3]
    )
    for model in (
        discreet.Popularity(),
        discreet.Bias(),
        discreet.ALS(1, iterations=2),
        discreet.ALS(2, iterations=2),
    ):
        write_report(model.fit(ratings), tmp_path / "small.html")
        Outline(text_of(tmp_path / "small.html"))
        assert "&lt;c&gt;" in text_of(tmp_path / "small.html")


# ------------------------------------------------------------ one file, whole, escaped


@pytest.mark.parametrize("name", ["private", "implicit", "open"])
def test_tags_nest_and_nothing_points_outside(reports, name):
    page = text_of(reports[name])
    assert all(link.startswith("#") for link in Outline(page).links)
    assert re.findall(r"https?://|@import|url\(", page) == []
    assert "default-src &#39;none&#39;" in page


@pytest.mark.parametrize("name", ["private", "open"])
def test_the_policy_allows_the_style_and_the_script_by_their_hashes_alone(reports, name):
    page = text_of(reports[name])
    policy = unescape(re.search('Content-Security-Policy" content="([^"]*)"', page)[1])
    assert "unsafe" not in policy
    for part, inner in re.findall(r"<(style|script)>(.*?)</\1>", page, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{part}-src 'sha256-{digest}'" in policy
    assert re.findall(r"<[^>]*\s(?:style|on\w+)=", page) == []  # the policy would block these


def test_titles_and_ids_are_escaped(tmp_path):
    write_report(invented(40, NASTY), tmp_path / "nasty.html", n=40)
    page = text_of(tmp_path / "nasty.html")
    assert "<script>window" not in page
    assert (
        "onerror='"
        not in page.replace("&#39;", "'")
        .replace("&lt;img src=x onerror='", "")
        .split('id="items"')[0]
    )
    assert page.count("</script>") == 2
    assert "\x00" not in page
    held = re.search(r'id="items">(.*?)</script>', page, re.DOTALL)
    assert held is not None
    assert NASTY[0] in json.loads(held[1])["titles"]


def test_a_failed_report_leaves_the_earlier_one_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "report.html"
    file.write_text("earlier")
    model = invented(20, ["a"])
    monkeypatch.setattr(
        Path, "write_bytes", lambda self, data: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        write_report(model, file)
    assert file.read_text() == "earlier"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_colors_of_text_stand_out_by_day_by_night_and_on_paper():
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        color = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
        for ink, grounds in {
            "ink": ("paper", "card", "shade"),
            "soft": ("paper", "card", "shade"),
            "accent": ("paper", "card"),
            "warn": ("warn-shade", "card"),
            "good": ("good-shade",),
            "paper": ("ink",),
        }.items():
            for ground in grounds:
                assert contrast(color[ink], color[ground]) >= 4.5, (ink, ground, block[:40])
        for at in range(6):
            assert contrast(color[f"c{at}"], color["card"]) >= 3, at


def contrast(one: str, other: str) -> float:
    def light(color: str) -> float:
        parts = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


# ------------------------------------------------------------ numbers


def test_how_many_people_it_takes_is_what_dpals_itself_reckons():
    ratings = make_cinema(0, 0.1)
    model = discreet.DPALS(4, epsilon=5, rating_range=(1, 5), item_fraction=0.3).fit(ratings)
    loudest = ledger_summary.loudest(ledger_summary.audible(ledger_summary.kinds(model)))
    assert loudest is not None
    assert loudest.entry.name.startswith("sum")
    counts = loudest.hearing * model.details_["signal_to_noise"]["average"]
    # both say the same of the average item, but for what a person spreads over
    assert 1 < counts < ratings.n_users
    assert math.isclose(sum(kind.share for kind in ledger_summary.kinds(model)), 1.0)
    assert ledger_summary.spending_steps(model.privacy_)[-1][1] <= model.privacy_.epsilon * (
        1 + 1e-9
    )
    points = ledger_summary.curve(model.privacy_)
    assert all(a[1] < b[1] for a, b in pairwise(points))
    assert math.isclose(
        ledger_summary.epsilon_at(model.privacy_, 1e-6), model.privacy_.epsilon, rel_tol=1e-9
    )


def test_released_counts_are_used_where_a_model_keeps_them(shelf, tmp_path):
    model = discreet.load(shelf / "private")
    model.counts_ = np.linspace(2000, -5, len(model.item_ids_))
    write_report(model, tmp_path / "counts.html")
    assert "by the noisy counts that were released" in text_of(tmp_path / "counts.html")
    groups = ledger_summary.quintiles(model, ledger_summary.read_released_counts(model), 10.0)
    assert sum(group.n_items for group in groups) == len(model.item_ids_)
    assert groups[0].raters > groups[4].raters


def test_a_loaded_model_shows_popularity_from_the_counts_it_released(shelf, tmp_path):
    model = discreet.load(shelf / "private")
    write_report(model, tmp_path / "alone.html")
    page = text_of(tmp_path / "alone.html")
    assert "By popularity of the items" in page
    assert "by the noisy counts that were released" in page
    assert 'class="look"' not in page
    model.counts_ = None  # as in a model that was saved before counts were kept
    write_report(model, tmp_path / "alone.html")
    assert "This model does not contain item popularity" in text_of(tmp_path / "alone.html")


def test_what_is_said_of_the_number_of_items_is_what_the_model_bounds(tmp_path):
    ratings = make_cinema(0, 0.05)
    together = discreet.DPMF(2, epsilon=8, goal="rating", rating_range=(1, 5)).fit(ratings)
    assert ledger_summary.has_joint_bound(together)
    write_report(together, tmp_path / "r.html")
    page = text_of(tmp_path / "r.html")
    assert "bounds all items of a user together" in page
    each = discreet.DPALS(2, epsilon=8, rating_range=(1, 5), max_items=30).fit(ratings)
    assert not ledger_summary.has_joint_bound(each)
    write_report(each, tmp_path / "r.html")
    page = text_of(tmp_path / "r.html")
    assert "A user contributes to at most 30 items" in page
    assert "<dt>max_items</dt><dd>30</dd>" in page
    assert "<dt>noise_ridge</dt><dd>0.25</dd>" in page, (
        "what the algorithm was resolved to is shown, too"
    )


def test_what_a_model_holds_of_its_training_is_drawn(tmp_path):
    model = discreet.DPLMC(2, epsilon=20, rating_range=(0.5, 5)).fit(make_cinema(0, 0.05))
    assert len(model.details_["trace"]) == 5
    model.save(tmp_path / "model")
    write_report(discreet.load(tmp_path / "model"), tmp_path / "r.html")
    assert "Change of the item factors (root mean square)" in text_of(tmp_path / "r.html")


def test_the_title_is_the_name_of_the_model_or_the_one_given(reports, tmp_path):
    assert "<h1><bdi>DPALS, ε = 5</bdi></h1>" in text_of(reports["private"])
    assert "<h1><bdi>ALS</bdi></h1>" in text_of(reports["open"])
    write_report(invented(9, ["a"]), tmp_path / "r.html", title="Films <of> the year")
    page = text_of(tmp_path / "r.html")
    assert "<h1><bdi>Films &lt;of&gt; the year</bdi></h1>" in page
    assert "<title>Films &lt;of&gt; the year: " in page


def test_the_map_uses_its_space():
    """A few items with large factors must not leave most of the map empty."""
    rng = np.random.default_rng(0)
    model = invented(400, [f"item {at}" for at in range(400)])
    factors = rng.normal(size=(400, 3)).astype(np.float32)
    factors[:4] *= 40
    model.restore_items(
        model.item_ids_, factors, np.zeros(400, np.float32), model.titles_, model.rating_range_
    )
    drawn = item_map.item_map(model)
    cells = {(x, y) for x, y in zip(8 * drawn.x // 4096, 8 * drawn.y // 4096, strict=True)}
    assert len(cells) > 30  # of 64; by distance alone, 6


def test_relevance_is_named_by_a_rating_that_exists(reports):
    assert "held-out items rated 4 or more" in text_of(reports["private"])


def test_a_belief_moves_by_its_odds():
    assert math.isclose(ledger_summary.belief(0.5, math.log(3)), 0.75)
    assert ledger_summary.belief(0.1, 0.0) == pytest.approx(0.1)


def test_the_trace_of_a_training_on_the_ratings_given_is_a_look_at_them():
    ratings = make_cinema(0, 0.05)
    model = discreet.DPLMC(2, epsilon=20, rating_range=(0.5, 5)).fit(ratings)
    measured = evaluation_section.measure(model, ratings)
    own = render(model, measured, []).count('class="look"')
    model.details_ = {name: value for name, value in model.details_.items() if name != "trace"}
    assert render(model, measured, []).count('class="look"') == own + 1


@pytest.mark.parametrize("prior", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-3, 0.2])
def test_a_belief_counts_delta(prior, epsilon, delta):
    """A mechanism as telling as (ε, δ) allows: it tells all with probability δ, else it flips a
    biased coin.
    """
    seen = 0.05
    tells, yes = delta, (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    coin = (1 - delta) / (1 + math.exp(epsilon))  # what the others see as a yes
    bound = ledger_summary.belief(prior, epsilon, delta, seen)
    for share in np.linspace(0, 1, 101):  # events: all that tells, and a part of the coin's yes
        right, wrong = tells + share * yes, share * coin
        if right >= seen:
            assert prior * right / (prior * right + (1 - prior) * wrong) <= bound * (1 + 1e-12)
    rest = max(0.0, seen - tells)  # the event that is seen just as often reaches the bound
    tight = (
        prior
        * max(seen, tells)
        / (prior * max(seen, tells) + (1 - prior) * rest * math.exp(-epsilon))
    )
    assert tight == pytest.approx(bound, rel=1e-12)
    assert bound > ledger_summary.belief(prior, epsilon) or delta == 0


def test_the_page_counts_delta_in_beliefs(tmp_path):
    ratings = make_cinema(0, 0.05)
    model = discreet.DPALS(2, epsilon=4, delta=9e-4, rating_range=(1, 5), item_fraction=0.2).fit(
        ratings
    )
    write_report(model, tmp_path / "r.html")
    page = html_free(text_of(tmp_path / "r.html"))
    after = ledger_summary.belief(0.5, model.privacy_.epsilon, 9e-4, ledger_summary.SEEN)
    without = ledger_summary.belief(0.5, model.privacy_.epsilon)
    assert (f"{100 * after:.1f} %", f"{100 * without:.1f} %") == ("98.4 %", "98.2 %")
    assert "98.4 %" in page
    assert "98.2 %" not in page
    assert "the values include δ" in page


def test_cautions_are_in_the_headline(tmp_path):
    ratings = make_cinema(0, 0.05)
    for given, badge in (
        ({"rating_range": (0.5, 5)}, "private, ε = 8"),
        ({}, "private with cautions, ε = 8"),
    ):
        model = discreet.DPALS(2, epsilon=8, item_fraction=0.2, **given).fit(ratings)
        write_report(model, tmp_path / "r.html")
        assert f"<title>DPALS: {badge}" in text_of(tmp_path / "r.html")
        _, front, card = model.card().split("---\n", 2)  # what hubs read comes first
        assert ("private with cautions" in front) == (not given)
        headline, *rest = card.strip().splitlines()
        assert headline == "# DPALS: private with ε = 8, δ = 1e-06" + (
            "" if given else ", WITH CAUTIONS"
        )
        named = (
            "- **the range of ratings, 0.5 to 5: read from the data instead of a public source**"
        )
        assert (named in rest) == (not given)


def test_cautions_stand_beside_the_promise(tmp_path):
    ratings = make_cinema(0, 0.05)
    given = {"rating_range": (0.5, 5), "item_fraction": 0.2}
    model = discreet.DPALS(2, epsilon=8, noise="seeded", random_state=1, **given).fit(ratings)
    write_report(model, tmp_path / "r.html")
    assert "the noise came from a seed, and anyone who knows it can subtract the noise" in text_of(
        tmp_path / "r.html"
    )
    model = discreet.DPMF(
        2, epsilon=8, delta=9e-4, goal="rating", rating_range=(0.5, 5), iterations=2
    )
    larger = make_cinema(0, 0.3)
    (caution,) = model.fit(larger).privacy_.cautions
    write_report(model, tmp_path / "r.html")
    page = text_of(tmp_path / "r.html")
    assert "above one over the number of users" in caution
    assert page.count(caution) == 1
    assert (
        page.index("The guarantee depends on these cautions")
        < page.index(caution)
        < page.index("Assumed public")
    )


def test_saved_models_score_test_ratings_and_fresh_ones_held_out_ratings():
    ratings = make_cinema(0, 0.05)
    split = discreet.data.splits.random_ratings(ratings, (0.8, 0.2), 3)
    model = discreet.ALS(4, iterations=3).fit(split.train)
    given = evaluation_section.measure(model, split.train, split.test.target)
    direct = discreet.evaluate(model, split, ["rmse"])
    assert math.isclose(given.found.rows[0].scores["rmse"].mean, direct["rmse"], rel_tol=1e-6)
    assert not given.retrained
    before = model.item_factors_.copy()
    anew = evaluation_section.measure(model, ratings)
    assert anew.retrained
    assert [row.name for row in anew.found.rows] == ["ALS", "Bias", "Popularity"]
    assert (model.item_factors_ == before).all()
    strangers = discreet.Ratings.from_arrays(["nobody"], [ratings.item_ids[0]], [3.0])
    with pytest.raises(DataError, match="no user"):
        evaluation_section.measure(model, split.train, strangers)


def test_round_numbers_and_powers():
    assert charts.ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1]
    assert html.power(1e-6) == "10⁻⁶"
    assert html.power(7.3e-6) == "7.3 × 10⁻⁶"
    assert html.power(0.01) == "0.01"


# ------------------------------------------------------------ the command


def test_the_command_writes_a_report_and_says_so(run, shelf, tmp_path):
    file = tmp_path / "new folder" / "r.html"
    code, out, err = run("report", shelf / "private", "--out", file, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["private"] is True
    assert found["bytes"] == file.stat().st_size
    assert "quality" not in found
    liked = "Dark Obsession=5,Letters from the Regiment=1"
    code, out, err = run("report", shelf / "open", "--out", file, "--history", liked)
    assert code == 0, err
    assert "without access to ratings" in out
    assert "History 1" in text_of(file)
    assert "For the histories given" in text_of(file)
    assert "Invented" not in text_of(file)


def test_the_command_measures_on_ratings(run, shelf, tmp_path):
    words = [
        "report",
        shelf / "open",
        "--data",
        "cinema",
        "--scale",
        "0.05",
        "--out",
        tmp_path / "r.html",
        "--json",
    ]
    code, out, err = run(*words)
    assert code == 0, err
    rows = json.loads(out)["quality"]["models"]
    assert {"ALS", "Bias", "Popularity"} == {row["name"] for row in rows}
    assert all(row["scores"]["rmse"]["stderr"] > 0 for row in rows if "rmse" in row["scores"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "does not exist"),
        (["{shelf}/open", "--test", "x.csv"], "--test needs --data"),
        (["{shelf}/open", "--data", "nothing"], "neither a file nor a data set"),
        (["{shelf}/open", "--out", "{shelf}"], "is a folder"),
        (["{shelf}/open", "--history", "no such film"], "does not know the item"),
        (["{shelf}/open", "-n", "0"], "-n"),
        (["{shelf}/open", "--history", ","], "has no item"),
    ],
)
def test_bad_requests_are_answered_in_a_sentence(
    run, shelf, tmp_path, monkeypatch, words, sentence
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("report", *(word.format(shelf=shelf) for word in words))
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_help_has_an_example(run):
    code, out, _ = run("report", "--help")
    assert code == 0
    assert "discreet report model/ --data ratings.csv" in out
    film = re.search(r'--history "(.*?)=5"', out)
    assert film is not None
    assert any(title.startswith(film[1] + " (") for title in make_cinema(0, 0.01).titles)


def test_test_ratings_without_data_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="test is given without data"):
        write_report(invented(9, ["a"]), tmp_path / "r.html", test=make_cinema(0, 0.01))


def test_features_that_are_gone_are_said_to_be(tmp_path):
    from discreet.report.evaluation_section import measure

    ratings = discreet.load_dataset("cinema", scale=0.02)
    public = np.random.default_rng(0).random((ratings.n_items, 2))
    model = discreet.DPMF(epsilon=20, goal="rating", rating_range=(0.5, 5.0), item_features=public)
    model.fit(ratings).save(tmp_path / "model")
    with pytest.raises(DataError, match="features that are not saved"):
        measure(discreet.load(tmp_path / "model"), ratings)


@pytest.mark.parametrize("name", ["A. Lee", ""])
def test_a_model_with_public_users_is_not_trained_again_without_them(
    trained_with_public_users, name
):
    from discreet.report.evaluation_section import measure

    with pytest.raises(DataError, match="ratings of public users that are not saved"):
        measure(trained_with_public_users(name), make_cinema(0, 0.05))


def test_the_sums_of_an_earlier_model_are_not_left_out_in_silence():
    from discreet.report.evaluation_section import measure

    ratings = make_cinema(0, 0.05)
    options = {"epsilon": 8, "rating_range": (0.5, 5), "goal": "ranking"}
    earlier = discreet.DPMF(3, **options).fit(ratings)
    with pytest.raises(DataError, match="sums of an earlier model that are not saved"):
        measure(discreet.DPMF(3, **options).fit(ratings, prior=earlier), ratings)


def test_the_page_says_whom_the_guarantee_covers(trained_with_public_users, shelf):
    found = render(trained_with_public_users("A. Lee"), None, [])
    said = re.sub(r"\s+", " ", found)
    assert "any one private user from that user's data" in said
    assert "from exact ratings of public users and from no other access" in said
    assert "public users" not in render(discreet.load(shelf / "private"), None, [])


@pytest.mark.parametrize(("rate", "shown"), [(0.3, False), (1.0, True)])
def test_mu_is_shown_where_it_is_the_parameter_of_gaussian_privacy(rate, shown, tmp_path):
    """For random batches it is none."""
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((60, 10)) < 0.5)
    ratings = discreet.Ratings.from_arrays(
        user, item, rng.integers(1, 6, len(user)), item_ids=range(10)
    )
    model = discreet.DPSGD(
        2, epsilon=20.0, iterations=3, batch_rate=rate, rating_range=(1, 5), accountant="gdp"
    )
    write_report(model.fit(ratings), tmp_path / "report.html")
    assert ("<dt>μ</dt>" in (tmp_path / "report.html").read_text(encoding="utf-8")) is shown


@pytest.mark.parametrize(("epsilon", "weak"), [(8, False), (500, True)])
def test_no_title_calls_a_large_epsilon_private(tmp_path, epsilon, weak):
    """The card, its front matter, report, page for browsers and page to sign: ε = 500 is no
    meaningful protection.
    """
    model = discreet.DPALS(2, epsilon=epsilon, item_fraction=0.2, rating_range=(0.5, 5)).fit(
        make_cinema(0, 0.05)
    )
    write_report(model, tmp_path / "r.html")
    _, front, card = model.card().split("---\n", 2)
    title = re.search(r"<title>(.*?)</title>", text_of(tmp_path / "r.html"))[1]
    page = web_page(model.scorer(), model.privacy_.to_dict())
    badge = re.search(r'<p class="badge[^>]*>(.*?)</p>', page)[1]
    for text in (
        front.replace("differential-privacy", ""),
        card.strip().splitlines()[0],
        title,
        badge,
    ):
        assert ("no meaningful protection" in text) is weak
        assert (re.search("privat|privacy:? ε", text) is not None) is not weak
    write_sign_off(model, tmp_path / "s.html")
    for text in (str(model.privacy_), text_of(tmp_path / "s.html")):
        assert "almost as likely" not in text
        assert ("no meaningful protection" in text) is weak
