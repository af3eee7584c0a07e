"""What can be expected of lists: people × ratings × ε, on generated data. Writes the table of
docs/choose-epsilon.md.

    python -m research.expectations docs/choose-epsilon.md

A cell says how far DPMF comes on the way from popularity to a factorization without privacy, in
recall@20 of people whom training did not see: 0 % is the list that everybody gets, 100 % is what
could be learned without privacy. One data set of each shape, one draw of the noise: cells are off
by a few percent.
"""

from __future__ import annotations

import sys
from pathlib import Path

from discreet.data.splits import strong_generalization
from discreet.evaluation.evaluator import evaluate
from discreet.models.als import ALS
from discreet.models.dpmf import DPMF
from discreet.models.popularity import Popularity
from research.families import Family, made

PEOPLE = (1_000, 3_000, 10_000, 30_000, 100_000)
RATINGS = (10, 30, 100)
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0)
MOST_RATINGS = 3_000_000
ITEMS = 2_000
BEGIN = "<!-- expectations -->"
END = "<!-- /expectations -->"


def shares(people: int, ratings: int) -> list[float]:
    """For each ε, the part of the way from popularity to a factorization without privacy."""
    kind = Family("expected", people, ITEMS, ratings, skew=1.0, rank=20, taste=2.0)
    liked = made(kind, seed=3).binarize(4.0)
    held = min(liked.n_users // 5, 2_000)
    split = strong_generalization(liked.filter(min_user_ratings=5), 0, held, seed=3)

    def recall(model: object) -> float:
        return float(evaluate(model.fit(split.train), split, ["recall@20"])["recall@20"])  # type: ignore[attr-defined]

    low = recall(Popularity())
    high = recall(ALS(goal="ranking"))
    found = [
        recall(DPMF.configure(epsilon=epsilon, like_threshold="everything")) for epsilon in EPSILONS
    ]
    return [(one - low) / (high - low) for one in found]


def table() -> str:
    """The table as Markdown."""
    head = ["people", "ratings each", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    rows = [head, ["---"] * len(head)]
    for people in PEOPLE:
        for ratings in RATINGS:
            if people * ratings <= MOST_RATINGS:
                cells = [f"{100 * max(share, 0.0):.0f} %" for share in shares(people, ratings)]
                rows.append([f"{people:,}", str(ratings), *cells])
                print(" | ".join(rows[-1]), flush=True)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main(page: Path) -> None:
    """Write the table between its marks in the page."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
