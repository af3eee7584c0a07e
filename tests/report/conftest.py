"""Models to report on, and a real browser to look at the reports with."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import discreet
from discreet.data.cinema import make_cinema
from discreet.privacy.accounting import pricing
from discreet.report import write_report
from support import chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """A running headless Chromium. ``make test`` installs one; see chromium.py."""
    program = chromium.find()
    if program is None:
        message = (
            "no Chromium found: run python tests/support/chromium.py, or set DISCREET_BROWSER to"
            " the program"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    running = chromium.Browser(program, tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture(scope="session", autouse=True)
def _compute_each_price_once() -> Iterator[None]:
    """The second accountant takes seconds, and most of these tests are of one ledger."""
    own = pricing.independent_epsilon
    known = functools.cache(own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pricing, "independent_epsilon", lambda events, *more: known(tuple(events), *more)
        )
        yield


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with saved models: ``private`` (DPALS), ``implicit`` (DPALS), ``open`` (ALS). Do
    not change it.
    """
    folder = tmp_path_factory.mktemp("models")
    ratings = make_cinema(0, 0.1)
    private = discreet.DPALS(4, epsilon=5, rating_range=(1, 5), item_fraction=0.3)
    private.fit(ratings).save(folder / "private")
    private.set_params(goal="ranking").fit(ratings.binarize(4)).save(folder / "implicit")
    discreet.ALS(6, iterations=4).fit(ratings).save(folder / "open")
    return folder


@pytest.fixture(scope="session")
def reports(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of these models, the first two with a look at ratings."""
    folder = tmp_path_factory.mktemp("reports")
    ratings = make_cinema(0, 0.1)
    data = {"private": ratings, "implicit": ratings.binarize(4), "open": None}
    for name, given in data.items():
        write_report(discreet.load(shelf / name), folder / f"{name}.html", data=given)
    return {name: folder / f"{name}.html" for name in data}


@pytest.fixture(scope="session")
def trained_with_public_users() -> Callable[[str], discreet.DPMF]:
    """Train a model with 20 public users, of whom this name confirmed that they are public."""

    @functools.cache
    def train(name: str) -> discreet.DPMF:
        ratings = make_cinema(0, 0.05)
        model = discreet.DPMF(3, epsilon=8, rating_range=(0.5, 5))
        public = ratings.select_users(ratings.user_ids[:20], by="id")
        return model.fit(ratings, public_ratings=public, public_confirmed_by=name)

    return train
