"""DPALS: private alternating least squares, the algorithm of Chien et al. (2021), corrected."""

from __future__ import annotations

from typing import Any, Literal

from discreet.models.algorithms.noisy_solve import NoisySolve
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting.budget import Neighbouring


class DPALS(PrivateRecommender):
    """Private alternating least squares, as in the paper; `DPMF` is what we recommend.

    Parameters
    ----------
    factors : int, optional
        Rank r. Every step releases r(r+3)/2 numbers for each item. Default 16, or 32 for implicit feedback on 10,000
        items and more.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    feedback : {"explicit", "implicit"}
        Predict ratings, or rank items from plain interactions.
    iterations : int, optional
        Number of steps; each one costs. Default 2, or by the budget for implicit feedback on 10,000 items and more.
    regularization : float, optional
        λ of users and items. Default 80 for explicit and 0.5 for implicit feedback, or by the signal on 10,000 items
        and more.
    max_items : int, optional
        Through how many items a user contributes. Default 50.
    item_fraction : float, optional
        The share of items, the most frequent, that get factors. Default 0.4.
    rating_range : (low, high), optional
        Public range of the ratings. If not given, it is read from the data, and the statement says so.
    allow_large_delta : bool
        Accept a `delta` above 1e-3; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
    method : NoisySolve, optional
        The algorithm with every knob.
    """

    _kinds = (NoisySolve,)

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        feedback: Literal["explicit", "implicit"] = "explicit",
        iterations: int | None = None,
        regularization: float | None = None,
        max_items: int | None = None,
        item_fraction: float | None = None,
        rating_range: tuple[float, float] | None = None,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
        method: NoisySolve | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.feedback = feedback
        self.iterations = iterations
        self.regularization = regularization
        self.max_items = max_items
        self.item_fraction = item_fraction
        self.rating_range = rating_range
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state
        self.method = method
