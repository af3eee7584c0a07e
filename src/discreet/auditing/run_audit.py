"""`discreet.audit`: which model, on whom, and which levels."""

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
#: Levels that look at exact sums, and so run on generated people only.
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

    Five levels: the *transcript* compares two trainings, one user apart, that have seen the same
    releases; *noise* compares what hundreds of trainings drew with what was priced; *one run* hides
    thousands of canaries in one training and guesses from the finished model who took part;
    *scores* and *tuning* compare priced scores of the model, and trainings that are tried for the
    best of them, as the transcript does. An audit is no proof: each level says what it cannot see.

    Parameters
    ----------
    model : PrivateRecommender, a class of it, or its name
        A fitted model is audited by its parameters, and not changed.
    ratings : Ratings, optional
        People among whom the canaries of level "one run" are hidden. Default: generated people.
    levels : names of levels
        Default: all of them. A model that tuning refuses has no level "tuning".
    spend : bool
        Needed with `ratings`: the training is a release of theirs. It is charged as any other, and
        its ledger is in the result and in ``model.earlier_ledgers_``.
    search : int
        Transcript: canaries that are tried beyond those that are guessed.
    fits : int
        Noise: how many trainings.
    canaries : int
        One run: how many, half of which are guessed on.
    n_items : int
        Transcript and noise: items of the generated catalog.
    seed : int, optional
        Of the search and of the canaries' coins; noise is never seeded.
    account : Account, optional
        Of the people in `ratings` (`discreet.BudgetStore`): the training is charged to it as well.
    progress : function, bool or None
        As for `fit` of a model.
    **parameters
        Of the model, where a class is given: ``discreet.audit(discreet.DPMF, epsilon=1)``.

    Returns
    -------
    Audit
        `refuted` says whether a claim cannot be true.

    Privacy: on generated people, nothing. With `ratings`, one training on them at the model's ε,
    and nothing else: the levels that look at exact sums are run on generated people alone.
    """
    made = _model(model, parameters)
    wanted = _levels(levels)
    if ratings is not None:
        _may_spend(ratings, wanted, spend, made)
    elif account is not None:
        raise ConfigError(
            "account is that of the people in ratings, and there are none: generated people"
            " are free"
        )
    found: list[Level] = []
    claim: Claim | None = None
    spent: dict[str, Any] | None = None
    with progress_bar(progress, "Auditing") as told:
        if EXACT & set(wanted):
            with _one_thread():
                worlds = NeighboringRuns(made, n_items)
                claim = worlds.claim
                if "transcript" in wanted:
                    found.append(
                        audit_transcript(worlds, search=search, seed=seed or 0, progress=told)
                    )
                if "noise" in wanted:
                    found.append(audit_noise(worlds, fits=fits, progress=told))
                found += _evaluation_levels(worlds, wanted, every_level=set(wanted) == set(LEVELS))
        if "one run" in wanted:
            level, fitted = audit_one_run(
                made, ratings=ratings, canaries=canaries, seed=seed, account=account, progress=told
            )
            found.append(level)
            claim = claim or claim_of(fitted)
            if ratings is not None:
                said = fitted.privacy_
                spent = {
                    "epsilon": said.epsilon,
                    "delta": said.delta,
                    "text": str(said),
                    "ledger": said.ledger.to_dict(),
                }
    assert claim is not None
    found.sort(key=lambda level: LEVELS.index(level.name))
    on = (
        "generated people"
        if ratings is None
        else "generated people and, for one run, on people's own ratings"
    )
    return Audit(repr(made), claim, tuple(found), on, spent)


def _evaluation_levels(
    worlds: NeighboringRuns, wanted: list[str], *, every_level: bool
) -> list[Level]:
    """Audit scores and tuning; where all levels are asked for, a model that tuning refuses is
    audited without it.
    """
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
            raise ConfigError(f"there is no model {model!r}: there are {', '.join(MODELS)}")
        model = model_class(known[model.lower()])
    if isinstance(model, type):
        if not issubclass(model, PrivateRecommender):
            raise ConfigError(f"{model.__name__} is not private, so there is no claim to audit")
        if "epsilon" not in parameters:
            raise ConfigError(f"say which claim of {model.__name__} to audit: give epsilon")
        model = model.configure(**parameters)
    elif parameters:
        name = next(iter(parameters))
        raise ConfigError(
            f"{name} is given beside a model, which has its own: give the class instead"
        )
    if not isinstance(model, PrivateRecommender):
        raise ConfigError(f"{type(model).__name__} is not private, so there is no claim to audit")
    if model.noise == "seeded":
        raise ConfigError(
            "the noise is seeded: whoever knows the seed can subtract it, so there is no claim to"
            " audit"
        )
    model.check()
    return model


def _levels(levels: Sequence[str]) -> list[str]:
    given = [levels] if isinstance(levels, str) else list(levels)
    wanted = [name.replace("-", " ") for name in given]
    for name in wanted:
        if name not in LEVELS:
            raise ConfigError(
                f"there is no level {name!r}: there are {', '.join(map(repr, LEVELS))}"
            )
    if not wanted:
        raise ConfigError(f"levels is empty: name at least one of {', '.join(map(repr, LEVELS))}")
    return wanted


def _may_spend(ratings: Any, wanted: list[str], spend: bool, model: PrivateRecommender) -> None:
    if not isinstance(ratings, Ratings):
        raise ConfigError(f"ratings is a {type(ratings).__name__}, but an audit takes Ratings")
    if "one run" not in wanted:
        raise ConfigError(
            "all levels but 'one run' look at exact sums, so they run on generated people only:"
            " leave the ratings out, or add the level 'one run'"
        )
    if not spend:
        raise PrivacyError(
            "an audit on people's own ratings is a release: it trains on them once more, at ε ="
            f" {model.epsilon:g}. Leave them out and generated people are used, or say so with"
            " spend=True (--spend), which charges it"
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Trainings of a few dozen people are done before a second thread has started."""
    before = threads.thread_count()
    threads.set_threads(1)
    try:
        yield
    finally:
        threads.set_threads(before)
