"""HuberALS: noisy alternating least squares, plain or reweighted, with Gaussian, Laplace or Huber noise."""

from __future__ import annotations

from typing import Any, Literal

from discreet.models.algorithms.robust_solve import RobustSolve
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting.budget import Neighbouring


class HuberALS(PrivateRecommender):
    """Private matrix factorisation by least squares or robust least squares, with a choice of noise.

    Parameters
    ----------
    factors : int, optional
        Rank. Default 4.
    epsilon, delta, neighbouring
        The promise. ``delta=0`` asks for pure ε, which Gaussian noise cannot give.
    accountant : {"auto", "gdp", "pld", "pure", "rdp"}
        How the releases are priced; "auto" takes whatever asks for the least noise.
    mechanism : {"gaussian", "laplace", "huber"}, optional
        The noise. docs/huber.md says when to use which. Default "huber".
    solver : {"als", "irls"}, optional
        Least squares (the default), or reweighted, where ratings far from their prediction count less.
    iterations : int, optional
        Steps. Default 1, for few people; take 3 from some 10,000 on.
    max_items : int, optional
        Through how many items a user contributes. Default 30.
    rating_range : (low, high), optional
        Public range of the ratings. If not given, it is read from the data, and the statement says so.
    allow_large_delta : bool
        Accept a `delta` above 1e-3; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
    method : RobustSolve, optional
        The algorithm with every knob.
    """

    feedback = "explicit"
    _kinds = (RobustSolve,)

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        mechanism: Literal["gaussian", "laplace", "huber"] | None = None,
        solver: Literal["als", "irls"] | None = None,
        iterations: int | None = None,
        max_items: int | None = None,
        rating_range: tuple[float, float] | None = None,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "auto",
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
        method: RobustSolve | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.solver = solver
        self.iterations = iterations
        self.max_items = max_items
        self.rating_range = rating_range
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state
        self.method = method
