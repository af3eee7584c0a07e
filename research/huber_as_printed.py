"""The Huber paper to the letter, and **not private**: no bounds, no centering, noise on right-hand
sides alone.

Algorithms 1 to 3 of "Introducing the Huber mechanism for differentially private low-rank matrix
completion" (Gowtham et al., 2022): what they compute, and what they let out. Gram matrices leave
without noise, one user may move a right-hand side without bound, and no step is charged, so there
is no finite ε (erratum 12), and the statement says so. `robust_solve` holds the sound version. T
times, with noise of a fixed variance on the right-hand sides:

    u_i = (Σ_{j ∈ Ω_i} v_j v_jᵀ + λ I)⁻¹ Σ_{j ∈ Ω_i} y_ij v_j                                    (1)
    v_j = (Σ_i w_ij u_i u_iᵀ + λ I)⁻¹ (Σ_i w_ij y_ij u_i + noise),   w as in `robust_solve`      (2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import solve_psd
from discreet.models.algorithm import EVERY_ITEM, Algorithm, Learned, Progress, Range
from discreet.models.fold_in import FoldIn, LeastSquaresFoldIn
from discreet.models.huber_als import MECHANISMS, SOLVERS, HuberALS
from discreet.models.parameters import (
    MOST_SWEEPS,
    check_choice,
    check_int,
    check_number,
    check_positive,
)
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace, Mechanism
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import ReleasableSum, Session
from discreet.privacy.release.statement import PrivacyStatement
from discreet.privacy.release.unsafe import reveal, under_noised
from discreet.privacy.statistics.base import unpack
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemGrams, ItemSums
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import Choose, Reweigh, Solve

UNBOUNDED = 1e9  # bounds that no user reaches: the paper has none


@dataclass(frozen=True, repr=False)
class HuberAsPrinted(Algorithm):
    """The algorithm above with its parameters. **Not private.**

    Parameters
    ----------
    factors : int
    mechanism : {"gaussian", "laplace", "huber"}
    variance : float
        Of the noise; 0 is the paper's "vanilla" column.
    solver : {"als", "irls"}
    iterations, inner_iterations : int
        T, and K of "irls".
    transition : float, optional
        Residuals beyond it count less. Default: α of Huber noise with that variance.
    regularization : float
        λ of users and items.
    initial_scale : float
        Standard deviation of the factors to start from.
    """

    name: ClassVar[str] = "Huber, as printed"

    factors: int = 4
    mechanism: Literal["gaussian", "laplace", "huber"] = "huber"
    variance: float = 1.0
    solver: Literal["als", "irls"] = "als"
    iterations: int = 50
    inner_iterations: int = 20
    transition: float | None = None
    regularization: float = 0.5
    initial_scale: float = 1.0

    # ------------------------------------------------------------ pure

    def resolve(self, budget: Budget, n_items: int, rating_range: Range) -> Self:
        check_int("factors", self.factors)
        for name in ("iterations", "inner_iterations"):
            check_int(name, getattr(self, name), 1, MOST_SWEEPS)
        for name in ("variance", "regularization"):
            check_number(name, getattr(self, name))
        check_positive("initial_scale", self.initial_scale)
        check_choice("mechanism", self.mechanism, *MECHANISMS)
        check_choice("solver", self.solver, *SOLVERS)
        usual = Huber.with_variance(self.variance).alpha if self.variance > 1 else 3.0
        found = replace(self, transition=usual if self.transition is None else self.transition)
        check_positive("transition", found.transition)
        return found

    def bounds(self) -> Bounds:
        return Bounds(items=EVERY_ITEM, rating=UNBOUNDED, norm=UNBOUNDED)

    def releases(self, n_items: int) -> list[Release]:
        """None: everything goes round the door."""
        return []

    def plan(self, n_items: int, budget: Budget, accountant: str) -> Plan:
        return Plan((), budget, "gdp")

    def statistics(self, users: Users) -> dict[str, ReleasableSum]:
        return {}

    def statement(self, ledger: Ledger) -> PrivacyStatement:
        return PrintedStatement.from_ledger(ledger)

    # ------------------------------------------------------------ learning

    def learn(
        self,
        users: Users,
        session: Session,
        *,
        features: NDArray[Any] | None,
        seed: int,
        progress: Progress,
    ) -> Learned:
        assert self.transition is not None
        rng = np.random.default_rng(seed if session.ledger.noise == "seeded" else None)
        noise = self._noise()
        users.apply(Choose())
        V = self.initial_scale * np.random.default_rng(seed).standard_normal(
            (users.n_items, self.factors)
        )
        before = V
        for step in range(self.iterations):
            before = V  # the paper's Z = U Vᵀ takes the users from before the last item step
            users.apply(Solve(V, self.regularization))
            if self.solver == "irls":
                V = rng.standard_normal(V.shape)  # Algorithm 3 starts afresh every time
            for _ in range(1 if self.solver == "als" else self.inner_iterations):
                robust = (
                    users.copy_after(Reweigh(V, self.transition))
                    if self.solver == "irls"
                    else users
                )
                G = unpack(reveal(session, "gram", robust.sum(ItemGrams())), self.factors)
                g = under_noised(session, "sum", robust.sum(ItemSums()), noise, rng)
                V = solve_psd(G, g, np.full(len(g), self.regularization), project=False)
            progress(step + 1, self.iterations, "steps")
        details = {"previous_factors": before.tolist()}
        return Learned(V.astype(np.float32), np.zeros(len(V), np.float32), None, details)

    def _noise(self) -> Mechanism | None:
        """Noise of that variance; α = 3 stands for Huber noise of variance 1, which no α has."""
        if self.variance == 0:
            return None
        if self.mechanism == "gaussian":
            return Gaussian(math.sqrt(self.variance))
        if self.mechanism == "laplace":
            return Laplace(math.sqrt(self.variance / 2))
        return (
            Huber.with_variance(self.variance)
            if self.variance > 1
            else Huber(3.0, math.sqrt(self.variance))
        )

    # ------------------------------------------------------------ reading out

    def fold_in_rule(self, learned: Learned) -> FoldIn:
        return LeastSquaresFoldIn(self.regularization, centering="none")


class PrintedStatement(PrivacyStatement):
    """What may be said of the algorithm as the paper prints it (erratum 12)."""

    def _refusal(self) -> str:
        return (
            "NOT PRIVATE: ε is infinite, because as printed the Gram matrices leave without noise,"
            " one user may move the noisy right-hand sides without bound, and no step is charged."
            " The result must be handled like the ratings themselves."
        )


class HuberALSAsPrinted(HuberALS):
    """`HuberALS` around the algorithm as printed. **Not private**, and its statement says so."""

    _kinds = (HuberAsPrinted,)  # type: ignore[assignment]
