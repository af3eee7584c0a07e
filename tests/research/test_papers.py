"""The papers' tables under their own conversion and exactly: the figures of PRIVACY.md, to the
digits given.
"""

import math

import pytest

from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.mechanisms import Gaussian, Huber
from research import papers

CONVERTED = [0.80, 4.01, 7.39, 14.87, 1.00, 5.01, 10.04, 19.82, 1.01, 5.05, 10.08, 20.13]
WITH_CENTERING = [0.61, 3.26, 6.70, 13.31, 0.83, 4.74, 10.15, 18.67, 0.87, 4.20, 8.68, 17.87]
EXACT = [0.58, 3.26, 6.22, 12.98, 0.74, 4.12, 8.59, 17.53, 0.76, 4.17, 8.65, 17.85]


def test_erratum_01_table_4_of_dpals_under_the_papers_conversion():
    got = [accounting.epsilon(c.events(), c.delta, "rdp") for c in papers.DPALS_TABLE_4]
    assert [round(e, 2) for e in got] == CONVERTED


def test_erratum_01_table_4_of_dpals_exactly():
    got = [accounting.epsilon(c.events(), c.delta, "gdp") for c in papers.DPALS_TABLE_4]
    assert [round(e, 2) for e in got] == EXACT
    honest = [c.events_with_centering() for c in papers.DPALS_TABLE_4]
    got = [
        accounting.epsilon(events, c.delta, "gdp")
        for events, c in zip(honest, papers.DPALS_TABLE_4, strict=True)
    ]
    assert [round(e, 2) for e in got] == WITH_CENTERING


def test_erratum_01_the_printed_theorem_prices_one_release_too_few():
    got = [accounting.epsilon(c.events_as_printed(), c.delta, "rdp") for c in papers.DPALS_TABLE_4]
    assert round(got[0], 2) == 0.41
    assert round(got[-1], 1) == 13.2


def test_erratum_01_the_printed_sigma_costs_at_most_an_eighth_more():
    """σ = √(2kT (ε + ln 1/δ)) / ε, with both releases of all T steps, exactly accounted."""
    k, steps, delta = 50, 2, 1e-5

    def cost(label):
        sigma = math.sqrt(2 * k * steps * (label + math.log(1 / delta))) / label
        both = accounting.Event("gaussian", sigma / math.sqrt(k), 2 * steps)
        return accounting.epsilon([both], delta)

    assert [round(cost(label), 2) for label in (1, 5, 10, 20)] == [1.06, 5.58, 10.97, 20.89]
    assert max(cost(label) / label for label in (0.5, 1, 2, 3, 5, 7, 10, 20, 40)) < 1.125


def test_erratum_01_rho_is_the_sum_over_both_releases():
    c = papers.DPALS_TABLE_4[5]
    both = c.max_items * c.iterations / 2 * (1 / c.sigma_gram**2 + 1 / c.sigma_rhs**2)
    assert accounting.total_rho(c.events()[:2]) == pytest.approx(both, rel=1e-14)


def test_erratum_03_centering_moves_the_sum_by_k_not_by_its_root():
    """Honestly priced, line 4 of the composition has its noise multiplier divided by √k."""
    c = papers.DPALS_TABLE_4[6]
    assert accounting.epsilon(c.events_with_centering(), c.delta) > 1.1 * accounting.epsilon(
        c.events(), c.delta
    )


def test_erratum_07_both_count_releases_are_charged():
    c = papers.DPALS_TABLE_4[4]
    gram, rhs, counts, centering = c.events()
    assert counts.count == 2
    once = [gram, rhs, accounting.Event("gaussian", counts.noise_multiplier, 1), centering]
    assert round(accounting.epsilon(c.events(), c.delta, "rdp"), 2) == 1.00
    assert round(accounting.epsilon(once, c.delta, "rdp"), 2) == 0.94


def test_erratum_08_the_shared_gram_matrix_is_one_more_release():
    """K̃ with the noise of one item's Gram matrix (sensitivity Γ_u² = 1) costs 0.3 to 0.5 % of ε."""
    c = papers.DPALS_TABLE_4[-1]
    with_shared = [*c.events(), accounting.Event("gaussian", c.sigma_gram, c.iterations)]
    assert accounting.epsilon(with_shared, c.delta) > accounting.epsilon(c.events(), c.delta) + 0.09


def test_erratum_08_right_hand_sides_without_the_bound_of_ratings_cost_two_to_three_labels():
    """Centered ratings of ½ to 5 lie within ±3: the noise multiplier is a third of the stated."""
    found = []
    for c in papers.DPALS_TABLE_4[:8]:
        gram, right, *rest = c.events_with_centering()
        events = [gram, right.scale(1 / 3), *rest]
        found.append(accounting.epsilon(events, c.delta))
    assert [round(e, 1) for e in found] == [1.7, 10.6, 15.9, 37.3, 2.0, 11.9, 26.0, 66.9]
    times = [e / c.label for e, c in zip(found, papers.DPALS_TABLE_4, strict=False)]
    assert round(min(times), 1) == 2.0
    assert round(max(times), 1) == 3.3


@pytest.mark.parametrize(
    ("variance", "laplace", "huber"),
    [(1, 7.071, 15.000), (2, 5.000, 5.38), (3, 4.082, 4.22), (4, 3.536, 3.60)],
)
def test_table_1_of_huber_laplace_and_huber_columns(variance, laplace, huber):
    row = papers.huber_table_1(variance)
    assert round(row["laplace"], 3) == laplace
    assert round(row["huber"], 2) == huber


def test_table_1_of_huber_takes_alpha_3_for_variance_1():
    assert Huber(3.0).variance == pytest.approx(1.0, abs=0.004)


def test_erratum_13_the_gaussian_column_used_the_decimal_logarithm():
    printed = [15.964, 11.288, 9.217, 7.982]
    corrected = [24.224, 17.129, 13.986, 12.112]
    for variance, decimal, natural in zip((1, 2, 3, 4), printed, corrected, strict=True):
        assert papers.gaussian_classic(variance, 5.0, math.log10(1.25e5)) == pytest.approx(
            decimal, abs=5e-4
        )
        assert round(papers.huber_table_1(variance)["gaussian"], 3) == natural
    exact = [Gaussian(math.sqrt(variance)).epsilon(5.0, 1e-5) for variance in (1, 2, 3, 4)]
    assert [round(epsilon, 3) for epsilon in exact] == [33.104, 20.676, 15.867, 13.207]


def test_erratum_14_the_private_start_is_charged_for_k():
    """At the σ of Theorem 1, a start with noise σΓ_M² on the upper triangle, of which k ratings of
    a user change k(k + 1)/2 entries, has ρ² = k(k + 1)/4σ², (k + 1)/2T times that of all T steps.
    """
    k, steps, epsilon, delta = 50, 2, 1.0, 1e-5
    sigma = math.sqrt(2 * k * steps * (epsilon + math.log(1 / delta))) / epsilon
    entries = k * (k + 1) / 2
    start = [accounting.Event("gaussian", sigma / math.sqrt(entries), 1)]
    assert accounting.total_rho(start) == pytest.approx(entries / (2 * sigma**2))
    assert accounting.epsilon(start, delta) == pytest.approx(2.97, abs=0.01)


def test_theorem_5_3_of_dplmc_is_private_up_to_a_large_epsilon():
    """ν₀ = 4 G² √(ln 1/δ) / ε: by the paper's sensitivity 2 G² and conversion up to ε = 27; by the
    tight √2 G², exactly, up to 100.
    """
    delta = 1e-5

    def cost(label, sensitivity, accountant):
        multiplier = 4 * math.sqrt(math.log(1 / delta)) / label / sensitivity
        return accounting.epsilon([accounting.Event("gaussian", multiplier, 1)], delta, accountant)

    assert cost(26.5, 2.0, "rdp") < 26.5
    assert cost(27.5, 2.0, "rdp") > 27.5
    assert cost(100.0, math.sqrt(2), "gdp") < 100.0
    assert cost(105.0, math.sqrt(2), "gdp") > 105.0
