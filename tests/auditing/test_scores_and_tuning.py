"""Priced scores and tuning stand their levels; scores without noise, and splits that share a
stream, do not.
"""

import numpy as np
import pytest

import discreet
from discreet.auditing import audit, run_audit
from discreet.auditing.neighboring_runs import NeighboringRuns
from discreet.auditing.scores import audit_scores, audit_tuning, delta_of_best
from discreet.data.splits import by_person
from discreet.errors import ConfigError
from discreet.kernels import threads
from discreet.privacy.accounting import gdp, private_selection
from support.fault_helpers import planted

RANKING = discreet.DPMF(epsilon=2.0, rating_range=(1.0, 5.0))
RATING = discreet.DPALS(3, epsilon=2.0, rating_range=(1.0, 5.0), max_items=6)


@pytest.fixture(autouse=True)
def _small():
    """These fits are so small that starting threads takes longer."""
    threads.set_threads(1)
    yield
    threads.set_threads(None)


@pytest.mark.parametrize("model", [RANKING, RATING], ids=["ranking", "rating"])
def test_priced_scores_are_not_refuted(model):
    level = audit_scores(NeighboringRuns(model))
    assert level.findings[:-1] == ()
    assert not level.refuted
    assert 0.5 * level.claimed < level.found <= level.claimed


def test_tuning_is_not_refuted():
    level = audit_tuning(NeighboringRuns(RANKING))
    assert level.findings[:-1] == ()
    assert not level.refuted
    assert 0.9 * level.claimed < level.found <= level.claimed


@pytest.mark.parametrize(
    ("fault", "level"),
    [
        ("private scores have no noise", "scores"),
        ("the score of a tuned training has no noise", "tuning"),
        ("tuning makes the number of runs that is its mean", "tuning"),
        ("the best of several runs is charged as one", "tuning"),
    ],
)
def test_a_planted_fault_is_refuted(fault, level):
    with planted(fault):
        (found,) = audit(RANKING, levels=[level]).levels
    assert found.refuted, found.findings


def test_a_split_that_draws_one_stream_for_all_users_is_refuted():
    """One user more moves what is held out of others, although the split says that each user is
    apart.
    """

    def shared_stream(ratings):
        coins = np.random.default_rng(3).permutation(ratings.n_ratings)
        return by_person(ratings, (0.5, 0.5), seed=int(coins[0]))

    level = audit_scores(NeighboringRuns(RANKING), split=shared_stream)
    assert level.refuted
    assert any("times its stated sensitivity" in finding for finding in level.findings)


def test_the_best_of_several_runs_lies_between_one_run_and_its_cost():
    for mu in (0.2, 0.5, 1.0):
        for epsilon in (0.5, 2.0):
            found = delta_of_best(epsilon, mu, 10.0)
            assert (
                gdp.delta(epsilon, mu)
                < found
                <= private_selection.delta(epsilon, mu, private_selection.Runs(10.0))
            )


def test_a_model_that_tuning_refuses_is_audited_without_it(monkeypatch):
    model = discreet.DPSGD.configure(iterations=3, epsilon=1.0, rating_range=(1.0, 5.0))
    with pytest.raises(ConfigError, match="tuning has no price"):
        audit(model, levels=["tuning"])
    with monkeypatch.context() as patched:  # which takes long, and is tested elsewhere
        patched.setattr(run_audit, "audit_noise", lambda worlds, **options: audit_scores(worlds))
        found = audit(model, search=0, canaries=100, seed=1)
    assert {level.name for level in found.levels} == {"transcript", "one run", "scores"}
