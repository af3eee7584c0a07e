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
from discreet.models.dpmf.profile import fit_profile, read_profile
from discreet.models.dpmf.summary import with_profile
from discreet.models.fold_in import (
    CommunityFoldIn,
    CommunityProfileFoldIn,
    FoldIn,
    PosteriorMeanFoldIn,
    ProfileFoldIn,
)
from discreet.privacy.release.plan import Release
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.pairs import LikeCounts
from discreet.privacy.users.sealed_users import Users

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
    lean = learned.details["lean"]
    precision = np.ones(Y.shape[1])
    precision[0] = learned.details["lean_precision"]
    YD = Y / (c / c.sum())[:, None]
    gain = YD @ np.linalg.inv(np.diag(precision) + Y.T @ YD)
    prior = np.zeros(Y.shape[1])
    prior[0] = lean
    base = prior - prior @ (Y.T @ gain)
    place = np.full(len(learned.factors), -1, np.int32)
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
    """Return the same with the profile among its details, where its weights stand out of the noise.

    Without categories the lines release counts, which nothing uses: the plan was made before.
    """
    if not categories:
        for line in lines:
            session.release(line, users.sum(LikeCounts(levels)))
        return learned
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
    """Return the mixture of communities that explains a history."""
    return CommunityFoldIn(**community_numbers(learned), **liked)


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
