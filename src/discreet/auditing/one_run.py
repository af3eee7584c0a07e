"""Level 3, one run: hide thousands of canaries in one training, and attack the trained model.

Every canary takes part with probability 1/2. It has a few items of its own, rated far above and
below the range, so its traces are in the model's values for these items. An attack that knows which
of one half of the canaries took part learns what distinguishes them in the trained model. It then
guesses the membership of the other half, where it is confident. The number of right guesses bounds
ε from below (`discreet.auditing.one_run_bounds`).

This level trusts neither proofs nor ledgers nor the release point. In return it has little power: a
lower bound from one training is far below the loss of the worst canary, so it finds only gross
faults, wherever they are. It is also the only level that may use given ratings: it reads only the
released model, so its cost is that of one training.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.auditing import one_run_bounds as bounds
from discreet.auditing.conformance import adversarial_ratings
from discreet.auditing.conformance.recorded_fit import clone
from discreet.auditing.neighboring_runs import CROWDS, RANGE, SEED, claim_of, quiet
from discreet.auditing.result import Claim, Level
from discreet.data.ratings import Ratings
from discreet.errors import BudgetExceeded, ConfigError
from discreet.models.private import PrivateRecommender
from discreet.privacy.release.budget_store import Account

SEES = (
    "any gross fault, wherever it is: in proofs, in code, in the noise, or in other saved values"
    " the factors"
)
BLIND_TO = (
    "losses too small to show in one training: a bound well below the claim is normal, and no"
    " evidence for it"
)
#: Two ratings of each sign, so that a canary leaves a trace in counts, biases and factors.
ITEMS_EACH = 4
SHARED_ITEMS = 40
FAR = 1e6
#: Shares of the second half to guess; the first half determines the best one.
GUESSED = (0.02, 0.05, 0.1, 0.2, 0.4)
CONFIDENCE = 0.95
ERROR = 1e-6
#: With δ and no μ: the term 2mδ in the bound of Steinke et al. makes smaller errors unreachable.
ERROR_WITHOUT_MU = 1e-3

_PATTERN = np.where(np.arange(ITEMS_EACH) % 2, -1.0, 1.0)


@dataclass(frozen=True)
class Game:
    """Ratings of users and of the canaries that take part.

    Attributes
    ----------
    ratings : what the model is trained on
    coins : which canaries take part
    first_item : index of the first canary's first item
    """

    ratings: Ratings
    coins: NDArray[np.bool_]
    first_item: int

    @property
    def canaries(self) -> int:
        return len(self.coins)

    @property
    def items(self) -> NDArray[np.int64]:
        """The items of each canary, (canaries, items each)."""
        return self.first_item + np.arange(self.canaries * ITEMS_EACH).reshape(
            self.canaries, ITEMS_EACH
        )


@dataclass(frozen=True)
class Guesses:
    """The numbers of canaries, of guesses made about them, and of right guesses."""

    canaries: int
    made: int
    right: int


def audit_one_run(
    model: PrivateRecommender,
    *,
    ratings: Ratings | None = None,
    canaries: int = 2000,
    error: float | None = None,
    seed: int | None = None,
    account: Account | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[Level, PrivateRecommender]:
    """Run level 3, and return it with the trained model and its ledger.

    Parameters
    ----------
    model : PrivateRecommender
    ratings : Ratings, optional
        Users among whom the canaries are hidden. Default: generated users.
    canaries : int
        The attack learns from one half of them and guesses the other half.
    error : float, optional
        Largest probability of refuting a correct model. Default 1e-6, or 1e-3 for a claim with δ
        and no μ.
    seed : int, optional
        Seed of the choice of canaries. Default: the operating system's entropy.
    account : Account, optional
        Account of the users in `ratings`, to which the training is charged.
    """
    if canaries < 100:  # with fewer, not even perfect guesses refute a claim of ε = 1
        raise ConfigError(f"canaries is {canaries!r}: level 'one run' needs at least 100.")
    begin = time.perf_counter()
    rng = np.random.default_rng(seed)
    if ratings is None:
        game, fitted = _train_on_generated(model, canaries, rng, progress)
    else:
        game = make_game(ratings, canaries, model.neighboring == "replace-one", rng)
        fitted = _train_on_people(model, game, account, progress)
    claim = claim_of(fitted)
    guesses = attack(features(fitted, game), game.coins, error=0.05)
    return _judge(claim, guesses, error, time.perf_counter() - begin), fitted


def _judge(claim: Claim, guesses: Guesses, error: float | None, seconds: float) -> Level:
    m, made, right = guesses.canaries, guesses.made, guesses.right
    by_steinke = bounds.steinke_epsilon(m, made, right, claim.delta, 1 - CONFIDENCE)
    gaussian = claim.mu is not None
    by_fdp = bounds.fdp_epsilon(m, made, right, claim.delta, 1 - CONFIDENCE) if gaussian else None
    if error is None:
        error = ERROR if gaussian or claim.delta == 0 else ERROR_WITHOUT_MU
    if claim.mu is not None:
        refuted = bounds.fdp_refutes(m, made, right, claim.mu, error)
    else:
        refuted = bounds.steinke_p_value(m, made, right, claim.epsilon, claim.delta) < error
    found = by_steinke if by_fdp is None else by_fdp
    findings = []
    if refuted:
        findings.append(
            f"this many right guesses have a probability below {error:g} if the claim holds"
        )
    ways = f"Steinke et al. {by_steinke:.3g}"
    if by_fdp is not None:
        ways = f"f-DP {by_fdp:.3g}, " + ways
    findings.append(
        f"{right} of {made} guesses on {m} canaries are right; lower bounds on ε at"
        f" {CONFIDENCE:.0%} confidence: {ways}"
    )
    return Level(
        "one run",
        refuted,
        "epsilon",
        claim.epsilon,
        found,
        tuple(findings),
        SEES,
        BLIND_TO,
        seconds,
        {
            "canaries": m,
            "guesses": made,
            "right": right,
            "epsilon_fdp": by_fdp,
            "epsilon_steinke": by_steinke,
            "confidence": CONFIDENCE,
            "error": error,
        },
    )


# ------------------------------------------------------------------ the game


def _train_on_generated(
    model: PrivateRecommender,
    canaries: int,
    rng: np.random.Generator,
    progress: Callable[[int, int, str], None] | None,
) -> tuple[Game, PrivateRecommender]:
    """Train on canaries and as many generated users as the budget needs."""
    given = getattr(model, "rating_range", None)
    low, high = RANGE if given is None else given
    fixed = {"rating_range": (low, high)} if "rating_range" in model.get_params() else {}
    for crowd in CROWDS[2:]:
        generated = adversarial_ratings.make_ratings(
            crowd, n_items=SHARED_ITEMS, low=low, high=high, far=False
        )
        game = make_game(generated, canaries, model.neighboring == "replace-one", rng)
        fitted = clone(model, noise="secure", random_state=SEED, **fixed)
        try:
            with quiet():
                fitted.fit(game.ratings, progress=progress)
        except BudgetExceeded:
            continue
        return game, fitted
    raise ConfigError(
        f"{type(model).__name__} learns nothing at ε = {model.epsilon:g} with {canaries:,}"
        " canaries. Raise epsilon."
    )


def _train_on_people(
    model: PrivateRecommender,
    game: Game,
    account: Account | None,
    progress: Callable[[int, int, str], None] | None,
) -> PrivateRecommender:
    """Train on given ratings, and append the ledger to the model's earlier ones even on failure."""
    fitted = clone(model)
    try:
        fitted.fit(game.ratings, account=account, progress=progress)
    finally:
        stated = getattr(fitted, "privacy_", None)
        if stated is not None and stated.ledger.entries:
            model.earlier_ledgers_ = (*model.earlier_ledgers_, stated.ledger)
    return fitted


def make_game(crowd: Ratings, canaries: int, replacing: bool, rng: np.random.Generator) -> Game:
    """Append canaries with their own items to the users.

    Under replace-one, canaries that do not take part are users without ratings.
    """
    coins = rng.random(canaries) < 0.5
    rows = np.arange(canaries) if replacing else np.flatnonzero(coins)
    counts = np.where(coins[rows], ITEMS_EACH, 0)
    there = rows[coins[rows]]
    own = crowd.n_items + (there[:, None] * ITEMS_EACH + np.arange(ITEMS_EACH)).ravel()
    ids = [f"canary {row}" for row in rows.tolist()]
    new = [f"item of canary {row} {at}" for row in range(canaries) for at in range(ITEMS_EACH)]
    ratings = Ratings.from_indices(
        np.concatenate([crowd.indptr, crowd.indptr[-1] + np.cumsum(counts)]),
        np.concatenate([crowd.indices, own]),
        np.concatenate([crowd.values, np.tile(FAR * _PATTERN, len(there))]),
        np.array([*crowd.user_ids.tolist(), *ids], object),
        np.array([*crowd.item_ids.tolist(), *new], object),
        catalog=crowd.catalog,
        filtered=crowd.filtered,
    )
    return Game(ratings, coins, crowd.n_items)


def features(model: PrivateRecommender, game: Game) -> NDArray[np.float64]:
    """Return the released model's values for each canary's items, (canaries, features)."""
    own = game.items
    V = model.item_factors_.astype(np.float64)[own]
    b = model.item_biases_.astype(np.float64)[own]
    found = [
        (b * _PATTERN).sum(axis=1),
        np.abs(b).sum(axis=1),
        (V**2).sum(axis=(1, 2)),
        np.linalg.norm((V * _PATTERN[:, None]).sum(axis=1), axis=1),
        np.linalg.norm(V.sum(axis=1), axis=1),
    ]
    if model.counts_ is not None:
        found.append(model.counts_[own].sum(axis=1))
    low, high = getattr(model, "rating_range_", None) or RANGE
    rows = np.arange(game.canaries + 1) * ITEMS_EACH
    history = np.tile(np.where(_PATTERN > 0, high, low), game.canaries).astype(np.float32)
    with np.errstate(all="ignore"):
        U, _, item_vectors = model.score_vectors(rows, own.ravel().astype(np.int32), history)
    scores = np.einsum("ir,ijr->ij", U.astype(np.float64), item_vectors.astype(np.float64)[own]) + b
    found += [(scores * _PATTERN).sum(axis=1), scores.sum(axis=1)]
    return np.nan_to_num(np.column_stack(found), nan=0.0, posinf=0.0, neginf=0.0)


def attack(X: NDArray[np.float64], coins: NDArray[np.bool_], error: float) -> Guesses:
    """Learn a linear discriminant and the share to guess from one half; guess the other half.

    The membership of the second half is independent of the first, so both bounds hold.
    """
    half = len(coins) // 2
    known, asked = slice(0, half), slice(half, None)
    center = np.median(X[known], axis=0)
    spread = X[known].std(axis=0)
    Z = np.clip((X - center) / np.where(spread > 0, spread, 1.0), -10, 10)
    heads, tails = Z[known][coins[known]], Z[known][~coins[known]]
    if min(len(heads), len(tails)) < 2:
        return Guesses(len(coins) - half, 0, 0)
    within = (np.cov(heads.T) + np.cov(tails.T)) / 2 + 1e-3 * np.eye(Z.shape[1])
    scores = Z @ np.linalg.solve(within, heads.mean(axis=0) - tails.mean(axis=0))
    threshold = np.median(scores[known])

    def play(part: slice, share: float) -> Guesses:
        sure = np.abs(scores[part] - threshold)
        made = max(1, round(share * len(sure)))
        which = np.argsort(-sure, kind="stable")[:made]
        right = (scores[part][which] > threshold) == coins[part][which]
        return Guesses(len(sure), made, int(right.sum()))

    def lower_bound(share: float) -> float:
        found = play(known, share)
        return bounds.fdp_mu(found.canaries, found.made, found.right, error)

    best = max(GUESSED, key=lambda share: (lower_bound(share), share))
    return play(asked, best)
