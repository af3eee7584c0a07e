r"""Linear regression of many targets on common features, with user-level differential privacy.

Remark 7 of Chien et al. (2021): m regressions y_j = X w_j with a common X are one item step of
DPALS. One Gram matrix serves all targets, so that only right-hand sides grow with m. Released:

    G = Σ c x xᵀ + N_G,      H = Σ c x yᵀ + N_H,      (Σ c, Σ c y_j²) + noise                   (1)

with rows cut and weighed as in `discreet.privacy.statistics.regression`. Errors of the solution
have ‖w‖ τ_G √p from G and τ_H √m from H, whose noise τ is in proportion to 1/√(share of μ²); their
sum is least for shares in the ratio √p : √m. The moments get `MOMENTS_SHARE`.

Everything else is post-processing. In the eigenvectors of G, with eigenvalues g_a ≥ 0,

    h_aj = g_a w_aj + e_aj,      Var e_aj = r_aj = τ_H² + τ_G² v_j (p + 1)/2 + σ_j² g_a          (2)

where the second term is the noise of G times w_j, and the third the sampling of rows. With w_aj ~
N(0, v_j), the posterior is normal, with

    mean v_j g_a h_aj / (v_j g_a² + r_aj),      variance v_j r_aj / (v_j g_a² + r_aj)            (3)

a ridge regression whose ridge follows from the noise, which is known: directions in which G is
below its noise are shrunk to 0. v_j = v (mean square of target j), and the one number v maximizes
the likelihood of all h_aj. Where noise hides nearly everything, that v is near 0, which does not
mean that coefficients are. So intervals of predictions take the variance (3) at the largest v whose
likelihood is within its own 99 % interval, and add the square of what the mean would change by.

That is right on average over directions, and wrong for one large coefficient among zeros, of which
(3) takes away as much as of all. Intervals of coefficients are those of (3) with a prior as wide as
the largest plausible ‖w_j‖², and with the noise of all of it in one direction:

    w_aj ~ N(0, L_j),      r_aj = τ_H² + τ_G² L_j + σ_j² g_a,                                   (4)

L_j = p times the largest v_j that is likely for target j alone (95 %), or Σ_a of mean² + variance
of (4) itself if that is less: where w is measured, its length is. Measured directions are then
hardly shrunk and have the variance r/g² of least squares; hidden ones have the interval ±2 √L_j,
up to √p times as wide as by (3). For any w with ‖w‖² ≤ L the variance in (4) is at least the mean
squared error, bias included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from discreet.data.ids import InexactIds, RowError, encode_users
from discreet.errors import ConfigError, DataError
from discreet.privacy.accounting.budget import DEFAULT_DELTA, Budget, Neighboring
from discreet.privacy.release.budget_store import Account, charge_account
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.release.statement import PrivacyStatement
from discreet.privacy.statistics.base import triangle_size
from discreet.privacy.statistics.bounds import check_bound
from discreet.privacy.statistics.regression import (
    CrossProducts,
    FeatureGram,
    RegressionSum,
    RowMoments,
)
from discreet.privacy.users.sealed_users import Users, seal_rows

MOMENTS_SHARE = 0.05  # of μ²: they only scale the prior and the intervals
#: Prior variances that are tried, relative to (mean square of a target) / feature_norm².
PRIORS = np.geomspace(1e-6, 1e6, 121)
LIKELY = 3.32  # half of the 99 % quantile of χ² with one degree of freedom
LIKELY_ALONE = 1.92  # of the 95 % quantile
MOST_COLUMNS = 4096  # features or targets: the largest Gram matrix is then 64 MB

Floats = NDArray[np.float64]


@dataclass
class DPRegression:
    """Linear regression of one or many targets, with user-level differential privacy.

    A user may have many rows, and counts as at most `max_rows` of them. Scale features and targets
    with public numbers beforehand: columns should have similar sizes, and targets a mean near 0.

    Parameters
    ----------
    epsilon : float
        The privacy budget: how much may be learned about any one user. There is no default.
    feature_norm, target_norm : float
        Public bounds: the features and the targets of a row are scaled down to these Euclidean
        norms if they are longer. Noise is in proportion to them.
    max_rows : int
        A user with more rows than this counts as this many, each with less weight.
    fit_intercept : bool
        Whether to add a constant feature. It is shrunk as the others are.
    delta : float
        Probability that the bound of `epsilon` fails. See docs/privacy.md.
    neighboring : {"add-remove", "replace-one"}
        What is hidden: whether a user is in the data at all, or which user it is.
    accountant : {"gdp", "rdp", "pld"}
        How the privacy cost is computed.
    noise : {"secure", "seeded"}
        Seeded noise is for research, and needs a `random_state`.
    random_state : int, optional
        Seed of seeded noise.

    Attributes
    ----------
    coef_ : (n_targets, n_features)
        Also for targets without a second dimension: then n_targets is 1.
    intercept_ : (n_targets,)
    feature_names_in_ : tuple of str or None
        Names of the columns of X, if it was a data frame with names.
    residual_std_ : (n_targets,)
        Estimated standard deviation of targets around their prediction.
    n_rows_ : float
        Noisy number of rows, where a user counts as at most `max_rows`.
    privacy_ : PrivacyStatement
    """

    epsilon: float
    feature_norm: float
    target_norm: float
    max_rows: int = 1
    fit_intercept: bool = True
    delta: float = DEFAULT_DELTA
    neighboring: Neighboring = "add-remove"
    accountant: str = "gdp"
    noise: Any = "secure"
    random_state: int | None = None

    coef_: Floats = field(init=False, repr=False)
    intercept_: Floats = field(init=False, repr=False)
    feature_names_in_: tuple[str, ...] | None = field(init=False, repr=False)
    residual_std_: Floats = field(init=False, repr=False)
    n_rows_: float = field(init=False, repr=False)
    privacy_: PrivacyStatement = field(init=False, repr=False)

    # ------------------------------------------------------------ what is released

    def plan(self, n_features: int, n_targets: int) -> Plan:
        """Return the releases and their noise, from public numbers alone."""
        self._check_parameters()
        for name, count in (("features", n_features), ("targets", n_targets)):
            if not 1 <= count <= MOST_COLUMNS:
                raise ConfigError(
                    f"There are {count:,} {name}. DPRegression needs 1 to {MOST_COLUMNS:,}."
                )
        columns = n_features + self.fit_intercept
        rest = (1 - MOMENTS_SHARE) / (math.sqrt(columns) + math.sqrt(n_targets))
        lines = [
            Release(
                "feature gram",
                share=rest * math.sqrt(columns),
                shape=(1, triangle_size(columns)),
            ),
            Release(
                "cross products", share=rest * math.sqrt(n_targets), shape=(columns, n_targets)
            ),
            Release("row moments", share=MOMENTS_SHARE, shape=(1 + n_targets,)),
        ]
        budget = Budget(self.epsilon, self.delta, self.neighboring)
        return Plan.from_shares(lines, budget, self.accountant)

    def statistics(self, n_features: int) -> dict[str, RegressionSum]:
        """Return the sums by the names of their releases."""
        constant = self._constant(n_features)
        kinds: dict[str, Callable[[int, float, float, int], RegressionSum]] = {
            "feature gram": FeatureGram,
            "cross products": CrossProducts,
            "row moments": RowMoments,
        }
        norm = math.hypot(self.feature_norm, constant)
        columns = n_features + self.fit_intercept
        return {
            name: kind(columns, norm, self.target_norm, self.max_rows)
            for name, kind in kinds.items()
        }

    def _constant(self, n_features: int) -> float:
        """Return the constant feature: as large as one of p equal features of the largest norm."""
        return self.feature_norm / math.sqrt(n_features) if self.fit_intercept else 0.0

    def _check_parameters(self) -> None:
        for name in ("feature_norm", "target_norm"):
            check_bound(name, getattr(self, name))
        k: Any = self.max_rows
        if isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= int(k) <= 10**6:
            raise ConfigError(f"max_rows is {k!r}, but must be a whole number from 1 to 1,000,000.")
        if not (isinstance(self.noise, str) or hasattr(self.noise, "add")):
            raise ConfigError(f"noise is {self.noise!r}, but must be 'secure' or 'seeded'.")
        if self.noise == "seeded" and self.random_state is None:
            raise ConfigError("noise='seeded' needs a seed. Pass random_state, and keep it secret.")
        if not isinstance(self.fit_intercept, bool):
            raise ConfigError(
                f"fit_intercept is {self.fit_intercept!r}, but must be True or False."
            )

    # ------------------------------------------------------------ learning

    def fit(
        self,
        X: ArrayLike,
        Y: ArrayLike,
        users: ArrayLike | None = None,
        *,
        account: Account | None = None,
    ) -> Self:
        """Fit the coefficients.

        Privacy: releases three sums over users; sensitivities k B², k B C and √2 k C² (B with the
        constant feature), because rows are cut and a user's weights add up to at most k.

        Parameters
        ----------
        X : (n_rows, n_features)
            Missing and infinite numbers count as 0. Names of columns are kept.
        Y : (n_rows, n_targets) or (n_rows,)
            Missing and infinite numbers count as 0. With one dimension, predictions have one too.
        users : (n_rows,), optional
            The user id of each row, a number or a string; 7, 7.0 and "7" are one user. Pass ids of
            several types as a list, since one type for all may merge users. Default: every row is
            a user of its own, which the statement then says.
        account : Account, optional
            The privacy account of these users in a `discreet.BudgetStore`.
        """
        names = _column_names(X)
        X = _as_table("X", X)
        targets = _as_table("Y", Y)
        one_dimension = np.ndim(Y) == 1
        whose = None if users is None else _group_ids(users)
        if len(X) != len(targets) or (whose is not None and len(whose) != len(X)):
            raise DataError(
                "X, Y and users differ in length. Pass one row of each per observation."
            )
        p = X.shape[1]
        plan = self.plan(p, targets.shape[1])
        session = Session(plan, self.noise, self.random_state)
        with charge_account(account, session, type(self).__name__):
            session.record_assumption(
                "bounds",
                f"features are cut to the norm {self.feature_norm:g}, targets to"
                f" {self.target_norm:g}, and a user counts as at most {self.max_rows} rows",
            )
            if whose is None:
                session.record_assumption("users", "that every row is a user of its own")
            try:
                sealed = seal_rows(lambda: self._rows(X, targets, whose))
                self._learn(sealed, session, p)
            finally:  # what was released stays released
                self.privacy_ = replace(session.statement, joint=False)
            session.finish()
        self.feature_names_in_ = names
        self._one_dimension = one_dimension
        return self

    def _rows(
        self, X: Floats, Y: Floats, whose: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return the rows of each user, with the constant feature; each row from itself alone."""
        X = np.nan_to_num(X, nan=0.0, posinf=0.0, neginf=0.0)
        length = np.sqrt((np.clip(X, -1e150, 1e150) ** 2).sum(axis=1, keepdims=True))
        X = X * np.minimum(1.0, self.feature_norm / np.maximum(length, 1e-300))
        constant = np.full((len(X), int(self.fit_intercept)), self._constant(X.shape[1]))
        rows = np.hstack([X, constant, Y])
        if whose is None:
            return np.arange(len(rows) + 1), rows
        order = np.argsort(whose, kind="stable")
        return np.concatenate([[0], np.cumsum(np.bincount(whose))]).astype(np.int64), rows[order]

    def _learn(self, users: Users, session: Session, p: int) -> None:
        """Release (1) and solve (3)."""
        sums = {name: users.sum(kind) for name, kind in self.statistics(p).items()}
        gram, cross, moments = session.release_together(list(sums.items()))
        noise = {name: session.deviation(name, one) for name, one in sums.items()}
        unit = self.target_norm**2
        least = noise["row moments"] / unit
        self.n_rows_ = max(float(moments[0]) / unit, least, 1.0)
        squares = np.maximum(moments[1:], noise["row moments"]) / self.n_rows_
        found = solve(
            sums["feature gram"].unpack(gram)[0],
            cross,
            squares,
            self.n_rows_,
            noise["feature gram"],
            noise["cross products"],
            self.feature_norm,
        )
        scale = self._constant(p)
        self.coef_ = found.mean[:p].T.copy()
        self.intercept_ = scale * found.mean[p] if self.fit_intercept else np.zeros(len(squares))
        self.residual_std_ = np.sqrt(found.residual)
        self._square_noise = noise["row moments"] / self.n_rows_
        self._posterior = found

    # ------------------------------------------------------------ predictions and intervals

    def predict(self, X: ArrayLike) -> Floats:
        """Return predictions (n_rows, n_targets), or (n_rows,) if the targets of `fit` were so.

        A data frame needs the columns of `fit` in the same order; arrays are read by position.
        """
        self._check_fitted()
        return self._shape(self._as_features(X) @ self.coef_.T + self.intercept_)

    def coef_interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return (low, high) of every coefficient, each (n_targets, n_features).

        By (4): for the noise, and for the sampling of rows as if rows were independent. They also
        hold for one large coefficient among zeros, so their middle is less shrunk than `coef_`,
        which may lie outside.
        """
        self._check_fitted()
        found = self._posterior
        p = self.coef_.shape[1]
        middle = found.wide_mean[:p].T
        variance = found.directions**2 @ found.wide_spread
        width = _quantile(confidence) * np.sqrt(variance[:p].T)
        return middle - width, middle + width

    def predict_interval(
        self, X: ArrayLike, confidence: float = 0.95, *, observation: bool = False
    ) -> tuple[Floats, Floats]:
        """Return (low, high) of the mean of each target, or of a new observation of it.

        Both have the shape of `predict`. They cover on average over rows such as those of `fit`.
        For the effect of one feature alone, see `coef_interval`.
        """
        middle = self.predict(X)
        X = self._as_features(X)
        constant = np.full((len(X), int(self.fit_intercept)), self._constant(X.shape[1]))
        variance = self._posterior.variances(np.hstack([X, constant]))
        if observation:
            # half of the errors of a noisy variance are above 0: one deviation covers most of them
            variance = variance + self.residual_std_**2 + self._square_noise
        reach = self._shape(_quantile(confidence) * np.sqrt(variance))
        return middle - reach, middle + reach

    def _shape(self, numbers: Floats) -> Floats:
        """Return numbers (n_rows, n_targets) in the dimensions of the targets of `fit`."""
        return numbers[:, 0] if self._one_dimension else numbers

    def _as_features(self, X: ArrayLike) -> Floats:
        names = _column_names(X)
        X = _as_table("X", X)
        p = self.coef_.shape[1]
        if X.shape[1] != p:
            raise DataError(
                f"X has {X.shape[1]:,} columns, but the regression has {p:,} features. Pass one"
                " row of features per prediction."
            )
        if names and self.feature_names_in_ and names != self.feature_names_in_:
            raise DataError(
                "X has other columns than at fit, or in another order. Pass the columns of"
                " feature_names_in_, in that order."
            )
        return X

    def _check_fitted(self) -> None:
        if not hasattr(self, "coef_"):
            raise ConfigError("The regression is not fitted yet. Call fit first.")


# ------------------------------------------------------------ pure functions


@dataclass(frozen=True)
class Posterior:
    """The solutions (3) and (4).

    Attributes
    ----------
    mean : (p, m) coefficients
    directions : (p, p) eigenvectors of the Gram matrix, as columns
    spread : (p, m) variances for intervals of predictions, in these directions
    wide_mean : (p, m) coefficients by (4)
    wide_spread : (p, m) their variances, in these directions
    residual : (m,) variances of targets around their predictions
    """

    mean: Floats
    directions: Floats
    spread: Floats
    wide_mean: Floats
    wide_spread: Floats
    residual: Floats

    def variances(self, X: Floats) -> Floats:
        """Return the variances (n, m) of X times the coefficients."""
        found: Floats = (X @ self.directions) ** 2 @ self.spread
        return found


def solve(
    G: Floats,
    H: Floats,
    squares: Floats,
    n_rows: float,
    gram_noise: float,
    cross_noise: float,
    feature_norm: float,
) -> Posterior:
    """Estimate coefficients from noisy sums by (2), (3) and (4).

    Parameters
    ----------
    G, H : (p, p), (p, m)
    squares : (m,)
        Mean squares of the targets.
    n_rows : float
    gram_noise, cross_noise : float
        τ_G, of the diagonal, and τ_H.
    feature_norm : float
        The unit of the prior.
    """
    values, Q = np.linalg.eigh((G + G.T) / 2)
    g = np.maximum(values, 0.0)[:, None]
    h = Q.T @ H
    unit = squares / feature_norm**2
    residual = squares

    def noise(prior: Floats) -> Floats:
        return _noise(g, prior, residual, gram_noise, cross_noise)

    def posterior(prior: Floats, r: Floats) -> tuple[Floats, Floats]:
        total = prior * g**2 + r
        return prior * g * h / total, prior * r / total

    for _ in range(3):  # the residual variance is at first that of the target, and then below it
        best, largest, alone = _likely_priors(g, h, unit, residual, gram_noise, cross_noise)
        w, _ = posterior(best * unit, noise(best * unit))
        explained = (2 * w * h - g * w**2).sum(axis=0) / n_rows
        residual = np.clip(squares - explained, 1e-3 * squares, squares)
    other, spread = posterior(largest * unit, noise(largest * unit))
    length = len(g) * alone * unit
    for _ in range(3):
        wide, wide_spread = posterior(length, noise(2 * length / (len(g) + 1)))
        length = np.minimum(length, (wide**2 + wide_spread).sum(axis=0))
    return Posterior(Q @ w, Q, spread + (other - w) ** 2, Q @ wide, wide_spread, residual)


def _noise(g: Floats, prior: Floats, residual: Floats, tau_g: float, tau_h: float) -> Floats:
    """Return r (p, m) of (2); never 0, so that (3) is defined without any noise."""
    r = tau_h**2 + tau_g**2 * prior * (len(g) + 1) / 2 + residual * g
    return np.maximum(r, 1e-300)


def _likely_priors(
    g: Floats, h: Floats, unit: Floats, residual: Floats, tau_g: float, tau_h: float
) -> tuple[float, float, Floats]:
    """Return the v of `PRIORS` with which h is most likely, the largest likely one, and the largest
    likely one for each target alone (m,).
    """
    likelihood = np.empty((len(PRIORS), len(unit)))
    for at, v in enumerate(PRIORS):
        prior = v * unit
        total = prior * g**2 + _noise(g, prior, residual, tau_g, tau_h)
        likelihood[at] = -0.5 * (h**2 / total + np.log(total)).sum(axis=0)
    together = likelihood.sum(axis=1)
    likely = np.flatnonzero(together >= together.max() - LIKELY)
    each = likelihood >= likelihood.max(axis=0) - LIKELY_ALONE
    last = len(PRIORS) - 1 - np.argmax(each[::-1], axis=0)
    return float(PRIORS[np.argmax(together)]), float(PRIORS[likely[-1]]), PRIORS[last]


def _quantile(confidence: float) -> float:
    number = isinstance(confidence, Real) and not isinstance(confidence, bool)
    if not (number and 0 < confidence < 1):
        raise ConfigError(
            f"confidence is {confidence!r}, but must be between 0 and 1, such as 0.95."
        )
    return float(ndtri(0.5 + confidence / 2))


def _column_names(given: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns, or None for arrays and plain numbering."""
    # pyarrow's `columns` are data, so its names come first
    columns = getattr(given, "column_names", getattr(given, "columns", None))
    if columns is None or list(columns) == list(range(len(columns))):
        return None
    return tuple(map(str, columns))


def _as_table(name: str, given: Any) -> Floats:
    """Return numbers as rows and columns; errors name no value.

    Every number is read by itself: numpy's common type of a list would let one row change how
    others are rounded.
    """
    if hasattr(given, "toarray"):
        raise DataError(f"{name} is a sparse matrix. Pass {name}.toarray().")
    try:
        if isinstance(given, np.ndarray) and given.dtype.kind in "cmM":
            raise TypeError
        table = np.array(given, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{name} has entries that are not numbers. Encode them first.") from None
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2:
        raise DataError(f"{name} has {table.ndim} dimensions. Pass rows and columns.")
    return table


def _group_ids(given: Any) -> NDArray[np.int64]:
    """Return the number of each row's user, below the number of users; errors name no id.

    Privacy: an id is read by itself, so that no user's id changes which rows are another's. 7, 7.0
    and "7" are one user, as in block files and on Spark.
    """
    try:
        if isinstance(given, (str, bytes)):
            raise TypeError
        _, codes = encode_users(given)
    except InexactIds:
        raise
    except RowError:
        raise DataError("users has missing ids. Give every row the id of its user.") from None
    except (DataError, TypeError, ArithmeticError):  # a signaling NaN cannot be compared
        raise DataError(
            "users cannot be read as ids. Pass one user id per row, a number or text."
        ) from None
    return codes.astype(np.int64)
