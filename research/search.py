"""Settings chosen as the papers say they chose theirs: many at random from given ranges, by scores
on validation data.

All parameters are drawn *together*, from a Sobol sequence, because the good value of one depends on
the others. A candidate's score is the median over several validation sets and draws of noise, so
that neither one lucky draw nor one diverging run decides; and a setting that is behind on the first
sets is not tried on the others.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Values = tuple[Any, ...]
Candidate = dict[str, Any]


@dataclass(frozen=True)
class Logarithmic:
    """Numbers from `low` to `high`, evenly spread in their logarithms."""

    low: float
    high: float

    def at(self, place: float) -> float:
        return float(f"{self.low * (self.high / self.low) ** place:.3g}")


@dataclass(frozen=True)
class Rounds:
    """How a search narrows: `candidates` on one validation set, then ever fewer of them on more.

    Attributes
    ----------
    candidates : how many settings are drawn
    kept : how many of them go on after each round
    sets : validation sets that have been tried at the end of each round; one more than `kept`
    refined : how many settings close to the best are tried after that, on half of the sets and
        the best three on all
    """

    candidates: int = 64
    kept: tuple[int, ...] = (16, 6)
    sets: tuple[int, ...] = (1, 3, 5)
    refined: int = 0

    @property
    def closer(self) -> Rounds:
        """The rounds of settings close to the best, and of the best itself."""
        return Rounds(
            self.refined + 1, (min(3, self.refined + 1),), (-(-self.sets[-1] // 2), self.sets[-1])
        )

    @property
    def trainings(self) -> int:
        """How many models a search trains."""
        sizes = (self.candidates, *self.kept)
        before = (0, *self.sets[:-1])
        first = sum(
            size * (now - then) for size, now, then in zip(sizes, self.sets, before, strict=True)
        )
        return first + (self.closer.trainings if self.refined else 0)


@dataclass(frozen=True)
class Found:
    """The settings with the lowest median, that median, and how many models were trained for it."""

    best: Candidate
    score: float
    trainings: int


def draw(ranges: Mapping[str, Values | Logarithmic], n: int, seed: int = 0) -> list[Candidate]:
    """So many candidates from the product of the ranges; a tuple stands for any of its values."""
    from scipy.stats import qmc

    if not ranges:
        return [{}]
    places = qmc.Sobol(len(ranges), scramble=True, rng=seed).random_base2(
        max(0, math.ceil(math.log2(n)))
    )[:n]
    return [
        {
            name: _value(values, place)
            for (name, values), place in zip(ranges.items(), row, strict=True)
        }
        for row in places.tolist()
    ]


def around(
    ranges: Mapping[str, Values | Logarithmic], best: Candidate, n: int, seed: int = 0
) -> list[Candidate]:
    """So many candidates from a quarter of every range, the best in its middle."""
    return draw({name: _near(values, best[name]) for name, values in ranges.items()}, n, seed)


def grid(ranges: Mapping[str, Sequence[Any]]) -> list[Candidate]:
    """Every combination of the values."""
    return [
        dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())
    ]


def search(
    candidates: Sequence[Candidate], score: Callable[[Candidate, int], float], rounds: Rounds
) -> Found:
    """The candidate with the lowest median over the validation sets; ``score(candidate, set)``
    trains one model.
    """
    scores: list[list[float]] = [[] for _ in candidates]
    left = list(range(len(candidates)))
    for kept, sets in zip((*rounds.kept, 1), rounds.sets, strict=True):
        for at in range(len(scores[left[0]]), sets):
            for one in left:
                scores[one].append(score(candidates[one], at))
        left.sort(key=lambda one: _median(scores[one]))
        left = left[:kept]
    best = left[0]
    return Found(dict(candidates[best]), _median(scores[best]), sum(map(len, scores)))


def search_in(
    ranges: Mapping[str, Values | Logarithmic],
    score: Callable[[Candidate, int], float],
    rounds: Rounds,
    known: Sequence[Candidate] = (),
) -> Found:
    """Draw from the ranges, search, and search once more around what was found, or around one of
    the `known` settings if that is better on all sets.
    """
    found = search(draw(ranges, rounds.candidates), score, rounds)
    if known:
        again = search([found.best, *known], score, Rounds(len(known) + 1, (), rounds.sets[-1:]))
        found = Found(again.best, again.score, found.trainings + again.trainings)
    if not rounds.refined:
        return found
    closer = search([found.best, *around(ranges, found.best, rounds.refined)], score, rounds.closer)
    return Found(closer.best, closer.score, found.trainings + closer.trainings)


def _near(values: Values | Logarithmic, best: Any) -> Values | Logarithmic:
    if isinstance(values, Logarithmic):
        reach = (values.high / values.low) ** (1 / 8)
        return Logarithmic(max(values.low, best / reach), min(values.high, best * reach))
    known = sorted(set(values))
    at = known.index(best)
    steps = -(-len(known) // 8)
    return tuple(known[max(0, at - steps) : at + steps + 1])


def _value(values: Values | Logarithmic, place: float) -> Any:
    return values.at(place) if isinstance(values, Logarithmic) else values[int(place * len(values))]


def _median(scores: Sequence[float]) -> float:
    """Of what is finite or infinite; a model that diverged is as bad as can be."""
    return statistics.median(math.inf if math.isnan(score) else score for score in scores)
