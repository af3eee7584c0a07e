"""Write docs/results/reference.md (``make results``): references without privacy, and DPMF.

Real data come from ``../shared/data`` (or ``DISCREET_DATA``); simulated data are generated.
Every number is a mean over the seeds or folds given next to it, with the standard deviation over
them.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

import discreet
from discreet.data.splits import Split, k_fold, random_ratings, strong_generalization
from discreet.models.base import Recommender

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("DISCREET_DATA", ROOT.parent / "shared" / "data"))
HEAD = """---
orphan: true
---

# Reference scores

Written by `make results`; do not edit. Seconds are of a shared machine and only indicate size."""
Maker = Callable[[], Recommender]
Rows = list[str]


def scores(
    splits: Iterable[Split], make: Maker, metrics: list[str], prepare: Callable = lambda r: r
) -> dict:
    """Mean and standard deviation of each metric over the splits, and seconds of training."""
    found = []
    seconds = []
    for split in splits:
        start = time.perf_counter()
        model = make().fit(prepare(split.train))
        seconds.append(time.perf_counter() - start)
        found.append(discreet.evaluate(model, split, metrics, slices=None).values)
    values = {m: [f[m] for f in found] for m in metrics}
    spread = {m: np.std(v, ddof=1) if len(v) > 1 else 0.0 for m, v in values.items()}
    return {m: (np.mean(v), spread[m]) for m, v in values.items()} | {"seconds": np.mean(seconds)}


def table(
    title: str,
    note: str,
    splits: list[Split],
    makers: dict[str, Maker],
    metric: str,
    known: dict,
    **more: dict,
) -> Rows:
    """Markdown rows: one model each, with the score it is compared with, if any."""
    out = [
        f"### {title}",
        "",
        note,
        "",
        f"| model | {metric} | reference | seconds to train |",
        "|---|---|---|---|",
    ]
    for name, make in makers.items():
        result = scores(splits, make, [metric], **more.get(name, {}))
        mean, deviation = result[metric]
        spread = f" ± {deviation:.4f}" if len(splits) > 1 else ""
        out.append(
            f"| {name} | {mean:.4f}{spread} | {known.get(name, '')} | {result['seconds']:.1f} |"
        )
        print(out[-1], flush=True)
    return [*out, ""]


def real() -> Rows:
    bias = {"mean, user and item biases: `Bias()`": discreet.Bias}
    ml1m = discreet.Ratings.read(DATA / "ml-1m" / "ratings.parquet")
    rows = table(
        "MovieLens 1M",
        "90/10 split at random over ratings, seeds 0, 1, 2, test RMSE.",
        [random_ratings(ml1m, (0.9, 0.1), seed=s) for s in range(3)],
        bias | {"`ALS()`, the defaults": discreet.ALS, "`ALS(16)`": lambda: discreet.ALS(16)},
        "rmse",
        {
            "`ALS()`, the defaults": (
                "goal ≤ 0.850; tuned factorizations in the literature 0.845–0.855"
            )
        },
    )
    ml100k = discreet.Ratings.read(DATA / "ml-100k" / "ratings.parquet")
    rows += table(
        "MovieLens 100K",
        "Five folds at random over ratings, test RMSE.",
        k_fold(ml100k, 5, seed=0),
        bias | {"`ALS()`, the defaults": discreet.ALS},
        "rmse",
        {"`ALS()`, the defaults": "goal ≤ 0.915; literature 0.91–0.92"},
    )
    sweets = discreet.Ratings.read(DATA / "sweetrs" / "ratings.parquet")
    sweets = sweets.keep(sweets.values > 0)
    rows += table(
        "SweetRS",
        'Zeros ("never tried") left out; 90/10 split at random over ratings, seeds 0, 1, 2, test'
        " RMSE.",
        [random_ratings(sweets, (0.9, 0.1), seed=s) for s in range(3)],
        bias | {"`ALS()`, the defaults": discreet.ALS},
        "rmse",
        {},
    )
    few = ml1m.select_users(np.random.default_rng(0).permutation(ml1m.n_users)[:200], by="index")
    rows += table(
        "200 users of MovieLens 1M",
        "90/10 split at random over ratings, seeds 0, 1, 2, test RMSE: where there is little to"
        " learn from.",
        [random_ratings(few.filter(min_item_ratings=1), (0.9, 0.1), seed=s) for s in range(3)],
        bias | {"`ALS()`, the defaults": discreet.ALS},
        "rmse",
        {},
    )
    return ["## Without privacy: the reference", "", *rows]


def twins() -> Rows:
    a = random_ratings(discreet.load_dataset("twin-ml10m"), (0.8, 0.1, 0.1), seed=0)
    paper = "`ALS(128, regularization=70, user_exponent=1, item_exponent=1, intercepts=False)`"
    makers: dict[str, Maker] = {
        "global mean": lambda: discreet.Bias(0.0, users=False, items=False),
        "item mean": lambda: discreet.Bias(0.0, users=False),
        "user mean": lambda: discreet.Bias(0.0, items=False),
        "mean, user and item biases: `Bias()`": discreet.Bias,
        paper: lambda: discreet.ALS(
            128, regularization=70, user_exponent=1, item_exponent=1, intercepts=False
        ),
        "`ALS(64)`, the defaults otherwise": lambda: discreet.ALS(64),
    }
    known = dict(zip(makers, ("1.057", "0.943", "0.976", "0.863", "0.779"), strict=False))
    rows = table(
        "MovieLens 10M, simulated",
        "80/10/10 at random over ratings, seed 0, test RMSE; the reference is the value that the"
        " simulation was calibrated to.",
        [a],
        makers,
        "rmse",
        known,
    )
    b = strong_generalization(discreet.load_dataset("twin-ml20m"), 10_000, 10_000, seed=0)
    counts = np.bincount(b.train.indices, minlength=b.train.n_items)
    top = b.train.item_ids[np.sort(np.argsort(-counts, kind="stable")[: b.train.n_items // 10])]
    implicit = (
        '`ALS(64, goal="ranking", regularization=40, unobserved_weight=0.2)`, top tenth of the'
        " items"
    )
    makers = {
        "most popular: `Popularity()`": discreet.Popularity,
        implicit: lambda: discreet.ALS(
            64,
            goal="ranking",
            regularization=40,
            unobserved_weight=0.2,
            user_exponent=0,
            item_exponent=0,
            iterations=10,
        ),
    }
    rows += table(
        "MovieLens 20M, simulated",
        "Strong generalization: 10,000 test users never seen in training, 80/20 fold-in,"
        " recall@20.",
        [b],
        makers,
        "recall@20",
        dict(zip(makers, ("0.167", "0.361"), strict=True)),
        **{implicit: {"prepare": lambda r: r.filter(items=top)}},
    )
    return ["## Without privacy: simulated data", "", *rows]


def private() -> Rows:
    """DPMF at several budgets, exactly accounted, compared with what costs nothing."""
    out: Rows = []
    small = discreet.Ratings.read(
        DATA / "ml-1m" / "ratings.parquet", items=DATA / "ml-1m" / "items.parquet"
    )
    cases = {
        "MovieLens 1M": (small, (0.9, 0.1), (1.0, 5.0)),
        "MovieLens 10M, simulated": (
            discreet.load_dataset("twin-ml10m"),
            (0.8, 0.1, 0.1),
            (0.5, 5.0),
        ),
        "cinema": (discreet.load_dataset("cinema"), (0.9, 0.1), (0.5, 5.0)),
    }
    for title, (ratings, fractions, scale) in cases.items():
        splits = [random_ratings(ratings, fractions, seed=s) for s in range(3)]
        makers: dict[str, Maker] = {
            "user's own mean: `Bias(3, items=False)`, free": lambda: discreet.Bias(
                3.0, items=False
            ),
            "`Bias()`, not private": discreet.Bias,
            "`ALS()`, not private": discreet.ALS,
        }
        for epsilon in (1.0, 5.0, 10.0, 20.0):
            makers[f'`DPMF(epsilon={epsilon:g}, delta=1e-5, goal="rating")`'] = partial(
                discreet.DPMF, epsilon=epsilon, delta=1e-5, goal="rating", rating_range=scale
            )
        note = (
            f"Split {fractions} at random over ratings, seeds 0, 1, 2, test RMSE; secure noise,"
            " add/remove one user."
        )
        out += table(title, note, splits, makers, "rmse", {})
    return ["## With privacy: `DPMF` with its defaults", "", *out]


def write_readme(results: Path) -> None:
    """Put the private scores of the results page between the markers of the README, one line
    per data set.
    """
    head = (
        "| test RMSE | user's own mean | `Bias` | `ALS` | `DPMF`, ε = 1 | ε = 5 | ε = 10 | ε = 20 |"
    )
    lines = [head, "|---" * 8 + "|"]
    for part in "\n".join(_parts(results)["private"]).split("### ")[1:]:
        scores = [
            row.split("|")[2].split("±")[0].strip() for row in part.splitlines() if "±" in row
        ]
        lines.append(
            f"| {part.splitlines()[0]} | "
            + " | ".join(f"{float(score):.3f}" for score in scores)
            + " |"
        )
    readme = ROOT / "README.md"
    before, rest = readme.read_text(encoding="utf-8").split("<!-- results -->")
    after = rest.split("<!-- /results -->")[1]
    text = "\n".join(["<!-- results -->", *lines, "<!-- /results -->"])
    readme.write_text(before + text + after, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "reference.md")
    parser.add_argument("--only", choices=["real", "twins", "private"])
    options = parser.parse_args()
    makers = {"real": real, "twins": twins, "private": private}
    parts: dict[str, Rows] = {}
    for name, make in makers.items():
        if options.only in (None, name):
            start = time.perf_counter()
            parts[name] = make()
            made = (
                f"discreet {discreet.__version__}, Python {platform.python_version()},"
                f" {time.strftime('%Y-%m-%d')}"
            )
            parts[name] += [f"{made}, {time.perf_counter() - start:.0f} seconds in all.", ""]
    parts = _parts(options.out) | parts
    text = [HEAD, ""]
    for name in makers:
        text += [f"<!-- {name} -->", *parts.get(name, []), f"<!-- /{name} -->", ""]
    options.out.write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
    if "private" in parts:
        write_readme(options.out)
    print(f"written to {options.out}")
    return 0


def _parts(results: Path) -> dict[str, Rows]:
    """What an earlier run has written, by part, so that one part can be measured again."""
    text = results.read_text(encoding="utf-8") if results.exists() else ""
    found = re.findall(r"<!-- (real|twins|private) -->\n(.*?)<!-- /\1 -->", text, re.DOTALL)
    return {name: [*part.rstrip("\n").splitlines(), ""] for name, part in found}


if __name__ == "__main__":
    sys.exit(main())
