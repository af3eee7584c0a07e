"""Privacy loss distributions by Google's ``dp-accounting``: for Laplace, Huber and cross-checks.

The only file that imports ``dp_accounting``; it does so on first use (``pip install
'discreet[accounting]'``).

Rounding is upward everywhere: a discretized distribution dominates the true one (connect-the-dots:
the piecewise linear curve through exact points of the convex function e^ε ↦ δ(ε) lies above it),
truncated mass counts as a certain loss, and ``FFT_SLACK`` is taken off δ before ε is read, because
convolution by FFT may lose about 1e-13 of it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import NotInstalled
from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace, Mechanism

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

#: Taken off δ for rounding inside the FFT, which is below 1e-12 for the sizes used here.
FFT_SLACK = 1e-12
_MOST_POINTS = 2_000_000


def library(name: str = "dp_accounting") -> Any:
    """Import a module of dp-accounting, or raise an error that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotInstalled(
            "accounting for this release needs dp-accounting, which is not installed. Run pip"
            " install 'discreet[accounting]', or choose accountant='gdp'."
        ) from error


def loss_distribution(
    mechanism: Mechanism, sensitivity: float, interval: float = 1e-4
) -> PrivacyLossDistribution:
    """Return the pessimistic loss distribution of one release, on multiples of ``interval``."""
    plds = library("dp_accounting.pld.privacy_loss_distribution")
    if sensitivity == 0:
        return plds.identity(value_discretization_interval=interval)
    if isinstance(mechanism, Gaussian):
        # -50 would hide about 1e-22 of mass; -60 keeps δ = 1e-15 sound even after thousands of
        # compositions
        return plds.from_gaussian_mechanism(
            mechanism.scale / sensitivity,
            value_discretization_interval=interval,
            log_mass_truncation_bound=-60,
        )
    if isinstance(mechanism, Laplace):
        return plds.from_laplace_mechanism(
            mechanism.scale / sensitivity, value_discretization_interval=interval
        )
    last = math.ceil(mechanism.epsilon(sensitivity) / interval)
    losses = interval * np.arange(-last, last + 1, dtype=np.float64)
    assert isinstance(mechanism, Huber)
    deltas = mechanism.hockey_sticks(losses, sensitivity)
    dots = library("dp_accounting.pld.pld_pmf").create_pmf_pessimistic_connect_dots_fixed_gap
    return plds.PrivacyLossDistribution(dots(interval, -last, last, deltas))


def compose(
    parts: Iterable[tuple[Mechanism, float, int]], interval: float | None = None
) -> PrivacyLossDistribution:
    """Compose the loss distributions of (mechanism, sensitivity, count).

    Gaussian parts are merged into one before anything is discretized, which is exact.
    """
    parts = list(parts)
    mu = math.hypot(*(m.mu(s) * math.sqrt(n) for m, s, n in parts if isinstance(m, Gaussian)))
    others = [(m, s, n) for m, s, n in parts if not isinstance(m, Gaussian) and n > 0 and s > 0]
    if interval is None:
        span = mu * (mu + 20) + sum(n * m.epsilon(s) for m, s, n in others)
        interval = max(1e-4 * min(1.0, span), 2 * span / _MOST_POINTS)
    total = library("dp_accounting.pld.privacy_loss_distribution").identity(
        value_discretization_interval=interval
    )
    if mu > 0:
        total = total.compose(loss_distribution(Gaussian(1.0), mu, interval))
    for mechanism, sensitivity, count in others:
        total = total.compose(
            loss_distribution(mechanism, sensitivity, interval).self_compose(count)
        )
    return total


def epsilon(distribution: PrivacyLossDistribution, delta: float) -> float:
    """Return ε(δ), never understated."""
    return (
        float(distribution.get_epsilon_for_delta(delta - FFT_SLACK))
        if delta > FFT_SLACK
        else math.inf
    )


def delta(distribution: PrivacyLossDistribution, epsilon: float) -> float:
    """Return δ(ε), never understated."""
    return min(1.0, float(distribution.get_delta_for_epsilon(epsilon)) + FFT_SLACK)


def density_epsilon(parts: Iterable[tuple[Mechanism, float, int]]) -> float:
    """Compute pure ε from densities: the largest log-ratio to the shifted ones, on a grid."""
    total = 0.0
    for mechanism, sensitivity, count in parts:
        if isinstance(mechanism, Gaussian):
            return math.inf
        reach = sensitivity + mechanism.scale * (2 + getattr(mechanism, "alpha", 0.0))
        x = np.linspace(-reach, reach, 4001)
        with np.errstate(divide="ignore", invalid="ignore"):  # beyond some 700 densities are 0
            ratio = np.log(mechanism.density(x)) - np.log(mechanism.density(x + sensitivity))
        total += count * float(np.nanmax(np.abs(ratio)))
    return total


def renyi_epsilon(parts: Iterable[tuple[Mechanism, float, int]], delta: float) -> float:
    """Compute ε(δ) from Rényi divergences by dp-accounting's conversion, as a cross-check."""
    orders = np.concatenate([np.linspace(1.02, 2, 40), np.geomspace(2.05, 1000, 120)])
    total = np.zeros(len(orders))
    for mechanism, sensitivity, count in parts:
        total += [count * mechanism.rdp(float(order), sensitivity) for order in orders]
    compute = library("dp_accounting.rdp.rdp_privacy_accountant").compute_epsilon
    return float(compute(orders, total, delta)[0])
