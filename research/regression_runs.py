"""Remark 7 of the DPALS paper: m linear regressions with common features from one Gram matrix.

A cell varies one number, and gives the root of the excess empirical risk of one target,

    √( ‖X (Ŵ − W_ls)‖² / (n m) ),      W_ls the least-squares solution,

with the slope in double logarithms. Features are uniform on the unit sphere, targets y_j = x · w_j
+ e with ‖w_j‖ = 1 and e uniform on [−½, ½], so that |y_j| ≤ 1.5 and nothing is cut. Per target the
remark has Õ(√m/(εn)): users have norm √m, and all targets share one Gram matrix.

`run_coverage` counts how often intervals of coefficients hold where all but one are 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.regression import DPRegression
from research.entry import Record, Settings
from research.scaling import slope
from research.sources import Sources

BOUNDS = {"users": -1.0, "epsilon": -1.0, "targets": 0.5}
NORM = 1.5  # the largest size of one target
DELTA = 1e-5


def run(settings: Settings, sources: Sources) -> list[Record]:
    """Errors and coverage over the values in ``sweep`` of what is ``varied``, and the slope.

    Settings: ``users``, ``features``, ``targets``, ``epsilon``, ``trials``; with ``coefficients``,
    those of `run_coverage`.
    """
    if "coefficients" in settings:
        return run_coverage(settings, sources)
    records: list[Record] = []
    for value in settings["sweep"][settings["varied"]]:
        one = settings | {settings["varied"]: value}
        records += [
            {"part": "point", "at": value, "seed": seed} | measure(one, seed)
            for seed in range(settings["trials"])
        ]
    found = slope([(record["at"], record["error"]) for record in records])
    return [*records, found | {"bound": BOUNDS[settings["varied"]]}]


def run_coverage(settings: Settings, sources: Sources) -> list[Record]:
    """How often 95 % intervals cover the first coefficient, and all of them, of one target.

    Settings: ``users``, ``features``, ``epsilon``, ``coverage_trials``, and ``coefficients``: "one
    large" or "equal".
    """
    n, p = settings["users"], settings["features"]
    w = np.eye(p)[0] if settings["coefficients"] == "one large" else np.full(p, 1 / math.sqrt(p))
    covered = []
    widths = []
    for seed in range(settings["coverage_trials"]):
        X, Y, W = make_task(n, p, 1, seed)
        Y += X @ (w[:, None] - W)
        low, high = fit(settings["epsilon"], X, Y, seed).coef_interval()
        covered.append((low[0] <= w) & (high[0] >= w))
        widths.append(high - low)
    return [
        {
            "part": "coverage",
            "first covered": float(np.mean(covered, axis=0)[0]),
            "all covered": float(np.mean(covered)),
            "width": float(np.mean(widths)),
        }
    ]


def fit(epsilon: float, X: NDArray[np.float64], Y: NDArray[np.float64], seed: int) -> DPRegression:
    """Fit with the bounds of these tasks."""
    return DPRegression(
        epsilon,
        feature_norm=1.0,
        target_norm=NORM * math.sqrt(Y.shape[1]),
        fit_intercept=False,
        delta=DELTA,
        noise="seeded",
        random_state=seed,
    ).fit(X, Y)


def measure(settings: Settings, seed: int) -> Record:
    """Return error, coverage of 95 % intervals of coefficients, and the error of predicting 0."""
    X, Y, W = make_task(settings["users"], settings["features"], settings["targets"], seed)
    model = fit(settings["epsilon"], X, Y, seed)
    best = np.linalg.lstsq(X, Y, rcond=None)[0]
    low, high = model.coef_interval()
    return {
        "error": math.sqrt(float(((X @ (model.coef_.T - best)) ** 2).mean())),
        "predict 0": math.sqrt(float(((X @ best) ** 2).mean())),
        "coverage": float(((low <= W.T) & (high >= W.T)).mean()),
    }


def make_task(
    n: int, p: int, m: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return X (n, p), Y (n, m) and the coefficients (p, m)."""
    rng = np.random.default_rng([seed, n, p, m])
    X = rng.standard_normal((n, p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    W = rng.standard_normal((p, m))
    W /= np.linalg.norm(W, axis=0)
    return X, X @ W + rng.uniform(-0.5, 0.5, (n, m)), W
