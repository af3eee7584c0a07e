"""Slopes are those of power laws, with intervals that cover them; and sweeps vary what they say."""

import numpy as np
import pytest

from research import entry as entries
from research import messages, scaling
from research.dplmc_runs import error, make, nothing, planted
from research.sources import Sources


def test_a_power_law_has_its_exponent():
    found = scaling.slope([(x, 3.0 * x**-1.5) for x in (1, 2, 4, 8)])
    assert found["slope"] == pytest.approx(-1.5)
    assert found["low"] == pytest.approx(found["high"], abs=1e-6)


def test_intervals_cover_the_exponent_as_often_as_they_say():
    """Of 2,000 noisy sweeps 95 % should; fewer than 92 % has a probability below 1e-8."""
    rng = np.random.default_rng(0)
    x = np.repeat([1.0, 2.0, 4.0, 8.0], 5)
    covered = 0
    for _ in range(2000):
        found = scaling.slope(
            list(zip(x, x**-1.0 * np.exp(0.3 * rng.standard_normal(len(x))), strict=True))
        )
        covered += found["low"] <= -1.0 <= found["high"]
    assert covered > 1840


def test_exponents_of_the_bounds_follow_from_their_formulas():
    """p = |Ω|/nm, and |Ω| = r n log n unless it is varied; logarithms are left out."""

    def dpals(n, m, r, epsilon, per_user=None):
        # the proof of Theorem 2; its statement has √m once more (docs/errata.md)
        return r**2 * np.sqrt(m) / (epsilon * n * np.sqrt((per_user or r) / m))

    def dplmc(n, m, r, epsilon, per_user=None):
        absolute = r**2 * m / (epsilon * np.sqrt(n * (per_user or r) * n))
        return absolute / np.sqrt(r)  # ‖X*‖, with singular values that do not depend on r

    def dpfw(n, m, r, epsilon, per_user=None):
        return (m**1.25 / (n * epsilon)) ** 0.2  # Remark 6

    base = dict(n=1e4, m=100.0, r=5.0, epsilon=10.0, per_user=40.0)
    names = {"users": "n", "items": "m", "rank": "r"}
    for (model, varied), exponent in scaling.BOUNDS.items():
        bound = {"DPALS": dpals, "DPLMC": dplmc, "DPFW": dpfw}[model]
        name = names.get(varied, varied)
        at = base if name == "per_user" else base | {"per_user": None}
        twice = at | {name: 2 * at[name]}
        assert np.log2(bound(**twice) / bound(**at)) == pytest.approx(exponent)


@pytest.mark.parametrize("name", ["theory-errors", "theory-cost", "theory-time"])
def test_each_cell_sweeps_what_it_varies(name):
    for cell in entries.load(name).settings(Sources()):
        assert list(cell["sweep"]) == [cell["varied"]]
        assert len(cell["sweep"][cell["varied"]]) >= 3


def test_a_sweep_has_its_points_and_its_slope():
    settings = dict(
        model="DPLMC", users=200, items=30, rank=2, epsilon=50.0, trials=2, candidates=2
    )
    records = scaling.errors(
        settings | dict(varied="users", sweep={"users": [150, 300]}), Sources()
    )
    assert [record["part"] for record in records] == 2 * (["point"] * 4 + ["slope"])
    assert {record["model"] for record in records} == {"DPLMC, Uᵀ", "DPLMC, refit"}
    assert {record["at"] for record in records[:4]} == {150, 300}
    assert records[4]["theory"] == records[-1]["theory"] == -1.0


@pytest.mark.parametrize("model", ["DPFW", "DPSVD"])
def test_baselines_learn_planted_matrices_at_their_price(model):
    X, known, ratings = planted(1500, 3, 0.0, 1, 40)
    chosen = {
        "DPFW": dict(factors=20, spread=1.0, row_norm=6.0, residual_norm=2.0, steps="constant"),
        "DPSVD": dict(
            regularization=0.3,
            residual_bound=1.5,
            pair_prior=0.0,
            weighted=False,
            centering="items",
        ),
    }[model]
    found = make(model, 100.0, "private", 0.0, 3, "equal", 1500, chosen, 0, 40).fit(ratings)
    assert found.privacy_.epsilon == pytest.approx(100.0, rel=1e-6)
    assert error(found, X, known, ratings) < 0.5 * nothing(X, known)


def test_a_sweep_of_steps_varies_only_their_number():
    settings = dict(model="DPFW", users=200, items=30, rank=2, epsilon=50.0, trials=1, candidates=1)
    records = scaling.errors(settings | dict(varied="steps", sweep={"steps": [2, 4]}), Sources())
    assert [record["chosen"]["factors"] for record in records[:-1]] == [2, 4]
    assert "theory" not in records[-1]


def test_messages_are_counted_per_user_and_round():
    settings = dict(
        model="DPLMC",
        epsilon=1000.0,
        scale=0.001,
        processes=1,
        parameters=dict(factors=2, iterations=1),
    )
    found = messages.run(settings, Sources())
    assert found["rounds"] >= 2
    assert 0 < found["up"] <= found["most_up"]
    assert found["kilobytes_down"] == pytest.approx(found["rounds"] * found["down"] / 1e3)


def test_pictures_have_the_slopes_of_the_bounds():
    for panel in entries.load("theory-errors").plots:
        varied = panel["where"]["varied"]
        assert panel["slopes"] == {
            model: bound for (model, what), bound in scaling.BOUNDS.items() if what == varied
        }
    assert entries.load("theory-time").plots[0]["x"] == "seconds"
