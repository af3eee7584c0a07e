"""A user's own profile in public features, as a factor on any ranking score.

"More by the authors, genres or decades that I have" needs released counts, public features and the
user's own history, and nothing else. Item j has for a user the log lifts φ_fj of its features
(`discreet.kernels.profiles`), and

    score_j = w₀ log pop_j + w₁ log(base_j/pop_j) + Σ_f w_f φ_fj                                 (1)

where base_j is the score of the factor model and pop_j that of a user without a history; without
factors there is no w₁. The weights are estimated with a small part of the budget. Users leave out
items of their own and release the gradient g and the curvature H of a choice model at w = w⁰
(`discreet.privacy.statistics.choice_moments`), with known noise. To second order
g = H (w* − w) + noise, so with the prior w* ~ N(w⁰, P⁻¹), w⁰ = (1, 1, 0, …, 0), the mean and the
precision of w* are

    (A + P)⁻¹ (A w + H Σ⁻¹ g + P w⁰),   A + P,   with Σ = s_g² I + 2 H/L,   A = H Σ⁻¹ H        (2)

H being shrunk by its own noise, and L the number of items that each user left out. A second step
starts from there, with what the first one found as its prior. Both see the same choices, so each
counts their chance twice. Where no weight of a feature stands out of its deviation, (1) is not
used and the model is what it would be without a profile.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.features import Categories
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.base import triangle_size
from discreet.privacy.statistics.choice_moments import (
    CLIP,
    CURVATURE,
    GRADIENT,
    ChoiceMoments,
    ProfileInputs,
)
from discreet.privacy.users.sealed_users import Users

TAU = 10.0  # choices that everyone is taken to have made as all others
FLOOR = 0.05  # of popularity: the least that a factor model's score counts as
SHARE = 0.05  # of the budget for the weights
# half of it each; one step from weights of 0 goes too far where features say much
STEPS = ("feature weights 1", "feature weights 2")
# deviations of the weights before anything is known: of popularity and factors, and of features
BASE_SPREAD = 1.5  # with less, features stand in for popularity that is all noise
FEATURE_SPREAD = 0.7
LEAST_BASE = 0.2  # popularity and factors never count against an item, whatever the noise is
EXPONENTS = (0.0, 0.3, 0.7, 1.2)  # of features, in scores whose best items are choice sets
# how often chance alone may make a weight stand out, of all features together: with so few users
# that weights are uncertain, real ones gain much more than what chance costs
FALSE_ALARMS = 0.05
# most popular items, which choice sets are made of: with 1,000, weights on a long tail follow the
# most popular items alone, and with 8,000 they follow rare ones, whose popularity is mostly noise
CANDIDATES = 2000
# choices, over μ below 1: of more users a part takes part, and of fewer each leaves out up to
# MOST_LEFT_OUT items, so that the time is about the same for all data
ENOUGH = 6000
MOST_LEFT_OUT = 4


@dataclass(frozen=True)
class ProfileWeights:
    """w of (1) with its deviations, and whether any of a feature stands out."""

    w: NDArray[np.float64]
    deviation: NDArray[np.float64]
    kept: bool


def example_moments(n_items: int) -> ChoiceMoments:
    """Return the statistic of the weights for a plan without data: one feature that no item has."""
    one = np.ones(1)
    none = np.zeros((n_items, 0), np.float32)
    inputs = ProfileInputs(
        np.zeros(1, np.int64),
        one,
        one,
        none.T[:, :1],
        none,
        np.zeros(0, np.float32),
        FLOOR,
        np.zeros((1, n_items + 1), np.int64),
        np.zeros(0, np.int32),
        np.zeros(0),
        TAU,
    )
    return ChoiceMoments(inputs, np.ones(2), np.ones(1))


def fit_profile(
    session: Session,
    users: Users,
    lines: list[Release],
    popularity: NDArray[np.float64],
    counts: NDArray[np.float64],
    vectors: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    categories: list[Categories],
    size: float,
    levels: int,
    mixture: tuple[float, int] = (0.0, 0),
) -> dict[str, Any] | None:
    """Return the weights and features, as plain values, or None where no weight stands out.

    Parameters
    ----------
    popularity, counts : (n_items,)
        log pop of (1), and released counts, positive.
    vectors : factors (n_items, r), gain (n_items, r) and base (r,) of the read-out
    mixture : strength and steps, where the read-out is a mixture of communities
    """
    factors, gain, base = vectors
    starts, values = stack_categories(categories)
    some = np.argsort(-counts, kind="stable")[:CANDIDATES]
    inputs = ProfileInputs(
        some,
        popularity[some],
        counts[some],
        np.ascontiguousarray(factors[some].T),
        gain,
        base,
        FLOOR,
        starts,
        values,
        value_rarity(categories, counts),
        TAU,
        *mixture,
    )
    found = fit_weights(session, users, lines, inputs, size, levels)
    if not found.kept:
        return None
    return {
        "weights": found.w.tolist(),
        "deviations": found.deviation.tolist(),
        "floor": FLOOR,
        "tau": TAU,
        "features": [
            {
                "name": one.name,
                "sizes": pack_integers(np.diff(one.starts)),
                "values": pack_integers(one.values),
                "n_values": len(one.names),
            }
            for one in categories
        ],
    }


def pack_integers(values: NDArray[Any]) -> str:
    """Numbers from 0 on as text, by the fewest bytes each: a third of their length in JSON."""
    width = next(w for w in (1, 2, 4) if values.max(initial=0) < 256**w)
    return f"{width}:{base64.b64encode(values.astype(f'<u{width}').tobytes()).decode()}"


def unpack_integers(text: str) -> NDArray[np.int64]:
    width, _, data = text.partition(":")
    return np.frombuffer(base64.b64decode(data), f"<u{int(width)}").astype(np.int64)


def read_profile(
    profile: dict[str, Any], counts: NDArray[np.float64], has_factors: bool
) -> tuple[NDArray[np.float64], dict[str, Any], dict[str, Any]]:
    """Feature weights, arrays and numbers of a `ProfileFoldIn` from what `fit_profile` gave."""
    categories = [
        Categories(
            one["name"],
            ("",) * int(one["n_values"]),
            np.concatenate([[0], np.cumsum(unpack_integers(one["sizes"]))]),
            unpack_integers(one["values"]).astype(np.int32),
        )
        for one in profile["features"]
    ]
    starts, values = stack_categories(categories)
    w = np.asarray(profile["weights"], np.float64)
    first = 1 + has_factors
    arrays = {
        "starts": starts.astype(np.int32),
        "values": values,
        "inverse": value_rarity(categories, counts),
    }
    numbers: dict[str, Any] = {
        "popularity_weight": float(w[0]),
        "factor_weight": float(w[1]) if has_factors else 0.0,
        "floor": float(profile["floor"]),
        "tau": float(profile["tau"]),
    }
    return w[first:], dict(arrays), numbers


def value_rarity(categories: list[Categories], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """1/p(v) of all values, p(v) being the share of all choices, at least one of a thousand times
    the number of values.
    """
    shares = []
    for one in categories:
        many = np.diff(one.starts)
        item = np.repeat(np.arange(len(many)), many)
        c = np.where(many[item] > 0, counts[item] / np.maximum(many[item], 1), 0.0)
        total = np.bincount(one.values, c, minlength=len(one.names))
        shares.append(np.maximum(total / max(float(total.sum()), 1e-300), 1e-9))
    return 1 / np.concatenate([np.zeros(0), *shares])


def stack_categories(categories: list[Categories]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Starts (features, items + 1) and values numbered over all features."""
    starts = []
    values = []
    before = 0
    entries = 0
    for one in categories:
        starts.append(one.starts + entries)
        values.append(one.values + before)
        before += len(one.names)
        entries += len(one.values)
    return np.array(starts, np.int64), np.concatenate(values).astype(np.int32)


def fit_weights(
    session: Session,
    users: Users,
    lines: list[Release],
    inputs: ProfileInputs,
    size: float,
    levels: int,
) -> ProfileWeights:
    """Fit the weights of (2), one step for each line."""
    from scipy.special import ndtri

    d = inputs.size
    first = d - len(inputs.starts)
    center = np.append(np.ones(first), np.zeros(d - first))
    spread = np.append(np.full(first, BASE_SPREAD), np.full(d - first, FEATURE_SPREAD))
    precision = np.diag(spread**-2.0)
    mu = math.sqrt(sum(session.plan.noise_multiplier(line) ** -2 for line in lines) / SHARE)
    each = ENOUGH * max(1.0, 1 / mu) / max(size, 1.0)
    part = min(each, 1.0)
    left_out = int(np.clip(each, 1, MOST_LEFT_OUT))
    w = center
    for line in lines:
        statistic = users.sum(
            ChoiceMoments(
                inputs,
                w,
                np.array(EXPONENTS),
                left_out=left_out,
                least_level=max(3 * levels // 4, 1),
                levels=levels,
                part=part,
            )
        )
        noise = CLIP * session.deviation(line, statistic)
        released = CLIP * session.release(line, statistic)
        w, precision = newton_step(released, noise, w, w, precision, left_out / len(lines))
        w[:first] = np.maximum(w[:first], LEAST_BASE)
    deviation = np.sqrt(np.diag(np.linalg.inv(precision)))
    z = w[first:] / deviation[first:]
    kept = bool(z.max() > ndtri(1 - FALSE_ALARMS / len(z)))
    return ProfileWeights(w, deviation, kept)


def newton_step(
    released: NDArray[np.float64],
    noise: float,
    w: NDArray[np.float64],
    center: NDArray[np.float64],
    prior: NDArray[np.float64],
    left_out: float = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Take one step of (2): the weights and their precision.

    Parameters
    ----------
    released : the sum of (√.6 g, √.4 H), H packed with √2 off the diagonal
    noise : deviation of each of its numbers
    w : where they were taken
    center, prior : mean and precision of the weights before
    left_out : choices of each user that are new to this step
    """
    d = len(w)
    assert len(released) == d + triangle_size(d)
    rows, columns = np.triu_indices(d)
    g = released[:d] / math.sqrt(GRADIENT)
    H = np.zeros((d, d))
    H[rows, columns] = released[d:] / math.sqrt(CURVATURE)
    H[rows, columns] /= np.where(rows == columns, 1.0, math.sqrt(2.0))
    H[columns, rows] = H[rows, columns]
    values, Q = np.linalg.eigh(H)
    above = np.maximum(values, 0.0)
    hidden = noise / math.sqrt(CURVATURE) * math.sqrt(d)
    H = (Q * (above**2 / np.maximum(above + hidden, 1e-300))) @ Q.T
    variance = noise**2 / GRADIENT * np.eye(d) + H / left_out
    HS = H @ np.linalg.inv(variance + 1e-12 * np.eye(d))
    A = HS @ H
    precision = A + prior
    found = np.linalg.solve(precision, A @ w + HS @ g + prior @ center)
    return np.clip(found, -3.0, 3.0), precision
