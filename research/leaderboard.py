"""Leaderboard of private rankings on public data: fixed splits, exact ε, the ledger of each entry.

    python -m research.leaderboard run ml-1m                         the models of this library
    python -m research.leaderboard add MODEL --data ml-1m --name NAME --by WHO   a submission
    python -m research.leaderboard page                              docs/leaderboard.md

An entry is a JSON file in ``docs/leaderboard``: what was measured, the privacy statement, and the
whole ledger. Scores are exact, which is harmless on public benchmarks alone.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from discreet.data.datasets import load_dataset
from discreet.data.splits import Split, random_ratings
from discreet.errors import ConfigError, DataError
from discreet.evaluation.comparison import model_name
from discreet.evaluation.evaluator import evaluate
from discreet.models.als import ALS
from discreet.models.dpals import DPALS
from discreet.models.dpmf import DPMF
from discreet.models.ease import EASE
from discreet.models.popularity import Popularity
from discreet.models.storage.save_load import load
from discreet.version import __version__
from research.sources import Sources

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDER = DOCS / "leaderboard"
#: Data sets, and their public ranges of ratings; relevant is the top quarter.
TRACKS = {"cinema": (0.5, 5.0), "ml-100k": (1.0, 5.0), "ml-1m": (1.0, 5.0)}
METRICS = ("recall@20", "ndcg@100", "coverage@20", "tail@20")
LARGEST_DELTA = 1e-5
EPSILONS = (1.0, 5.0)


def track(data: str, sources: Sources) -> tuple[Split, float]:
    """Return the fixed split of a data set, and the lowest relevant rating."""
    if data not in TRACKS:
        raise ConfigError(f"There is no track {data!r}. Choose one of {', '.join(TRACKS)}.")
    low, high = TRACKS[data]
    if data == "cinema":
        ratings = sources.ratings(data)
    else:  # with the published list of items, so that the catalog is public
        place = sources.place(data)
        ratings = load_dataset(data, place, catalog=True, download=False)
    return random_ratings(ratings, seed=0), low + 0.75 * (high - low)


def measure(model: Any, data: str, sources: Sources) -> dict[str, Any]:
    """Measure a trained model on the test part, and describe its guarantee."""
    split, relevant = track(data, sources)
    statement = getattr(model, "privacy_", None)
    if statement is not None:
        _check_guarantee(statement)
    found = evaluate(model, split, METRICS, relevant=relevant, slices=None, progress=False)
    return {
        "model": model_name(model),
        "data": data,
        "split": f"{split.name}, seed {split.seed}",
        "relevant": relevant,
        "version": __version__,
        "scores": {m: [found.values[m], found.to_dict()["stderr"][m]] for m in METRICS},
        "epsilon": None if statement is None else statement.epsilon,
        "delta": None if statement is None else statement.delta,
        "neighboring": None if statement is None else statement.neighboring,
        "ledger": None if statement is None else statement.ledger.to_dict(),
    }


def _check_guarantee(statement: Any) -> None:
    """Refuse a model whose guarantee is not comparable with those of others."""
    if not statement.finite or statement.noise != "secure":
        raise DataError("The model has no guarantee: pass one with finite ε and secure noise.")
    if statement.delta > LARGEST_DELTA or statement.neighboring != "add-remove":
        raise DataError(
            f"Entries have δ of at most {LARGEST_DELTA:g} and add-remove neighbors. Train the model"
            " with these."
        )


def _file_name(data: str, name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", f"{data}-{name}".lower()).strip("-") + ".json"


def write_entry(entry: Mapping[str, Any], name: str, by: str) -> Path:
    """Write an entry to the folder of the leaderboard and return its path."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / _file_name(entry["data"], name)
    file.write_text(
        json.dumps({"name": name, "by": by, **entry}, ensure_ascii=False, indent=1) + "\n",
        encoding="utf-8",
    )
    return file


def own_models(data: str) -> list[Callable[[], Any]]:
    """Return makers of the models of this library, private ones and references."""
    scale = TRACKS[data]
    private: list[Callable[[], Any]] = [
        partial(cls, goal="ranking", epsilon=epsilon, rating_range=scale)
        for epsilon in EPSILONS
        for cls in (DPMF, DPALS)
    ]
    return [*private, EASE, partial(ALS, goal="ranking"), Popularity]


def run(data: str, sources: Sources) -> None:
    """Train and add the models of this library, on favorites where a model ignores ratings."""
    split, relevant = track(data, sources)
    for make in own_models(data):
        model = make()
        graded = isinstance(model, DPMF)
        model.fit(split.train if graded else split.train.binarize(relevant), progress=False)
        entry = measure(model, data, sources)
        print(write_entry(entry, entry["model"], "discreet"), entry["scores"], flush=True)


def render() -> str:
    """Return the page."""
    entries = [json.loads(f.read_text(encoding="utf-8")) for f in sorted(FOLDER.glob("*.json"))]
    parts = [HEAD]
    for data in TRACKS:
        rows = [entry for entry in entries if entry["data"] == data]
        if not rows:
            continue
        parts.append(f"## {data}\n\n{_table(rows)}\n")
    return "\n".join([*parts, SUBMIT])


def _table(entries: list[dict[str, Any]]) -> str:
    """Return a table by ε, best recall first; models without privacy come last."""

    def rank(entry: dict[str, Any]) -> tuple[float, float]:
        epsilon = math.inf if entry["epsilon"] is None else round(entry["epsilon"], 2)
        return epsilon, -entry["scores"]["recall@20"][0]

    lines = [
        f"| model | by | ε | δ | {' | '.join(METRICS)} | ledger |",
        "|---|---|---|---|" + "---|" * (len(METRICS) + 1),
    ]
    for entry in sorted(entries, key=rank):
        file = _file_name(entry["data"], entry["name"])
        scores = [
            f"{value:.4f}" + ("" if error is None else f" ± {error:.4f}")
            for value, error in (entry["scores"][m] for m in METRICS)
        ]
        guarantee = ["none", "–"]
        ledger = "–"
        if entry["epsilon"] is not None:
            guarantee = [f"{entry['epsilon']:.4g}", f"{entry['delta']:.0e}"]
            ledger = f"[{len(entry['ledger']['entries'])} releases](leaderboard/{file})"
        cells = [entry["name"], entry["by"], *guarantee, *scores, ledger]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


HEAD = """\
# Leaderboard

Private rankings on public data sets. This page is written by `python -m research.leaderboard page`.

- **Split**: `random_ratings(load_dataset(NAME, catalog=True), seed=0)`, 80/10/10 over ratings.
  Train on the first part, tune on the second; scores are of the third, measured once. Relevant are
  ratings in the top quarter of the scale. Lists leave out known items.
- **ε** is exact: that of the ledger, at δ of at most 1e-5, for adding or removing one user with all
  ratings, with secure noise. Hyperparameters tuned on the same users are charged, or chosen on
  other data.
- **Ledger**: each private entry has all its releases attached, with sensitivities and noise.
- ± is the standard error over users. One training per row: noise differs between trainings.
"""
SUBMIT = """\
## Submit an entry

1. Train on `split.train` with secure noise, as a model of this library or one of your own
   ([how to add one](contributing.md#add-a-private-model)), and save it.
2. Run `python -m research.leaderboard add MODEL --data ml-1m --name NAME --by WHO`. It checks the
   ledger, measures the model and writes `docs/leaderboard/….json`. Then run
   `python -m research.leaderboard page`.
3. Open a pull request with both files, the code, and the command that trains the model. A reviewer
   runs the command: the ledger shows what was claimed, the code shows that nothing else was
   released.
"""


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    own = commands.add_parser("run", help="train and add the models of this library")
    own.add_argument("data", choices=TRACKS)
    add = commands.add_parser("add", help="add a saved model")
    add.add_argument("model")
    add.add_argument("--data", required=True, choices=TRACKS)
    add.add_argument("--name", required=True)
    add.add_argument("--by", required=True)
    commands.add_parser("page", help="write docs/leaderboard.md")
    given = parser.parse_args(words)
    if given.command == "run":
        run(given.data, Sources())
    elif given.command == "add":
        print(write_entry(measure(load(given.model), given.data, Sources()), given.name, given.by))
    else:
        (DOCS / "leaderboard.md").write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
