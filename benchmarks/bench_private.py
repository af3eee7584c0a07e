"""What secure noise costs: a whole item step of DPALS with secure and with seeded noise, in turn;
and its memory.

An item step releases the right-hand sides and the Gram matrices of all items, projects, and solves.
With seeded noise, sums are made in float32 and noise is drawn in float32; with secure noise,
contributions are rounded to integers, summed exactly in float64, and noise is drawn by an exact
sampler on AES. The goals: at most twice the time at rank 64, and less than 3 GB at rank 128, both
on 20,000 items.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from discreet.data.ratings import Ratings
from discreet.kernels import solve_psd
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.noise.sources import SecureNoise, SeededNoise
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.base import triangle_size, unpack
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemGrams, ItemSums
from discreet.privacy.statistics.sums import Sum
from discreet.privacy.users.sealed_users import Users, seal
from discreet.privacy.users.steps import Choose, Solve

RATIO = 2.0
GIGABYTES = 3.0
ITEMS = 20_000
MAX_ITEMS = 50


def benchmark(quick: bool = False, repeats: int = 3) -> dict[str, Any]:
    """Seconds of an item step by grade of noise, their ratio, where the time goes, and peak
    memory.
    """
    n_items, n_users = (1_000, 7_000) if quick else (ITEMS, 140_000)
    users = sealed_users(n_users, n_items, 64)
    parts: dict[str, dict[str, float]] = {}
    for grade in ("seeded", "secure"):  # compiles what is not compiled yet
        item_step(sealed_users(500, 64, 64), grade)
    for _ in range(repeats):
        for grade in ("seeded", "secure"):
            found = timed_step(users, grade)
            if grade not in parts or found["whole"] < parts[grade]["whole"]:
                parts[grade] = found
    run = subprocess.run(
        [sys.executable, "-m", __name__, str(n_items), str(n_users)],
        capture_output=True,
        text=True,
        check=True,
    )
    secure, seeded = parts["secure"], parts["seeded"]
    return {
        "items": n_items,
        "users": n_users,
        "rank": 64,
        "seconds": parts,
        "ratio": secure["whole"] / seeded["whole"],
        "release_ratio": (secure["sums"] + secure["noise"]) / (seeded["sums"] + seeded["noise"]),
        **json.loads(run.stdout),
    }


def show(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    seconds = result["seconds"]
    names = [name for name in seconds["secure"] if name != "whole"]
    lines = [
        "## Secure noise",
        "",
        (
            f"One item step of DPALS, {result['items']:,} items, rank {result['rank']},"
            f" {result['users']:,} users with {MAX_ITEMS} items each; seconds, best of alternating"
            " runs."
        ),
        "",
        "| noise | whole step | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for grade in ("seeded", "secure"):
        each = " | ".join(f"{seconds[grade][name]:.2f}" for name in names)
        lines.append(f"| {grade} | {seconds[grade]['whole']:.2f} | {each} |")
    return [
        *lines,
        "",
        (
            f"With secure noise the step takes {result['ratio']:.2f} times as long as with seeded"
            f" noise (goal: at most {RATIO:g}); sums and noise alone, {result['release_ratio']:.2f}"
            f" times. At rank 128 the secure step peaks at {result['peak_gigabytes']:.2f} GB of"
            f" memory (goal: below {GIGABYTES:g}), and data and program had peaked at"
            f" {result['before_gigabytes']:.2f} GB before it."
        ),
    ]


def sealed_users(n_users: int, n_items: int, rank: int) -> Users:
    """Users with 60 ratings each, most of them of a few items, who have their vectors and know
    what they contribute.
    """
    rng = np.random.default_rng(0)
    each = min(60, n_items // 2)
    items = np.sort((n_items * rng.random((n_users, 2 * each)) ** 1.5).astype(np.int32), axis=1)
    new = np.diff(items, axis=1, prepend=-1) > 0
    new &= np.cumsum(new, axis=1) <= each
    values = rng.choice([-1.0, -0.5, 0.5, 1.0], int(new.sum()))
    indptr = np.concatenate([[0], np.cumsum(new.sum(axis=1))])
    ratings = Ratings.from_indices(
        indptr, items[new], values, np.arange(n_users), np.arange(n_items), catalog=True
    )
    users = seal(ratings, Bounds(items=MAX_ITEMS, rating=1.0))
    users.apply(Choose())
    users.apply(
        Solve(rng.standard_normal((n_items, rank), dtype=np.float32) * np.float32(0.3), 5.0)
    )
    return users


def item_step(users: Users, grade: str) -> np.ndarray:
    """As DPALS does it: release both sums, project, solve."""
    n, r = users.n_items, users.rank
    plan = Plan.calibrate(
        [Release("sum", shape=(n, r)), Release("gram", shape=(n, triangle_size(r)))], Budget(10.0)
    )
    session = Session(plan, grade, random_state=0 if grade == "seeded" else None)  # type: ignore[arg-type]
    g = session.release("sum", users.sum(ItemSums()), np.float32)
    V = np.empty((n, r), np.float32)
    ridge = np.full(n, 30.0)
    for rows, G in session.release_blocks("gram", users.sum(ItemGrams()), dtype=np.float32):
        V[rows] = solve_psd(unpack(G, r), g[rows], ridge[rows])
    session.finish()
    return V


def timed_step(users: Users, grade: str) -> dict[str, float]:
    """Seconds of one item step: whole, and by what it is spent on."""
    spent = {"sums": 0.0, "noise": 0.0}
    with (
        _clock(Sum, "compute", "sums", spent),
        _clock(SecureNoise, "add", "noise", spent),
        _clock(SeededNoise, "add", "noise", spent),
    ):
        start = time.perf_counter()
        item_step(users, grade)
        whole = time.perf_counter() - start
    return {"whole": whole, **spent, "projecting and solving": whole - sum(spent.values())}


@contextmanager
def _clock(owner: type, name: str, what: str, spent: dict[str, float]) -> Iterator[None]:
    original = getattr(owner, name)

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*arguments, **options)
        finally:
            spent[what] += time.perf_counter() - start

    with patch.object(owner, name, timed):
        yield


def main(n_items: int, n_users: int) -> None:
    """Peak memory of a secure item step at rank 128, for a process of its own."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    users = sealed_users(n_users, n_items, 128)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    item_step(users, "secure")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    print(json.dumps({"before_gigabytes": before / 1e9, "peak_gigabytes": peak / 1e9}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
