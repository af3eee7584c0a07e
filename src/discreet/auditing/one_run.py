"""Level 3, one run: thousands of canaries in one training, and nothing but the model that it
leaves.

Every canary throws a fair coin; heads takes part. It has a few items that nobody else has, rated
far above and below the range, so that whatever it leaves is in what the model says of these items.
An attack that knows the coins of half of the canaries learns from the trained model how those who
took part look, and guesses the coins of the other half as far as it is sure. How many guesses are
right bounds ε from below (`discreet.auditing.one_run_bounds`).

This level trusts nothing: neither proofs nor ledgers nor the door. It pays for that with power, for
a lower bound from one training is far below what the worst canary loses: it finds gross faults, and
those wherever they are. It is also the only level that may be run on people's own ratings: what it
looks at is the released model, so it costs people what that one training costs.
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
    "any gross fault, wherever it is: in proofs, in code, in the noise, in what is saved beside the"
    " factors"
)
BLIND_TO = (
    "losses below what one training shows: a bound well below the claim is the rule and says"
    " nothing in favor"
)
ITEMS_EACH = 4
SHARED_ITEMS = 40
FAR = 1e6
#: Of those that are guessed on, how many; which is best is learned from the first half.
GUESSED = (0.02, 0.05, 0.1, 0.2, 0.4)
CONFIDENCE = 0.95
ERROR = 1e-6
#: Where the claim has a δ and no μ, fewer right guesses than δ times the canaries allows are
#: needed.
ERROR_WITHOUT_MU = 1e-3

_PATTERN = np.where(np.arange(ITEMS_EACH) % 2, -1.0, 1.0)


@dataclass(frozen=True)
class Game:
    """People with the canaries whose coins fell on heads, and the coins."""

    ratings: Ratings
    coins: NDArray[np.bool_]
    first_item: int

    @property
    def canaries(self) -> int:
        return len(self.coins)

    @property
    def items(self) -> NDArray[np.int64]:
        """Whose items: (canaries, items each)."""
        return self.first_item + np.arange(self.canaries * ITEMS_EACH).reshape(
            self.canaries, ITEMS_EACH
        )


@dataclass(frozen=True)
class Guesses:
    """How many guesses on how many canaries, and how many are right."""

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
    """Level 3, and the model that was trained for it, with its ledger.

    Parameters
    ----------
    model : PrivateRecommender
    ratings : Ratings, optional
        Among whom the canaries are. Default: generated people.
    canaries : int
        Half of them teach the attack, the other half are guessed on.
    error : float, optional
        The probability with which a right model may be refuted. Default 1e-6, or 1e-3 where there
        is a δ and no μ.
    seed : int, optional
        Of the coins. Default: the operating system's entropy.
    account : Account, optional
        Of the people in `ratings`; the training is charged to it.
    """
    if canaries < 100:
        raise ConfigError(f"canaries is {canaries!r}, but one run needs at least 100")
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
            f"so many right guesses have a probability below {error:g} if the claim holds"
        )
    ways = f"Steinke et al. {by_steinke:.3g}"
    if by_fdp is not None:
        ways = f"f-DP {by_fdp:.3g}, " + ways
    findings.append(
        f"{right} of {made} guesses on {m} canaries are right; ε is at least, at {CONFIDENCE:.0%}"
        f" confidence: {ways}"
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
    """One training on generated people, as many as the budget needs, and canaries."""
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
        f"{type(model).__name__} learns nothing at ε = {model.epsilon:g} with {canaries:,} canaries"
    )


def _train_on_people(
    model: PrivateRecommender,
    game: Game,
    account: Account | None,
    progress: Callable[[int, int, str], None] | None,
) -> PrivateRecommender:
    """A training that counts: its ledger goes to the model's earlier ones, also where it does
    not come to its end.
    """
    fitted = clone(model)
    try:
        fitted.fit(game.ratings, account=account, progress=progress)
    finally:
        said = getattr(fitted, "privacy_", None)
        if said is not None and said.ledger.entries:
            model.earlier_ledgers_ = (*model.earlier_ledgers_, said.ledger)
    return fitted


def make_game(crowd: Ratings, canaries: int, replacing: bool, rng: np.random.Generator) -> Game:
    """Canaries with items of their own behind the crowd; where users are replaced, tails are
    users without ratings.
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
    """What the released model says of each canary's items, (canaries, features)."""
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
    """Learn a linear discriminant, and how many guesses to make, from one half; guess on the other.

    Whoever is guessed on has a coin that is independent of the other half's, so both bounds hold.
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

    def worth(share: float) -> float:
        found = play(known, share)
        return bounds.fdp_mu(found.canaries, found.made, found.right, error)

    best = max(GUESSED, key=lambda share: (worth(share), share))
    return play(asked, best)
