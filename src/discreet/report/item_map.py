"""Item map and sample histories, computed from item factors without access to ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import top_k

GRID = 4095  # positions along each side of the map: finer than any screen
MOST_NEIGHBORS = 6000  # items up to which similar items are stored; more would make a large page
RANK_SHARE = 0.6  # of a coordinate: chosen by eye on four models, from an even spread to clusters
LONGEST = 110  # characters of a title on the map


@dataclass(frozen=True)
class Map:
    """Items in the plane of the first two principal components, stretched where they are dense.

    Attributes
    ----------
    at : positions of the items in the model's catalog
    x, y : coordinates, 0 to `GRID`
    length : norm of the factors that items are compared by, in percent of the largest
    share : fraction of the variance in the plane
    alike : positions (in ``at``) of the most similar items, or None
    """

    at: NDArray[np.int64]
    x: NDArray[np.int64]
    y: NDArray[np.int64]
    length: NDArray[np.int64]
    share: float
    alike: NDArray[np.int32] | None


@dataclass(frozen=True)
class Sample:
    """A history (titles with ratings) and its recommendations (titles with scores)."""

    name: str
    history: list[tuple[str, float]]
    best: list[tuple[str, float]]
    invented: bool


def names(model: Any) -> list[str]:
    """Return titles, or ids as text if there are none."""
    return [
        str(name) for name in (model.item_ids_ if model.titles_ is None else model.titles_).tolist()
    ]


def item_map(model: Any) -> Map | None:
    """Compute principal components of what items are compared by; None if all are equal."""
    V = model.item_similarity().vectors(model.item_factors_).astype(np.float64)
    length = np.linalg.norm(V, axis=1)
    at = np.flatnonzero(length > 0)
    if len(at) < 3:
        return None
    V = V[at]
    centered = V - V.mean(axis=0)
    values, axes = np.linalg.eigh(centered.T @ centered)
    if values[-1] <= 0:
        return None
    if V.shape[1] == 1:  # the bias is the second dimension of a single factor
        plane = np.column_stack([centered[:, 0], model.item_biases_[at].astype(np.float64)])
        share = 1.0
    else:
        axes = axes[:, [-1, -2]]
        # the sign of an eigenvector is arbitrary: fix it, so that the map is reproducible
        axes *= np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
        plane = centered @ axes
        share = float(values[-2:].sum() / values.sum())
    x, y = (np.rint(_stretch(plane) * GRID)).astype(np.int64).T
    relative = np.rint(100 * length[at] / length.max()).astype(np.int64)
    alike = _alike(V / length[at, None]) if len(at) <= MOST_NEIGHBORS else None
    return Map(at, x, y, relative, share, alike)


def _stretch(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return coordinates from 0 to 1 that use the space: distance, averaged with the rank.

    By distance alone, a few items with large factors leave most of the map empty; by rank alone,
    groups of items would not show.
    """
    rank = plane.argsort(axis=0, kind="stable").argsort(axis=0) / max(len(plane) - 1, 1)
    linear = (plane - plane.min(axis=0)) / np.maximum(np.ptp(plane, axis=0), 1e-30)
    both = RANK_SHARE * rank + (1 - RANK_SHARE) * linear
    return np.asarray((both - both.min(axis=0)) / np.maximum(np.ptp(both, axis=0), 1e-30))


def _alike(W: NDArray[np.float64], n: int = 5) -> NDArray[np.int32]:
    """Return the n items most similar to each, without itself."""
    W = W.astype(np.float32)
    found, _ = top_k(W, W, np.zeros(len(W), np.float32), min(n + 1, len(W)))
    kept = np.full((len(W), n), -1, np.int32)
    for row, best in enumerate(found):
        others = best[(best != row) & (best >= 0)][:n]
        kept[row, : len(others)] = others
    return kept


def map_data(drawn: Map, model: Any) -> dict[str, Any]:
    """Return the data that the page's script draws."""
    titles = names(model)
    shown = [
        titles[a] if len(titles[a]) <= LONGEST else titles[a][: LONGEST - 1] + "…"
        for a in drawn.at.tolist()
    ]
    return {
        "grid": GRID,
        "x": drawn.x.tolist(),
        "y": drawn.y.tolist(),
        "length": drawn.length.tolist(),
        "titles": shown,
        "alike": None if drawn.alike is None else drawn.alike.tolist(),
    }


def samples(model: Any, n: int = 10, how_many: int = 4, long: int = 5) -> list[Sample]:
    """Make histories of similar items, different from each other, with recommendations."""
    return [
        sample_recommendations(model, history, f"A user who liked {name}", n, invented=True)
        for name, history in _histories(model, how_many, long)
    ]


def sample_recommendations(
    model: Any, history: dict[Any, float], name: str, n: int, *, invented: bool = False
) -> Sample:
    """Compute recommendations for one history, {item id: rating}."""
    titles = dict(zip(model.item_ids_.tolist(), names(model), strict=True))
    ids, scores = model.recommend(history, n)
    best = [
        (titles[item], float(score))
        for item, score in zip(ids.tolist(), scores.tolist(), strict=True)
    ]
    return Sample(
        name, [(titles[item], float(rating)) for item, rating in history.items()], best, invented
    )


def _histories(model: Any, how_many: int, long: int) -> list[tuple[str, dict[Any, float]]]:
    liked = 1.0 if model.rating_range_ is None else float(model.rating_range_[1])
    titles = names(model)
    ids = model.item_ids_.tolist()
    length = np.linalg.norm(model.item_factors_.astype(np.float64), axis=1)
    pool = np.flatnonzero(length > 0)
    if len(pool) < 2 * long:  # nothing to tell items apart by
        return [(titles[0], dict.fromkeys(ids[:long], liked))]
    # those learned best
    pool = pool[np.argsort(-length[pool], kind="stable")[: max(len(pool) // 2, 2 * long)]]
    W = model.item_factors_[pool] / length[pool, None]
    chosen = [0]
    while len(chosen) < how_many:  # each time the item least like all chosen ones
        chosen.append(int((W @ W[chosen].T).max(axis=1).argmin()))
    found = []
    for anchor in dict.fromkeys(chosen):
        nearest = np.argsort(-(W @ W[anchor]), kind="stable")[:long]
        found.append((titles[pool[anchor]], {ids[pool[at]]: liked for at in nearest.tolist()}))
    return found
