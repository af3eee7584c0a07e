"""The picture and the table of comparison in the README, from the numbers in docs/: ``python
benchmarks/readme.py``.

Nothing is measured here. docs/results.md and docs/benchmarks.md are written by commands that
measure (``discreet reproduce docs``, ``make results``, ``make bench``); whoever runs those runs
this afterwards.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "quality.svg"
PANELS = {
    "twin-ml20m": "137,000 people\n(twin of MovieLens 20M)",
    "ml-1m": "6,040 people\n(MovieLens 1M)",
    "ml-100k": "943 people\n(MovieLens 100K)",
}
COLORS = {"private": "#00796b", "open": "#37474f", "popular": "#a1887f"}


def rows(page: Path, entry: str, metric: str) -> dict[tuple[str, str], dict[float, float]]:
    """{(data, model): {ε: score}} of one table of an entry's page."""
    text = (page / f"{entry}.md").read_text(encoding="utf-8")
    table = text.partition(f"**{metric}**")[2] if f"**{metric}**" in text else text
    lines = [line for line in table.splitlines() if line.startswith("|")]
    epsilons = [float(found) for found in re.findall(r"epsilon = ([\d.]+)", lines[0])]
    found: dict[tuple[str, str], dict[float, float]] = {}
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "data":
            break
        scores = zip(epsilons, cells[2:], strict=True)
        found.setdefault(
            (cells[0], cells[1]),
            {e: float(cell.split()[0]) for e, cell in scores if cell and cell[0].isdigit()},
        )
    return found


def curves() -> dict[str, dict[str, dict[float, float]]]:
    """What the picture shows: recall@20 by data set and model."""
    table = rows(RESULTS, "beyond-ranking", "recall@20")
    models = {"private": "DPMF", "popular": "popularity, not private", "open": "ALS, not private"}
    return {data: {name: table[data, model] for name, model in models.items()} for data in PANELS}


def described(found: dict[str, dict[str, dict[float, float]]]) -> str:
    """The numbers of the picture in words: for those who do not see it, and for the test that
    keeps it.
    """
    parts = []
    for data, lines in found.items():
        scores = ", ".join(
            f"{score:.3f} at ε = {epsilon:g}" for epsilon, score in lines["private"].items()
        )
        ends = (
            f"popularity {min(lines['popular'].values()):.3f}, without privacy"
            f" {max(lines['open'].values()):.3f}"
        )
        parts.append(f"{data}: DPMF {scores}; {ends}")
    return ". ".join(parts)


def draw(to: Path) -> None:
    """Recall over ε beside popularity and a factorization without privacy, one panel for each
    number of people.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    found = curves()
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "discreet",
        "font.family": "sans-serif",
        "font.size": 10,
    }
    with plt.rc_context(style):
        figure, axes = plt.subplots(1, len(found), figsize=(9, 2.9), sharey=True)
        for axis, (data, lines) in zip(axes, found.items(), strict=True):
            private = lines["private"]
            axis.axhline(
                max(lines["open"].values()), color=COLORS["open"], linestyle="--", linewidth=1.3
            )
            axis.axhline(
                max(lines["popular"].values()),
                color=COLORS["popular"],
                linestyle=":",
                linewidth=1.6,
            )
            axis.plot(
                list(private),
                list(private.values()),
                "o-",
                color=COLORS["private"],
                linewidth=2,
                markersize=5,
            )
            axis.set_xscale("log")
            axis.set_xticks([0.25, 0.5, 1, 5, 20], ["¼", "½", "1", "5", "20"])
            axis.set_xticks([], minor=True)
            axis.set_xlim(0.2, 26)
            axis.set_ylim(0, 0.44)
            axis.set_title(PANELS[data], fontsize=10)
            axis.set_xlabel("ε (smaller is more private)")
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(axis="y", color="#eceff1")
        axes[0].set_ylabel("recall@20")
        axes[0].annotate("without privacy (ALS)", (0.22, 0.4), color=COLORS["open"], fontsize=9)
        axes[0].annotate(
            "DPMF, private", (1.3, 0.335), color=COLORS["private"], fontsize=9, weight="bold"
        )
        axes[0].annotate("popularity", (0.22, 0.145), color=COLORS["popular"], fontsize=9)
        figure.tight_layout()
        figure.savefig(to, format="svg", metadata={"Date": None, "Description": described(found)})
        plt.close(figure)


def sweep(name: str) -> float:
    """Seconds of one sweep at rank 64, from the page of benchmarks."""
    line = next(
        line
        for line in BENCHMARKS.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| {name} |")
    )
    return float(line.strip("|").split("|")[2])


def compared() -> list[str]:
    """The table of what people would use instead."""
    lists = rows(RESULTS, "beyond-ranking", "recall@20")
    stars = rows(RESULTS, "beyond-floor", "")["ml-1m", "DPMF"]
    noise = rows(RESULTS, "baselines-models", "Test RMSE")["ml-1m", "DPSGD"]
    dpmf = lists["ml-1m", "DPMF"]
    paper = lists["ml-1m", "DPALS"]
    als = lists["ml-1m", "ALS, not private"][1.0]
    ours = sweep("discreet, implicit feedback")
    theirs = sweep("implicit, Cholesky")
    return [
        "| | `discreet` | implicit + Opacus | Spark ALS | the papers' algorithms |",
        "|---|---|---|---|---|",
        (
            "| what is protected | all ratings of a person | one example at a time, unless you"
            " batch by person | nothing | all ratings of a person |"
        ),
        (
            "| noise and price | exact integers, closed form, a ledger | floating point, an"
            " accountant | – | as printed: wrong in places ([errata](docs/errata.md)) |"
        ),
        (
            "| new people | folded in, no retraining, on their device if you like | retrain, or"
            " your own code | retrain | folded in |"
        ),
        (
            "| people who are too many for memory | block files, Spark: the same bits | your own"
            " loop | a cluster | – |"
        ),
        (
            "| tries to refute itself | `discreet audit`, planted faults, a conformance kit | – | –"
            " | – |"
        ),
        (
            f"| recall@20, MovieLens 1M, ε = 1 · 5 ¹ | **{dpmf[1.0]:.3f} · {dpmf[5.0]:.3f}** | not"
            f" measured | {als:.3f}, not private ² | {paper[1.0]:.3f} · {paper[5.0]:.3f} |"
        ),
        (
            f"| RMSE, MovieLens 1M, ε = 1 · 5 ³ | **{stars[1.0]:.3f} · {stars[5.0]:.3f}** |"
            f" {noise[1.0]:.3f} · {noise[5.0]:.3f} | – | – |"
        ),
        f"| a sweep of ALS without privacy ⁴ | **{ours:.2f} s** | {theirs:.2f} s | – | – |",
    ]


def fill(page: Path) -> None:
    """Put the table between its markers."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split("<!-- compared -->\n")
    after = rest.split("<!-- /compared -->")[1]
    lines = "\n".join(compared())
    page.write_text(
        f"{before}<!-- compared -->\n{lines}\n<!-- /compared -->{after}", encoding="utf-8"
    )


if __name__ == "__main__":
    draw(PICTURE)
    fill(ROOT / "README.md")
    print(described(curves()))
