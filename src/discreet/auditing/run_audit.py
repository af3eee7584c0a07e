"""`discreet.audit`: resolve the model and the ratings, and run the chosen levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from discreet.auditing.neighboring_runs import N_ITEMS, NeighboringRuns, claim_of
from discreet.auditing.noise_distribution import audit_noise
from discreet.auditing.one_run import audit_one_run
from discreet.auditing.result import Audit, Claim, Level
from discreet.auditing.scores import audit_scores, audit_tuning
from discreet.auditing.transcript import audit_transcript
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, PrivacyError
from discreet.kernels import threads
from discreet.models import MODELS, model_class
from discreet.models.private import PrivateRecommender
from discreet.privacy.release.budget_store import Account
from discreet.progress import ShowProgress, progress_bar

LEVELS = ("transcript", "noise", "one run", "scores", "tuning")
#: Levels that read exact sums, and so run on generated users only.
EXACT = {"transcript", "noise", "scores", "tuning"}


def audit(
    model: Any,
    ratings: Ratings | None = None,
    *,
    levels: Sequence[str] = LEVELS,
    spend: bool = False,
    search: int = 60,
    fits: int = 200,
    canaries: int = 2000,
    n_items: int = N_ITEMS,
    seed: int | None = None,
    account: Account | None = None,
    progress: ShowProgress = None,
    **parameters: Any,
) -> Audit:
    """Try to refute what a private model claims, without trusting its proofs.

    There are five levels. *Transcript* compares two trainings that differ in one user and share the
    same releases. *Noise* compares the noise of hundreds of trainings with the noise that was
    charged. *One run* hides thousands of canaries in one training and guesses from the finished
    model which took part. *Scores* and *tuning* compare private scores, and the runs of private
    tuning, as the transcript does. An audit is no proof: each level reports what it cannot detect.

    Parameters
    ----------
    model : PrivateRecommender, a class of it, or its name
        Of a fitted model only the parameters are used; the model is not changed.
    ratings : Ratings, optional
        Users among whom the canaries of level "one run" are hidden. Default: generated users.
    levels : names of levels
        Default: all of them, without "tuning" for models that private tuning does not support.
    spend : bool
        Required with `ratings`: the training is a release of their users' data. It is charged like
        any other; its ledger is in the result and in ``model.earlier_ledgers_``.
    search : int
        Transcript: number of canaries to search for, in addition to the known worst cases.
    fits : int
        Noise: number of trainings.
    canaries : int
        One run: number of canaries; the attack learns from half and guesses the other half.
    n_items : int
        Number of items in the generated catalog.
    seed : int, optional
        Seed of the search and of the random choice of canaries. Noise is never seeded.
    account : Account, optional
        Account of the users in `ratings` (`discreet.BudgetStore`); the training is charged to it.
    progress : function, bool or None
        As for `fit`.
    **parameters
        Parameters of the model, if a class is given: ``discreet.audit(discreet.DPMF, epsilon=1)``.

    Returns
    -------
    Audit
        `refuted` is True if the claim cannot hold.

    Privacy: nothing on generated users. With `ratings`, exactly one training at the model's ε: the
    levels that read exact sums run on generated users only.
    """
    made = _model(model, parameters)
    wanted = _levels(levels)
    if ratings is not None:
        _may_spend(ratings, wanted, spend, made)
    elif account is not None:
        raise ConfigError(
            "account is given without ratings. Leave it out: generated users cost no budget."
        )
    found: list[Level] = []
    claim: Claim | None = None
    spent: dict[str, Any] | None = None
    with progress_bar(progress, "Auditing") as report:
        if EXACT & set(wanted):
            with _one_thread():
                worlds = NeighboringRuns(made, n_items)
                claim = worlds.claim
                if "transcript" in wanted:
                    found.append(
                        audit_transcript(worlds, search=search, seed=seed or 0, progress=report)
                    )
                if "noise" in wanted:
                    found.append(audit_noise(worlds, fits=fits, progress=report))
                found += _evaluation_levels(worlds, wanted, every_level=set(wanted) == set(LEVELS))
        if "one run" in wanted:
            level, fitted = audit_one_run(
                made,
                ratings=ratings,
                canaries=canaries,
                seed=seed,
                account=account,
                progress=report,
            )
            found.append(level)
            claim = claim or claim_of(fitted)
            if ratings is not None:
                stated = fitted.privacy_
                spent = {
                    "epsilon": stated.epsilon,
                    "delta": stated.delta,
                    "text": str(stated),
                    "ledger": stated.ledger.to_dict(),
                }
    assert claim is not None
    found.sort(key=lambda level: LEVELS.index(level.name))
    on = (
        "generated users"
        if ratings is None
        else "generated users and, for one run, on the given ratings"
    )
    return Audit(repr(made), claim, tuple(found), on, spent)


def _evaluation_levels(
    worlds: NeighboringRuns, wanted: list[str], *, every_level: bool
) -> list[Level]:
    """Audit scores and tuning; with `every_level`, skip tuning if the model does not support it."""
    found = []
    if "scores" in wanted:
        found.append(audit_scores(worlds))
    if "tuning" in wanted:
        try:
            found.append(audit_tuning(worlds))
        except ConfigError:
            if not every_level:
                raise
    return found


def _model(model: Any, parameters: dict[str, Any]) -> PrivateRecommender:
    if isinstance(model, str):
        known = {name.lower(): name for name in MODELS}
        if model.lower() not in known:
            raise ConfigError(f"Unknown model {model!r}. Choose one of {', '.join(MODELS)}.")
        model = model_class(known[model.lower()])
    if isinstance(model, type):
        if not issubclass(model, PrivateRecommender):
            raise ConfigError(f"{model.__name__} is not private: there is no claim to audit.")
        if "epsilon" not in parameters:
            raise ConfigError(f"epsilon is missing: pass the claim of {model.__name__} to audit.")
        model = model.configure(**parameters)
    elif parameters:
        name = next(iter(parameters))
        raise ConfigError(
            f"{name} is given with a model object. Pass the class, or set it in the model."
        )
    if not isinstance(model, PrivateRecommender):
        raise ConfigError(f"{type(model).__name__} is not private: there is no claim to audit.")
    if model.noise == "seeded":
        raise ConfigError(
            "noise='seeded' can be subtracted with the seed: there is no claim to audit. Use"
            " noise='secure'."
        )
    model.check()
    return model


def _levels(levels: Sequence[str]) -> list[str]:
    given = [levels] if isinstance(levels, str) else list(levels)
    wanted = [name.replace("-", " ") for name in given]
    for name in wanted:
        if name not in LEVELS:
            raise ConfigError(
                f"Unknown level {name!r}. Choose from {', '.join(map(repr, LEVELS))}."
            )
    if not wanted:
        raise ConfigError(f"levels is empty. Name at least one of {', '.join(map(repr, LEVELS))}.")
    return wanted


def _may_spend(ratings: Any, wanted: list[str], spend: bool, model: PrivateRecommender) -> None:
    if not isinstance(ratings, Ratings):
        raise ConfigError(f"ratings is a {type(ratings).__name__}: an audit takes Ratings.")
    if "one run" not in wanted:
        raise ConfigError(
            "All levels except 'one run' read exact sums, so they run on generated users only."
            " Leave ratings out, or add the level 'one run'."
        )
    if not spend:
        raise PrivacyError(
            "An audit on given ratings is a release: it trains on them once more, at ε ="
            f" {model.epsilon:g}. Leave ratings out to use generated users, or accept the cost with"
            " spend=True (--spend)."
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: a training on a few dozen users ends before a second thread starts."""
    before = threads.thread_count()
    threads.set_threads(1)
    try:
        yield
    finally:
        threads.set_threads(before)
