"""Choosing the rules of private ranking: any settings, on validation parts and on generated data,
compared with popularity.

    python -m research.ranking_rules --data ml-1m "family: sparse" --epsilon 1 5 --try gate=2 --try
    gate=5

prints, for each data set and ε, recall@20 of private popularity with the whole budget, of the
defaults, and of every setting tried: means over the seeds, each of which is another split, another
draw of the noise and, of generated data, another replica. Only validation parts are looked at.
Next to it: the released signal, the share of the twenty most liked items, and the size of the core.
docs/dpmf.md says what was chosen with it, and how many settings were looked at.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from research.families import FAMILIES
from research.ranking import FAMILY, NEVER, held_out, measured, ours
from research.sources import Sources

REAL = ("ml-1m", "ml-100k", "movietweetings")
DATA = (*REAL, *(FAMILY + one.name for one in FAMILIES))
EPSILONS = (0.25, 0.5, 1.0, 5.0, 20.0)
FIRST_SEED = 1000  # of splits that are for choosing


def lines(
    data: Sequence[str],
    epsilons: Sequence[float],
    settings: Sequence[dict[str, Any]],
    seeds: int,
    most_users: int,
    sources: Sources | None = None,
) -> Iterator[dict[str, Any]]:
    """One line for each data set and ε."""
    sources = sources or Sources()
    for name in data:
        scale = most_users / 1_000_000 if name.startswith(FAMILY) else 1.0
        for epsilon in epsilons:
            found: dict[str, list[float]] = {}
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                people = held_out(name, 0.15, scale, seed, sources, valid=True)
                promise = dict(epsilon=epsilon, delta=1e-6, noise="seeded", random_state=seed)
                for knobs in ({"gate": NEVER}, {}, *settings):
                    model = ours("DPMF", people, promise, **knobs).fit(people.everything)
                    label = "popularity" if knobs == {"gate": NEVER} else json.dumps(knobs)
                    found.setdefault(label, []).append(
                        measured(model, people, "valid")["recall@20"]
                    )
                    for detail in ("signal", "top"):
                        found.setdefault(detail, []).append(float(model.details_[detail]))
                    found.setdefault("core", []).append(float(len(model.details_["core"])))
            yield {"data": name, "epsilon": epsilon} | {
                label: float(np.mean(all_)) for label, all_ in found.items()
            }


def setting(text: str) -> dict[str, Any]:
    """``gate=2,rounds=8`` as a dictionary."""
    pairs = (part.split("=", 1) for part in text.split(","))
    return {name: json.loads(value) for name, value in pairs}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Choose the rules of private ranking on validation parts."
    )
    parser.add_argument(
        "--data", nargs="+", default=DATA, help="data sets, or 'family: NAME' for generated ones"
    )
    parser.add_argument("--epsilon", nargs="+", type=float, default=EPSILONS)
    parser.add_argument(
        "--try",
        dest="settings",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE,...",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most-users", type=int, default=20_000, help="of generated data")
    given = parser.parse_args(arguments)
    for line in lines(given.data, given.epsilon, given.settings, given.seeds, given.most_users):
        print(
            "  ".join(
                f"{name} {value:.4g}" if name != "data" else value for name, value in line.items()
            ),
            flush=True,
        )


if __name__ == "__main__":
    # what is taken from the data is said once too often here
    logging.getLogger("discreet").setLevel(logging.ERROR)
    main()
