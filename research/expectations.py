"""Measure what DPMF learns for a number of users and an ε, on generated data, and write it into
docs/choose-epsilon.md.

    python -m research.expectations measure     # about ten minutes on one core
    python -m research.expectations write       # table and figure from what was measured

One draw makes a data set, holds out a tenth of its users (at most 2,000), trains DPMF at every ε
and with next to no noise (ε = 1,000), and computes recall@20 of the held-out users from 80 % of
their items. Every number is a mean over the draws, each with its own data, split and noise, with
the standard error of that mean. An ε is enough for a part of the attainable gain if mean recall
reaches

    popularity + part · (best − popularity),

where `best` is the highest mean recall in the row, at any ε or without noise: with few purchases
per user a little noise regularizes, and the model without noise is not the best.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from discreet.data.cinema import make_cinema
from discreet.data.ratings import Ratings
from discreet.data.splits import strong_generalization
from discreet.evaluation.evaluator import evaluate
from discreet.models.dpmf import DPMF
from discreet.models.popularity import Popularity
from research.families import Family, made

EPSILONS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
NO_NOISE = 1_000.0
DRAWS = 10
USERS = {
    "films": (1_000, 2_000, 5_000, 10_000, 20_000),
    "shop": (2_000, 5_000, 10_000, 20_000, 50_000, 100_000),
}
TITLES = {
    "films": "films: 800 items, about 58 ratings per user",
    "shop": "shop: 2,000 items, about 12 purchases per user",
}
ENOUGH = (0.5, 0.9)
ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "research" / "expectations.json"
PAGE = ROOT / "docs" / "choose-epsilon.md"
FIGURE = ROOT / "docs" / "pictures" / "choose-epsilon.svg"


def draw(kind: str, users: int, seed: int) -> dict[str, float]:
    """Recall@20 of popularity, of DPMF at every ε and of DPMF without noise, in one draw."""
    ratings = _ratings(kind, users, seed)
    held = min(users // 10, 2_000)
    split = strong_generalization(ratings, 0, held, seed=seed)
    parameters: dict[str, Any] = {"noise": "seeded", "random_state": seed}
    if kind == "films":
        parameters["rating_range"] = (0.5, 5)
    else:
        parameters["like_threshold"] = "everything"

    def recall(model: Any) -> float:
        fitted = model.fit(split.train, progress=False)
        relevant = 4.0 if kind == "films" else None
        return float(evaluate(fitted, split, ["recall@20"], relevant=relevant)["recall@20"])

    found = {"popularity": recall(Popularity())}
    for epsilon in (*EPSILONS, NO_NOISE):
        found[f"{epsilon:g}"] = recall(DPMF.configure(epsilon=epsilon, **parameters))
    return found


def _ratings(kind: str, users: int, seed: int) -> Ratings:
    if kind == "films":
        return make_cinema(seed, users / 20_000)
    shop = Family("shop", users, 2_000, 12, skew=1.0, rank=20, taste=2.0)
    return made(shop, seed=seed).binarize(1.0).filter(min_user_ratings=5)


def measure() -> None:
    """Measure every number of users; what was measured before stays."""
    found = json.loads(MEASURED.read_text("utf-8")) if MEASURED.is_file() else {}
    for kind, sizes in USERS.items():
        for users in sizes:
            name = f"{kind} {users}"
            if name not in found:
                found[name] = [draw(kind, users, seed) for seed in range(DRAWS)]
                MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
                print(name, np.round(recalls(found[name])[0], 4), flush=True)


def recalls(draws: list[dict[str, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean recall of popularity, at every ε and without noise, and the standard errors."""
    names = ["popularity", *(f"{epsilon:g}" for epsilon in (*EPSILONS, NO_NOISE))]
    scores = np.array([[one[name] for name in names] for one in draws])
    return scores.mean(axis=0), scores.std(axis=0, ddof=1) / math.sqrt(len(draws))


def enough(means: np.ndarray, part: float) -> float | None:
    """Return the ε at which recall first reaches `part` of the attainable gain.

    Linear in ln ε between measurements; None if no measured ε reaches it.
    """
    goal = means[0] + part * (means.max() - means[0])
    private = means[1:-1]
    reached = np.flatnonzero(private >= goal)
    if not len(reached):
        return None
    at = int(reached[0])
    if at == 0:
        return EPSILONS[0]
    left = math.log(EPSILONS[at - 1])
    right = math.log(EPSILONS[at])
    weight = (goal - private[at - 1]) / (private[at] - private[at - 1])
    return math.exp(left + float(weight) * (right - left))


def tables(found: dict[str, list[dict[str, float]]]) -> str:
    """Return both tables as Markdown: the ε that is enough, and recall by ε."""
    columns = ["popularity", *(f"ε = {epsilon:g}" for epsilon in EPSILONS), "no noise", "s.e."]
    rows = [["data", "users", *columns], ["---"] * (2 + len(columns))]
    which = [
        ["data", "users", *(f"ε for {100 * part:.0f} % of the gain" for part in ENOUGH)],
        ["---"] * (2 + len(ENOUGH)),
    ]
    for kind, sizes in USERS.items():
        for users in sizes:
            means, errors = recalls(found[f"{kind} {users}"])
            cells = [f"{mean:.3f}" for mean in means]
            rows.append([kind, f"{users:,}", *cells, f"{errors.max():.3f}"])
            which.append([kind, f"{users:,}", *(_enough(means, part) for part in ENOUGH)])
    return "\n\n".join(
        "\n".join("| " + " | ".join(row) + " |" for row in table) for table in (which, rows)
    )


def _enough(means: np.ndarray, part: float) -> str:
    epsilon = enough(means, part)
    if epsilon is None:
        return f"more than {EPSILONS[-1]:g}"
    return f"{EPSILONS[0]:g} or less" if epsilon == EPSILONS[0] else f"{epsilon:.2g}"


def figure(found: dict[str, list[dict[str, float]]], to: Path) -> None:
    """Draw recall over ε, one line for each number of users, with two standard errors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import colormaps
    from matplotlib import pyplot as plt

    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "discreet", "font.size": 11}
    with plt.rc_context(style):
        canvas, axes = plt.subplots(2, 1, figsize=(7.4, 7.6), sharex=True)
        for axis, (kind, sizes) in zip(axes, USERS.items(), strict=True):
            for at, users in enumerate(sizes):
                means, errors = recalls(found[f"{kind} {users}"])
                axis.errorbar(
                    EPSILONS,
                    means[1:-1],
                    yerr=2 * errors[1:-1],
                    color=colormaps["viridis"](0.9 - 0.85 * at / (len(sizes) - 1)),
                    marker="o",
                    markersize=4,
                    capsize=2,
                    label=f"{users:,} users",
                )
            axis.axhline(means[0], color="#8b98a5", linestyle=":", label="popularity, exact")
            axis.set_xscale("log")
            axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
            axis.set_xticks([], minor=True)
            axis.set_ylim(bottom=0)
            axis.set_title(f"Generated data, {TITLES[kind]}", fontsize=11, loc="left")
            axis.set_ylabel("recall@20")
            axis.grid(color="#dddddd")
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(loc="lower right", fontsize=9)
        axes[-1].set_xlabel("ε (smaller is more private)")
        canvas.tight_layout()
        canvas.savefig(to, format="svg", metadata={"Date": None})
        plt.close(canvas)


def write() -> None:
    """Put tables and figure into the page."""
    found = json.loads(MEASURED.read_text("utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split("<!-- expectations -->")
    after = rest.split("<!-- /expectations -->")[1]
    body = f"<!-- expectations -->\n\n{tables(found)}\n\n<!-- /expectations -->"
    PAGE.write_text(f"{before}{body}{after}", encoding="utf-8")
    figure(found, FIGURE)


if __name__ == "__main__":
    {"measure": measure, "write": write}[sys.argv[1]]()
