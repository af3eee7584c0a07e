"""Test that noise is independent, by products of noise for all pairs of releases and all shifts.

If z and z' are independent standard normal noise of two releases, then for every shift s

    t = Σ_i z_i z'_{i+s} / √(Σ_i z_i²)     is standard normal

given z. The test is exact, and finds equal noise (t is about √n) and opposite noise (−√n). In every
training, each release is compared with each other one, and its first half with its second half; in
every second training, also with the same release of the training before. Products are also summed
over all trainings, so that releases of a few numbers are tested as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

#: Numbers compared of each release, which is also the largest shift: time is proportional to it.
COMPARED = 256

Pairs = list[tuple[int, int]]


@dataclass
class Pooled:
    """Sums over trainings with the same releases.

    Attributes
    ----------
    names : a description of each pair
    products, variances : (pairs, shifts)
    """

    names: list[str]
    products: NDArray[np.float64]
    variances: NDArray[np.float64]


@dataclass
class Correlation:
    """Products of noise that should be independent, accumulated with `add`.

    Attributes
    ----------
    pooled : sums over trainings, by the layout of their releases
    tests : number of tests so far
    largest : the largest |t| so far, and its description
    """

    pooled: dict[Any, Pooled] = field(default_factory=dict)
    tests: int = 0
    largest: tuple[float, str] = (0.0, "")
    _before: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def add(self, releases: Sequence[tuple[str, NDArray[np.float64]]]) -> None:
        """Add one training: names of releases and their noise, as standard normal numbers."""
        numbered = _label_releases(releases)
        rows, pairs, names = self._list_comparisons(numbered)
        # Each training is in one pair only, so that all products are independent.
        self._before = {} if self._before else numbered
        if not pairs:
            return
        products, variances = _products(rows, pairs)
        layout = tuple((name, len(z)) for name, z in numbered.items()), len(pairs)
        known = self.pooled.get(layout)
        if known is None:
            self.pooled[layout] = Pooled(names, products, variances)
        else:
            known.products += products
            known.variances += variances
        self._keep_largest(names, products, variances)

    def find_correlation(self, error: float) -> str | None:
        """Describe the largest correlation, if its p-value over all tests is below `error`."""
        for known in self.pooled.values():
            self._keep_largest(known.names, known.products, known.variances)
        size, text = self.largest
        return text if 2 * self.tests * float(norm.sf(size)) < error else None

    def _list_comparisons(
        self, numbered: dict[str, NDArray[np.float64]]
    ) -> tuple[list[NDArray[np.float64]], Pairs, list[str]]:
        """Return the arrays of noise, the pairs to compare, and a description of each pair."""
        rows = list(numbered.values())
        labels = list(numbered)
        pairs = list(combinations(range(len(rows)), 2))
        names = [f"the noise of {labels[i]} and of {labels[j]}" for i, j in pairs]
        for at, (label, z) in enumerate(numbered.items()):
            if len(z) > 1:
                pairs.append((len(rows), len(rows) + 1))
                rows += [z[: len(z) // 2], z[len(z) // 2 :]]
                names.append(f"the noise within {label}")
            if label in self._before:
                pairs.append((at, len(rows)))
                rows.append(self._before[label])
                names.append(f"the noise of {label} in two trainings")
        return rows, pairs, names

    def _keep_largest(
        self, names: list[str], products: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> None:
        there = variances > 0
        t = np.where(there, products, 0.0) / np.sqrt(np.where(there, variances, 1.0))
        self.tests += int(there.sum())
        pair, at = np.unravel_index(int(np.argmax(np.abs(t))), t.shape)
        size = float(abs(t[pair, at]))
        if size > self.largest[0]:
            shift = at if at < COMPARED else at - 2 * COMPARED
            how = "is the same in part" if t[pair, at] > 0 else "has opposite signs"
            where = f", at a shift of {abs(shift)}" if shift else ""
            self.largest = (
                size,
                f"{names[pair]} {how}{where}: {size:.3g} standard deviations from independent",
            )


def _label_releases(
    releases: Sequence[tuple[str, NDArray[np.float64]]],
) -> dict[str, NDArray[np.float64]]:
    """Key the noise by release name, numbered where a name repeats."""
    count: Counter[str] = Counter()
    found = {}
    for name, z in releases:
        count[name] += 1
        label = repr(name) if count[name] == 1 else f"{name!r} ({count[name]})"
        found[label] = np.asarray(z, np.float64).ravel()
    return found


def _products(
    rows: list[NDArray[np.float64]], pairs: Pairs
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Σ_i z_i z'_{i+s} and Σ_i z_i² over the valid i, for every pair and shift s."""
    z = np.zeros((len(rows), COMPARED))
    there = np.zeros_like(z)
    for at, row in enumerate(rows):
        short = row[:COMPARED]
        z[at, : len(short)] = short
        there[at, : len(short)] = 1.0
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    transformed = [np.fft.rfft(one, 2 * COMPARED, axis=1) for one in (z, z**2, there)]
    noise, squares, ones = transformed
    products = np.fft.irfft(noise[first].conj() * noise[second], 2 * COMPARED, axis=1)
    variances = np.fft.irfft(squares[first].conj() * ones[second], 2 * COMPARED, axis=1)
    # Rounding of the transform leaves about 1e-13 where no terms overlap.
    nothing = variances < math.sqrt(np.finfo(float).eps)
    products[nothing] = variances[nothing] = 0.0
    return products, variances
