import math

import pytest

from discreet.errors import ConfigError
from discreet.privacy.accounting import gdp, pld
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.pricing import Event

GAUSSIAN = [Event("gaussian", 12.0, 3), Event("gaussian", 7.5, 3), Event("gaussian", 40.0)]
PURE = [Event("laplace", 30.0, 4), Event("huber", 20.0, 2, alpha=0.8)]
MIXED = [Event("gaussian", 9.0, 2), Event("laplace", 25.0, 3), Event("huber", 14.0, alpha=1.5)]


def test_gaussian_composition_is_exact():
    mu = math.sqrt(3 / 12**2 + 3 / 7.5**2 + 1 / 40**2)
    assert accounting.total_mu(GAUSSIAN) == pytest.approx(mu, rel=1e-15)
    assert accounting.epsilon(GAUSSIAN, 1e-6) == gdp.epsilon(accounting.total_mu(GAUSSIAN), 1e-6)


@pytest.mark.parametrize("events", [GAUSSIAN, MIXED], ids=["gaussian", "mixed"])
def test_accountants_agree_on_their_order(events):
    """The independent accountant is never above the stated ε, and the papers' conversion is the
    largest.
    """
    exact = accounting.epsilon(events, 1e-5, "gdp")
    numeric = accounting.epsilon(events, 1e-5, "pld")
    converted = accounting.epsilon(events, 1e-5, "rdp")
    assert numeric <= exact + 1e-6
    assert exact < converted
    assert accounting.independent_epsilon(events, 1e-5, "rdp") < converted


def test_independent_accountant_confirms_gaussian_prices():
    for delta in (1e-5, 1e-8):
        stated = accounting.epsilon(GAUSSIAN, delta)
        assert accounting.independent_epsilon(GAUSSIAN, delta) == pytest.approx(stated, abs=1e-5)
        assert stated <= accounting.independent_epsilon(GAUSSIAN, delta, "rdp") < 1.3 * stated


def test_independent_accountant_confirms_laplace_and_huber():
    laplace = [Event("laplace", 30.0, 40)]
    assert accounting.epsilon(laplace, 1e-6, "pld") == pytest.approx(
        accounting.independent_epsilon(laplace, 1e-6), rel=1e-3
    )
    assert accounting.epsilon(PURE, 1e-6, "pld") <= accounting.total_pure(PURE)
    assert (
        accounting.epsilon(PURE, 1e-6, "pld")
        <= accounting.independent_epsilon(PURE, 1e-6, "rdp") + 1e-9
    )


def test_huber_pld_approaches_gaussian_and_laplace():
    wide = [Event("huber", 10.0, 20, alpha=6.0)]
    assert accounting.epsilon(wide, 1e-5, "pld") == pytest.approx(
        accounting.epsilon([Event("gaussian", 10.0, 20)], 1e-5), rel=1e-3
    )
    narrow, laplace = [Event("huber", 10.0, 20, alpha=0.01)], [Event("laplace", 10.0, 20)]
    assert accounting.epsilon(narrow, 1e-5, "pld") == pytest.approx(
        accounting.epsilon(laplace, 1e-5, "pld"), rel=1e-3
    )


def test_pure_composition_is_the_sum():
    expected = 4 * math.sqrt(2) / 30 + 2 * PURE[1].noise.epsilon(1.0)
    for accountant in ("pure", "gdp", "rdp", "pld"):
        assert accounting.epsilon(PURE, 0.0, accountant) == pytest.approx(expected)
    assert accounting.epsilon(MIXED, 0.0) == math.inf


def test_l2_ratio_lowers_the_gdp_price_of_huber():
    both_norms = [Event("huber", 20.0, 2, alpha=0.8, l2_ratio=0.25)]
    assert accounting.total_mu(both_norms) == pytest.approx(
        0.25 * accounting.total_mu([Event("huber", 20.0, 2, 0.8)])
    )


@pytest.mark.parametrize("accountant", ["gdp", "rdp"])
@pytest.mark.parametrize("events", [GAUSSIAN, MIXED, PURE], ids=["gaussian", "mixed", "pure"])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 20.0, 1e3])
def test_calibration_spends_the_budget_and_no_more(accountant, events, epsilon):
    factor = accounting.calibrate(events, epsilon, 1e-6, accountant)
    spent = accounting.epsilon([e.scale(factor) for e in events], 1e-6, accountant)
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=1e-6)


def test_calibration_by_pld_and_pure():
    events = [Event("laplace", 1.0, 10), Event("gaussian", 1.0)]
    factor = accounting.calibrate(events, 1.0, 1e-6, "pld")
    assert accounting.epsilon([e.scale(factor) for e in events], 1e-6, "pld") == pytest.approx(
        1.0, rel=1e-5
    )
    assert factor < accounting.calibrate(events, 1.0, 1e-6, "rdp")
    assert accounting.calibrate([Event("laplace", 1.0, 10)], 2.0, 0.0) == pytest.approx(
        5 * math.sqrt(2)
    )


def test_more_noise_is_asked_for_when_less_is_known():
    factors = [accounting.calibrate(GAUSSIAN, e, 1e-6) for e in (0.1, 1.0, 10.0)]
    assert factors == sorted(factors, reverse=True)


def test_price_carries_the_name_of_its_conversion():
    got = accounting.price(GAUSSIAN, 1e-6, "rdp")
    assert got.epsilon == accounting.epsilon(GAUSSIAN, 1e-6, "rdp")
    assert "papers" in got.conversion
    assert got.to_dict()["accountant"] == "rdp"


def test_no_release_costs_nothing():
    assert accounting.epsilon([], 1e-6) == 0.0
    assert accounting.epsilon([Event("gaussian", 1.0, 0)], 1e-6, "rdp") == 0.0


def test_missing_library_is_said(monkeypatch):
    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr(pld.importlib, "import_module", refuse)
    with pytest.raises(ConfigError, match=r"discreet\[accounting\]"):
        accounting.epsilon(MIXED, 1e-6, "pld")


def test_bad_arguments_are_refused():
    for call in (
        lambda: Event("gaussian", 0.0),
        lambda: Event("gaussian", 1.0, -1),
        lambda: Event("gaussian", 1.0, 1.5),
        lambda: Event("huber", 1.0),
        lambda: Event("cauchy", 1.0),
        lambda: Event("huber", 1.0, alpha=1.0, l2_ratio=2.0),
        lambda: accounting.epsilon(GAUSSIAN, 1e-6, "moments"),
        lambda: accounting.epsilon(GAUSSIAN, 1.0),
        lambda: accounting.calibrate(GAUSSIAN, 1.0, 0.0),
        lambda: accounting.calibrate([], 1.0, 1e-6),
    ):
        with pytest.raises(ConfigError):
            call()
