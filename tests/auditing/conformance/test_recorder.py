"""A watch sees every way of releasing, in its own thread, and nothing in any other."""

import threading

import numpy as np

import discreet
from discreet.auditing.conformance.adversarial_ratings import make_ratings
from discreet.auditing.conformance.recorder import Recorder


def test_releases_of_other_threads_are_not_watched():
    ratings = make_ratings(60, far=False)
    model = discreet.DPMF(epsilon=4.0, rating_range=(1.0, 5.0))
    with Recorder() as watch:
        other = threading.Thread(target=model.fit, args=(ratings,))
        other.start()
        other.join()
        assert len(model.privacy_.ledger.entries) > 0
        assert watch.releases == []
        assert watch.looks == watch.stray == 0
        model.fit(ratings)
    assert [record.entry for record in watch.releases] == list(model.privacy_.ledger.entries)


def test_releases_together_and_in_blocks_are_watched_like_any_other():
    ratings = make_ratings(300, far=False)
    for model in (
        discreet.DPMF(epsilon=8.0, goal="rating", rating_range=(1.0, 5.0)),
        discreet.DPMF(epsilon=8.0, rating_range=(1.0, 5.0)),
    ):
        with Recorder() as watch:
            model.fit(ratings)
        assert [record.entry for record in watch.releases] == list(model.privacy_.ledger.entries)
        assert (
            watch.looks == watch.in_release == sum(len(record.parts) for record in watch.releases)
        )
        assert all(np.isfinite(record.exact).all() for record in watch.releases)
