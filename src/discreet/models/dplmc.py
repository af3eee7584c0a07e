"""DPLMC: private matrix completion by projected gradients, the algorithm of Wang, Zhao and Kolar (2023), corrected."""

from __future__ import annotations

from typing import Any

from discreet.models.algorithms.projected_gradient import ProjectedGradient
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting.budget import Neighbouring


class DPLMC(PrivateRecommender):
    """Private matrix completion by projected gradients, as in the paper; `DPMF` is what we recommend.

    For items that are rated about equally often.

    Parameters
    ----------
    factors : int, optional
        Rank. Default 16.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    iterations : int, optional
        Number of steps; each one costs. Default 5; the paper has 10 to 60.
    step_size : float, optional
        η. Default 1.
    user_norm, item_norm : float, optional
        The longest that the vectors of users and items may be. Default 1 and 4.
    rating_range : (low, high), optional
        Public range of the ratings. If not given, it is read from the data, and the statement says so.
    allow_large_delta : bool
        Accept a `delta` above 1e-3; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
    method : ProjectedGradient, optional
        The algorithm with every knob.
    """

    feedback = "explicit"
    _kinds = (ProjectedGradient,)

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        iterations: int | None = None,
        step_size: float | None = None,
        user_norm: float | None = None,
        item_norm: float | None = None,
        rating_range: tuple[float, float] | None = None,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
        method: ProjectedGradient | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.iterations = iterations
        self.step_size = step_size
        self.user_norm = user_norm
        self.item_norm = item_norm
        self.rating_range = rating_range
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state
        self.method = method
