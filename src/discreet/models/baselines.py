"""The private baselines: shells around the algorithms that others have proposed. They learn from ratings."""

from __future__ import annotations

from typing import Any, ClassVar

from discreet.models.algorithms.covariance import CovarianceSVD
from discreet.models.algorithms.frank_wolfe import FrankWolfe
from discreet.models.algorithms.langevin import Langevin
from discreet.models.algorithms.poisson_descent import PoissonDescent
from discreet.models.private import PrivateRecommender
from discreet.privacy.accounting.budget import Neighbouring


class DPFrankWolfe(PrivateRecommender):
    """Private Frank–Wolfe (Jain, Thakkar & Thakurta, 2018).

    Parameters
    ----------
    factors : int, optional
        Number of steps; each one adds a direction. Default 5.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    nuclear_norm : float, optional
        Largest nuclear norm of the matrix. Default: follows from a released number of users.
    item_fraction : float, optional
        The share of items, the most frequent by noisy counts, that take part. Default 0.1.
    rating_range : (low, high), optional
        Public range of the ratings. If not given, it is read from the data, and the statement says so.
    allow_large_delta : bool
        Accept a `delta` above 1e-3; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
    method : FrankWolfe, optional
        The algorithm with every knob.
    """

    feedback = "explicit"
    _kinds = (FrankWolfe,)
    #: What to say of parameters that other models have.
    instead: ClassVar = {"iterations": "its number of steps is 'factors'"}

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        nuclear_norm: float | None = None,
        item_fraction: float | None = None,
        rating_range: tuple[float, float] | None = None,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
        method: FrankWolfe | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.nuclear_norm = nuclear_norm
        self.item_fraction = item_fraction
        self.rating_range = rating_range
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state
        self.method = method


class DPSVD(PrivateRecommender):
    """A private covariance of ratings, factorised (McSherry & Mironov, 2009).

    Parameters
    ----------
    factors : int, optional
        How many eigenvectors are kept. Default 4.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    regularization : float, optional
        λ, the ridge of a user's own least squares. Default 1.
    item_fraction : float, optional
        The share of items, the most frequent by noisy counts, that get factors. Default 0.1.
    rating_range : (low, high), optional
        Public range of the ratings. If not given, it is read from the data, and the statement says so.
    allow_large_delta : bool
        Accept a `delta` above 1e-3; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
    method : CovarianceSVD, optional
        The algorithm with every knob.
    """

    feedback = "explicit"
    _kinds = (CovarianceSVD,)

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        regularization: float | None = None,
        item_fraction: float | None = None,
        rating_range: tuple[float, float] | None = None,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
        method: CovarianceSVD | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.regularization = regularization
        self.item_fraction = item_fraction
        self.rating_range = rating_range
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state
        self.method = method


class DPSGLD(PrivateRecommender):
    """Private Langevin dynamics (Liu, Wang & Smola, 2015).

    Parameters
    ----------
    factors : int, optional
        Default 8.
    epsilon, delta, neighbouring, accountant
        The promise, and how it is priced. See docs/privacy.md.
    iterations : int, optional
        Steps. Default 20.
    item_fraction : float, optional
        The share of items, the most frequent by noisy counts, that get factors. Default 0.4.
    rating_range : (low, high), optional
        Public range of the ratings. If not given, it is read from the data, and the statement says so.
    allow_large_delta : bool
        Accept a `delta` above 1e-3; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
    method : Langevin, optional
        The algorithm with every knob.
    """

    feedback = "explicit"
    _kinds = (Langevin,)

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        iterations: int | None = None,
        item_fraction: float | None = None,
        rating_range: tuple[float, float] | None = None,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "gdp",
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
        method: Langevin | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.iterations = iterations
        self.item_fraction = item_fraction
        self.rating_range = rating_range
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state
        self.method = method


class DPSGD(PrivateRecommender):
    """Private stochastic gradient descent (Abadi et al., 2016).

    Parameters
    ----------
    factors : int, optional
        Default 8.
    epsilon, delta, neighbouring
        The promise. See docs/privacy.md. With "replace-one", `batch_rate` must be 1.
    accountant : {"pld", "gdp", "rdp"}
        Only "pld" counts that batches are random.
    iterations : int, optional
        Steps. Default 40.
    batch_rate : float, optional
        The probability with which a user is in a batch; 1 takes everybody at every step. Default 0.2.
    item_fraction : float, optional
        The share of items, the most frequent by noisy counts, that get factors. Default 0.4.
    rating_range : (low, high), optional
        Public range of the ratings. If not given, it is read from the data, and the statement says so.
    allow_large_delta : bool
        Accept a `delta` above 1e-3; the statement says so.
    noise : {"secure", "seeded"}
    random_state : int, optional
    method : PoissonDescent, optional
        The algorithm with every knob.
    """

    feedback = "explicit"
    _kinds = (PoissonDescent,)

    def __init__(
        self,
        factors: int | None = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        iterations: int | None = None,
        batch_rate: float | None = None,
        item_fraction: float | None = None,
        rating_range: tuple[float, float] | None = None,
        neighbouring: Neighbouring = "add-remove",
        accountant: str = "pld",
        allow_large_delta: bool = False,
        noise: Any = "secure",
        random_state: int | None = None,
        method: PoissonDescent | None = None,
    ) -> None:
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.iterations = iterations
        self.batch_rate = batch_rate
        self.item_fraction = item_fraction
        self.rating_range = rating_range
        self.neighbouring = neighbouring
        self.accountant = accountant
        self.allow_large_delta = allow_large_delta
        self.noise = noise
        self.random_state = random_state
        self.method = method
