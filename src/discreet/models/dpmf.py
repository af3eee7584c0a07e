"""DPMF: the house model, what the command line trains and what we recommend."""

from __future__ import annotations

import copy
from typing import Any, Literal

from numpy.typing import NDArray

from discreet.data.features import item_features
from discreet.models.algorithms.algorithm import Algorithm
from discreet.models.algorithms.residual_gradient import ResidualGradient
from discreet.models.checks import require_one_of
from discreet.models.private import PrivateRecommender
from discreet.privacy.budget import Neighbouring


class DPMF(PrivateRecommender):
    """Private matrix factorisation.

    Parameters
    ----------
    factors : int, optional
        How many dimensions of taste at most; 0 learns only how much each item is liked. Default: by the budget.
    epsilon : float
        How much may be learnt about one user; smaller is more private. Whoever trains privately says it.
    delta : float
        Probability with which that may fail. See docs/privacy.md.
    goal : {"rating"}
        Predict what a user would give.
    rating_range : (low, high), optional
        Public range of the ratings. Inferred where not given, which is recorded as a caution.
    item_features : file, frame, mapping or array, optional
        Public features of the items, such as genres or years: a prior for their factors, at no privacy cost.
    iterations : int, optional
        Steps, each of which costs.
    regularization : float, optional
        λ, the ridge of a user's own least squares.
    neighbouring : {"add-remove", "replace-one"}
    accountant : {"gdp", "rdp", "pld"}
    allow_large_delta : bool
        Take a `delta` above 1e-3 nevertheless; the statement says so.
    noise : {"secure", "seeded"}
        Seeded noise is for research: whoever knows the seed can subtract it, so it needs a `random_state`.
    random_state : int, optional
        Seed of the start. Default: another one in every fit.
    method : ResidualGradient, optional
        The algorithm with every knob, in place of `factors`, `iterations` and `regularization`.
    """

    _kinds = (ResidualGradient,)

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        goal: Literal["rating"] = "rating",
        rating_range: tuple[float, float] | None = None,
        item_features: Any = None,
        iterations: int | None = None,
        regularization: float | None = None,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
        method: ResidualGradient | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.goal = goal
        self.rating_range = rating_range
        self.item_features = item_features
        self.iterations = iterations
        self.regularization = regularization
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state
        self.method = method

    @property
    def feedback(self) -> str:  # type: ignore[override]
        """What is learnt from: ratings, or what was chosen at all."""
        return "explicit"

    def algorithm(self) -> Algorithm:
        require_one_of("goal", self.goal, "rating")
        return super().algorithm()

    def _features(self, ratings: Any) -> NDArray[Any] | None:
        return None if self.item_features is None else item_features(self.item_features, ratings.item_ids)

    def saved_params(self) -> dict[str, Any]:
        """Without features, which are input, like ratings; where their file lies says something about the owner."""
        return super().saved_params() | {"item_features": None}

    def __repr__(self) -> str:
        """With the kind of item features instead of all their numbers."""
        if self.item_features is None or isinstance(self.item_features, str):
            return super().__repr__()
        short = copy.copy(self)
        short.item_features = f"<{type(self.item_features).__name__}>"
        return super(DPMF, short).__repr__()
