"""Write the figure and the comparison table of the README from the numbers in docs/: ``python
benchmarks/readme.py``. With ``list`` it writes the example's list of films instead.

Nothing is measured here. docs/results/ and docs/benchmarks.md are written by commands that measure
(``discreet reproduce docs``, ``make results``, ``make bench``); run this after them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "quality.svg"
PANELS = {
    "twin-ml20m": "137,000 users\nMovieLens 20M, simulated",
    "ml-1m": "6,040 users\nMovieLens 1M, real",
    "ml-100k": "943 users\nMovieLens 100K, real",
}
COLORS = {"private": "#00798c", "open": "#3d3d3d", "popular": "#8b98a5"}  # as research.figures


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
    """Return what the figure shows: recall@20 by data set and model."""
    table = rows(RESULTS, "beyond-ranking", "recall@20")
    models = {"private": "DPMF", "popular": "popularity, not private", "open": "ALS, not private"}
    return {data: {name: table[data, model] for name, model in models.items()} for data in PANELS}


def described(found: dict[str, dict[str, dict[float, float]]]) -> str:
    """Return the numbers of the figure as text: its description, and what the test compares."""
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
    """Draw recall over ε with popularity and non-private ALS, one panel for each data set."""
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
    """Return the seconds of one sweep at rank 64, from the page of benchmarks."""
    line = next(
        line
        for line in BENCHMARKS.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| {name} |")
    )
    return float(line.strip("|").split("|")[2])


def compared() -> list[str]:
    """Return the table that compares the library with others."""
    lists = rows(RESULTS, "beyond-ranking", "recall@20")
    stars = rows(RESULTS, "beyond-floor", "")["ml-1m", "DPMF"]
    noise = rows(RESULTS, "baselines-models", "Test RMSE")["ml-1m", "DPSGD"]
    dpmf = lists["ml-1m", "DPMF"]
    als = lists["ml-1m", "ALS, not private"][1.0]
    ours = sweep("discreet, implicit feedback")
    theirs = sweep("implicit, Cholesky")
    cells = [
        ["", "`discreet`", "jax-privacy", "implicit + Opacus", "Spark ALS"],
        ["---"] * 5,
        [
            "what it is",
            "private recommenders",
            "private training for JAX",
            "recommenders; private training for PyTorch",
            "distributed recommender",
        ],
        [
            "unit of privacy",
            "user, all ratings",
            "example or user (sampling and clipping by user)",
            "example; user with your own code",
            "none",
        ],
        ["private recommender models", "8", "write your own", "write your own", "none"],
        [
            "noise",
            "exact integers, secure generator",
            "floating point",
            "floating point",
            "–",
        ],
        [
            "accounting",
            "closed form, PLD, RDP; ledger; budget over trainings",
            "PLD, RDP",
            "PRV, RDP, GDP",
            "–",
        ],
        [
            "auditing",
            "`discreet audit`, planted faults, conformance kit",
            "empirical audits",
            "–",
            "–",
        ],
        [
            "new users",
            "fold-in, also on their device",
            "your code",
            "fold-in (implicit)",
            "retrain",
        ],
        [
            "data larger than memory",
            "block files, Spark",
            "your input pipeline",
            "your input pipeline",
            "cluster",
        ],
        [
            "recall@20, MovieLens 1M, ε = 1 · 5 ¹",
            f"**{dpmf[1.0]:.3f} · {dpmf[5.0]:.3f}**",
            "not measured",
            "not measured",
            f"{als:.3f}, not private ²",
        ],
        [
            "RMSE, MovieLens 1M, ε = 1 · 5 ³",
            f"**{stars[1.0]:.3f} · {stars[5.0]:.3f}**",
            "not measured",
            "not measured",
            "–",
        ],
        [
            "RMSE of user-level DP-SGD ³",
            f"{noise[1.0]:.3f} · {noise[5.0]:.3f} (our `DPSGD`)",
            "not measured",
            "not measured",
            "–",
        ],
        [
            "one non-private ALS sweep ⁴",
            f"**{ours:.2f} s**",
            "–",
            f"{theirs:.2f} s",
            "see [Benchmarks](docs/benchmarks.md)",
        ],
    ]
    return ["| " + " | ".join(row) + " |" for row in cells]


def recommended() -> str:
    """Return the list of the README's example, from one training on the generated films."""
    import discreet

    model = discreet.DPMF(epsilon=1, rating_range=(0.5, 5)).fit(discreet.load_dataset("cinema"))
    found = model.recommend({"the-binary-colony": 5, "signal-from-quillon": 4.5}, n=5)
    return str(found)


def fill_list(page: Path) -> None:
    """Write the list of the README's example again: ``python benchmarks/readme.py list``."""
    text = page.read_text(encoding="utf-8")
    block = re.compile(r"^```text\n   item .*?^```$", re.MULTILINE | re.DOTALL)
    lines = recommended()
    page.write_text(block.sub(lambda _: f"```text\n{lines}\n```", text), encoding="utf-8")


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
    if sys.argv[1:] == ["list"]:
        fill_list(ROOT / "README.md")
    else:
        draw(PICTURE)
        fill(ROOT / "README.md")
        print(described(curves()))
