"""A private model for ratings at full size: 95 million ratings of a million users, secure noise,
in memory.

Users have a taste that can be learned, so that every part of the algorithm runs:
biases, pairs of residuals, and steps for factors. Everything happens in a process of its own, whose
peak memory counts, data included.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.bench_machine import peak_gigabytes
from discreet.data.ratings import Ratings

SHAPE = (1_000_000, 50_000, 95)  # users, items, ratings of each
INVENTED = 100_000  # users who differ from each other
TASTES = 4
EPSILON = 5.0
GOALS = {"seconds": 50.0, "gigabytes": 4.0}


def benchmark(quick: bool = False) -> dict[str, Any]:
    """Seconds, CPU seconds and peak memory of one training; the first of a small size compiles."""
    people, items, each = SHAPE
    if quick:
        people //= 20
        items //= 20
    measured: dict[str, Any] = {}
    for size in ((people // 200, items // 100), (people, items)):
        words = [sys.executable, "-m", __name__, *map(str, (*size, each))]
        measured = json.loads(
            subprocess.run(words, capture_output=True, text=True, check=True).stdout
        )
    return measured


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    return [
        "## Private ratings at full size",
        "",
        f'`DPMF(goal="rating")` at ε = {EPSILON:g} with secure noise, {result["ratings"]:,}'
        " ratings of "
        f"{result['people']:,} users and {result['items']:,} items, in memory:"
        f" {result['seconds']:.0f} s (goal: at "
        f"most {GOALS['seconds']:g}), {result['cpu']:.0f} CPU seconds, peak memory"
        f" {result['gigabytes']:.2f} GB with "
        f"the data (goal: at most {GOALS['gigabytes']:g}; the data alone are"
        f" {result['data_gigabytes']:.2f} GB, and "
        f"making them peaked at {result['before_gigabytes']:.2f} GB). It learned"
        f" {result['factors']} factors.",
    ]


def generated(people: int, items: int, each: int, seed: int = 0) -> Ratings:
    """People with a taste of a few dimensions, who rate popular items most; about `each` ratings a
    person.

    Beyond so many the same users come again, because inventing them would take longer than
    learning from them.
    """
    if people > INVENTED:
        few = generated(INVENTED, items, each, seed)
        times = -(-people // INVENTED)
        counts = np.tile(np.diff(few.indptr), times)[:people]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        n = int(indptr[-1])
        item = np.tile(few.indices, times)[:n]
        rating = np.tile(few.values, times)[:n]
        return Ratings.from_indices(
            indptr, item, rating, np.arange(people), np.arange(items), catalog=True
        )
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((items, TASTES)).astype(np.float32) * np.float32(0.4)
    b = rng.standard_normal(items).astype(np.float32) * np.float32(0.4)
    draws = round(each * 1.012)  # some are drawn twice
    item = np.empty(people * draws, np.int32)
    rating = np.empty(people * draws, np.float32)
    indptr = np.zeros(people + 1, np.int64)
    for begin in range(0, people, 10_000):
        many = min(10_000, people - begin)
        drawn = (items * rng.random((many, draws)) ** 2.5).astype(np.int64)
        key = np.unique(drawn + items * np.arange(many)[:, None])
        row, j = np.divmod(key, items)
        U = rng.standard_normal((many, TASTES)).astype(np.float32)
        stars = (
            3.5
            + b[j]
            + np.einsum("er,er->e", U[row], V[j])
            + 0.9 * rng.standard_normal(len(j), np.float32)
        )
        here = slice(indptr[begin], indptr[begin] + len(j))
        item[here] = j
        rating[here] = np.clip(np.rint(stars), 1, 5)
        indptr[begin + 1 : begin + many + 1] = indptr[begin] + np.searchsorted(
            row, np.arange(1, many + 1)
        )
    n = int(indptr[-1])
    return Ratings.from_indices(
        indptr, item[:n], rating[:n], np.arange(people), np.arange(items), catalog=True
    )


def main(people: int, items: int, each: int) -> None:
    """One training, for a process of its own."""
    from discreet.models.dpmf import DPMF

    logging.getLogger("discreet").setLevel(logging.ERROR)
    ratings = generated(people, items, each)
    before = peak_gigabytes()
    start = time.perf_counter()
    cpu = time.process_time()
    model = DPMF(epsilon=EPSILON, goal="rating", rating_range=(1.0, 5.0)).fit(ratings)
    found = {
        "people": people,
        "items": items,
        "ratings": ratings.n_ratings,
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "gigabytes": peak_gigabytes(),
        "before_gigabytes": before,
        "data_gigabytes": (
            (ratings.indices.nbytes + ratings.values.nbytes + ratings.indptr.nbytes) / 1e9
        ),
        "factors": int(np.any(model.item_factors_ != 0, axis=0).sum()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
