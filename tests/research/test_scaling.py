"""Slopes are those of power laws, with intervals that cover them; and sweeps vary what they say."""

import numpy as np
import pytest

from research import entry as entries
from research import messages, scaling
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
    """|Ω| = r n log n, so p = r log n / m; logarithms are left out."""

    def dpals(n, m, r, epsilon):
        # the proof of Theorem 2; its statement has √m once more (docs/errata.md)
        return r**2 * np.sqrt(m) / (epsilon * n * np.sqrt(r / m))

    def dplmc(n, m, r, epsilon):
        absolute = r**2 * m / (epsilon * np.sqrt(n * r * n))
        return absolute / np.sqrt(r)  # ‖X*‖, with singular values that do not depend on r

    base = dict(n=1e4, m=100.0, r=5.0, epsilon=10.0)
    names = {"users": "n", "items": "m", "rank": "r", "epsilon": "epsilon"}
    for (model, varied), exponent in scaling.BOUNDS.items():
        bound = {"DPALS": dpals, "DPLMC": dplmc}[model]
        twice = base | {names[varied]: 2 * base[names[varied]]}
        assert np.log2(bound(**twice) / bound(**base)) == pytest.approx(exponent)


@pytest.mark.parametrize("name", ["theory-errors", "theory-cost"])
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
    assert [record["part"] for record in records] == ["point"] * 4 + ["slope"]
    assert {record["at"] for record in records[:-1]} == {150, 300}
    assert records[-1]["theory"] == -1.0


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
            model: scaling.BOUNDS[model, varied] for model in ("DPALS", "DPLMC")
        }
