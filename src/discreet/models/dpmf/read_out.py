"""Fold-in rules from what ranking learned: (8) of `ranking`, communities, profiles."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.features import Categories
from discreet.models.algorithm import Learned
from discreet.models.dpmf.pair_factorization import FittedFactors
from discreet.models.dpmf.profile import fit_profile, read_profile
from discreet.models.dpmf.summary import with_profile
from discreet.models.fold_in import (
    CommunityFoldIn,
    CommunityPairsFoldIn,
    CommunityProfileFoldIn,
    FoldIn,
    PosteriorMeanFoldIn,
    ProfileFoldIn,
)
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import Session
from discreet.privacy.users.sealed_users import Users

# of pairs next to communities. On split 11 of two data sets of books, .12 to .5 find 5–8 % more at
# ε = 5 and 20; where pairs say less, as in generated communities, more weight finds less
PAIRS_WEIGHT = 0.12
LEAST_POPULARITY = 1e-3  # of the median: the least that an item has, since its logarithm is used


def fold_in_rule(V: NDArray[Any], c: NDArray[Any], size: float) -> tuple[NDArray[Any], float]:
    """R of (8), and u₀: E u uᵀ = I is the scale of V, and E u follows from the counts; nothing
    is tuned.
    """
    popular = (V * c[:, None]).sum(axis=0) / c.sum()
    length = max(float(np.linalg.norm(popular)), 1e-30)
    r = len(popular)
    R = np.linalg.qr(np.column_stack([popular / length, np.eye(r)]))[0][:, :r]
    R[:, 0] *= 1.0 if R[:, 0] @ popular >= 0 else -1.0
    return R, min(1 / (math.sqrt(size) * length), 1.0)


_Gain = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
_GAINS: dict[int, tuple[weakref.ref[Any], _Gain]] = {}


def gain_of(learned: Learned) -> _Gain:
    """Return which row of the gain is an item's; the gain, (core, r); what is added to it; u of an
    empty history.

    It follows from what is saved, so it is not saved itself; it is kept as long as the factors are.
    """
    key = id(learned.factors)
    known = _GAINS.get(key)
    if known is None or known[0]() is not learned.factors:
        known = (weakref.ref(learned.factors, lambda _: _GAINS.pop(key, None)), _gain(learned))
        _GAINS[key] = known
    return known[1]


def _gain(learned: Learned) -> _Gain:
    assert learned.counts is not None
    core = np.asarray(learned.details["core"], np.int64)
    c = np.maximum(learned.counts[core], learned.details["least_count"])
    Y = learned.factors[core] * c[:, None] ** learned.details["discount"]
    return _gain_of_pairs(core, len(learned.factors), Y, c, learned.details)


def _gain_of_pairs(
    core: NDArray[np.int64],
    n_items: int,
    Y: NDArray[Any],
    c: NDArray[Any],
    details: Mapping[str, Any],
) -> _Gain:
    """Return (8) for the core's Y and counts."""
    lean = details["lean"]
    precision = np.ones(Y.shape[1])
    precision[0] = details["lean_precision"]
    YD = Y / (c / c.sum())[:, None]
    gain = YD @ np.linalg.inv(np.diag(precision) + Y.T @ YD)
    prior = np.zeros(Y.shape[1])
    prior[0] = lean
    base = prior - prior @ (Y.T @ gain)
    place = np.full(n_items, -1, np.int32)
    place[core] = np.arange(len(core))
    return place, gain.astype(np.float32), base.astype(np.float32), prior.astype(np.float32)


# ------------------------------------------------------------------ profiles


def add_profile(
    learned: Learned,
    users: Users,
    session: Session,
    lines: list[Release],
    categories: list[Categories],
    size: float,
    levels: int,
) -> Learned:
    """Return the same with the profile among its details, where its weights stand out of the
    noise.
    """
    least = 1e-12
    if learned.factors.size and "communities" not in learned.details:
        usual = np.maximum(learned.factors @ gain_of(learned)[3], 0.0)
        least = max(LEAST_POPULARITY * float(np.median(usual)), least)
    popularity, vectors = popularity_of(learned, least)
    profile = fit_profile(
        session,
        users,
        lines,
        popularity,
        positive_counts(learned),
        vectors,
        categories,
        size,
        levels,
        (learned.details.get("strength", 0.0), learned.details.get("steps", 0)),
    )
    if profile is None:
        return learned
    names = ", ".join(one.name for one in categories)
    said = with_profile(str(learned.details["learned"]), names)
    profile["least_popularity"] = least
    return replace(learned, details={**learned.details, "profile": profile, "learned": said})


def positive_counts(learned: Learned) -> NDArray[np.float64]:
    assert learned.counts is not None
    return np.asarray(np.maximum(learned.counts, learned.details["least_count"]))


def popularity_of(
    learned: Learned, least: float
) -> tuple[NDArray[np.float64], tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """log pop of every item, at least log `least`, and factors, gain (items, r) and base of (8)."""
    n, r = learned.factors.shape
    if not r:
        none = np.zeros((n, 0), np.float32)
        return np.log(positive_counts(learned)), (none, none, np.zeros(0, np.float32))
    if "communities" in learned.details:
        P = learned.factors
        shares = np.asarray(learned.details["communities"])
        return np.log(P.astype(np.float64) @ shares), (P, P, shares.astype(np.float32))
    place, gain, base, prior = gain_of(learned)
    score = learned.factors.astype(np.float64) @ prior
    own = np.zeros((n, r), np.float32)
    own[place >= 0] = gain[place[place >= 0]]
    return np.log(np.maximum(score, least)), (learned.factors, own, base)


def pair_fold_in(learned: Learned, liked: Mapping[str, Any]) -> FoldIn:
    """Return (8); `liked` is the rule by which the items of a history are liked."""
    place, gain, base, prior = gain_of(learned)
    return PosteriorMeanFoldIn(place=place, gain=gain, base=base, prior=prior, **liked)


def community_fold_in(learned: Learned, liked: Mapping[str, Any]) -> FoldIn:
    """Return the mixture of communities that explains a history, with vectors of pairs if any."""
    numbers = community_numbers(learned)
    if "pairs" not in learned.details:
        return CommunityFoldIn(**numbers, **liked)
    assert learned.counts is not None
    pairs = learned.details["pairs"]
    core = np.asarray(pairs["core"], np.int64)
    c = np.maximum(learned.counts[core], learned.details["least_count"])
    K = len(numbers["shares"])
    Y = learned.factors[core, K:].astype(np.float64) / pairs["weight"]
    place, *of_pairs = _gain_of_pairs(core, len(learned.factors), Y, c, pairs)
    r = Y.shape[1]
    numbers["shares"] = np.pad(numbers["shares"], (0, r))
    gain, base, prior = (np.pad(one, [(0, 0)] * (one.ndim - 1) + [(K, 0)]) for one in of_pairs)
    numbers |= {"place": place, "gain": gain, "base": base, "prior": prior}
    return CommunityPairsFoldIn(**numbers, **liked)


def add_pairs(
    P: NDArray[np.float32],
    shares: NDArray[np.float64],
    core: NDArray[np.int64],
    fitted: FittedFactors,
    c: NDArray[Any],
    size: float,
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Return factors whose scores are those of communities plus `PAIRS_WEIGHT` times those of the
    core's pairs, scaled to an equal sum over the core for a user without a history; and what
    `community_fold_in` needs.
    """
    R, lean = fold_in_rule(fitted.V, c, size)
    Y = c[:, None] * (fitted.V @ R) / math.sqrt(size)
    length = np.linalg.norm(Y, axis=0)
    # others are hidden by the noise; the first is popularity
    Y = Y[:, np.append(True, length[1:] > 0.1 * length.max())]
    popular = max(float(np.maximum(lean * Y[:, 0], 0.0).sum()), 1e-30)
    weight = PAIRS_WEIGHT * float((P[core] @ shares).sum()) / popular
    factors = np.zeros((len(P), P.shape[1] + Y.shape[1]), np.float32)
    factors[:, : P.shape[1]] = P
    factors[core, P.shape[1] :] = weight * Y
    pairs = {
        "core": core.tolist(),
        "lean": lean,
        "lean_precision": 1 / max(1 - lean**2, 0.02),
        "weight": weight,
    }
    return factors, pairs


def profile_fold_in(learned: Learned, liked: Mapping[str, Any]) -> FoldIn:
    """Return the fold-in with the profile that is among the details."""
    n, r = learned.factors.shape
    popularity, _ = popularity_of(learned, learned.details["profile"]["least_popularity"])
    weights, arrays, numbers = read_profile(
        learned.details["profile"], positive_counts(learned), r > 0
    )
    profile = {
        "popularity": popularity.astype(np.float32),
        "feature_weights": weights,
        **numbers,
        **arrays,
        **liked,
    }
    if "communities" in learned.details:
        return CommunityProfileFoldIn(**community_numbers(learned), **profile)
    place = np.full(n, -1, np.int32)
    gain = np.zeros((1, r), np.float32)
    base = prior = np.zeros(r, np.float32)
    if r:
        place, gain, base, prior = gain_of(learned)
    return ProfileFoldIn(place=place, gain=gain, base=base, prior=prior, **profile)


def community_numbers(learned: Learned) -> dict[str, Any]:
    """Parameters of a `CommunityFoldIn`."""
    return {
        "strength": learned.details["strength"],
        "steps": learned.details["steps"],
        "shares": np.asarray(learned.details["communities"], np.float64),
    }
