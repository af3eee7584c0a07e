"""Options of ``discreet evaluate`` that choose the held-out ratings, and their splits."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.errors import ConfigError

if TYPE_CHECKING:
    from discreet.data.ratings import Ratings
    from discreet.data.splits import Split

_PANEL = "Split"
_KINDS = ("by-person", "users", "leave-one-out", "newest", "time")
MOST_TEST_USERS = 10_000  # as many as the DPALS supplement holds out


def _option(help: str, *names: str, **rest: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **rest)


@dataclass
class SplitOptions:
    """Split, number of seeds, and folds."""

    split: Annotated[
        str | None,
        _option(
            "Percentages of the ratings such as 90/10 or 80/10/10 (train/valid/test, the default);"
            " by-person (the same, drawn separately for each user); users (hold out whole users);"
            " leave-one-out; newest (each user's last rating); time (the newest tenth).",
            metavar="HOW",
        ),
    ] = None
    folds: Annotated[
        int | None, _option("Cross-validate with this many folds.", min=2, metavar="K")
    ] = None
    seeds: Annotated[
        int | None,
        _option(
            "Repeat with this many seeds, starting at --random-state. Default: 1.",
            min=1,
            metavar="N",
        ),
    ] = None
    test_users: Annotated[
        int | None,
        _option(
            "With --split users: number of users to hold out for testing, and again for"
            " validation.",
            min=1,
            metavar="N",
        ),
    ] = None
    fold_in: Annotated[
        float | None,
        _option(
            "With --split users: fraction of a test user's ratings that the model gets. Default:"
            " 0.8.",
            metavar="SHARE",
        ),
    ] = None

    @property
    def options_used(self) -> list[str]:
        """Options given."""
        used = {
            "--split": self.split,
            "--folds": self.folds,
            "--seeds": self.seeds,
            "--test-users": self.test_users,
            "--fold-in": self.fold_in,
        }
        return [name for name, value in used.items() if value is not None]

    @property
    def runs(self) -> int:
        return (self.seeds or 1) * (self.folds or 1)

    def check(self) -> None:
        """Refuse invalid splits before any data are read."""
        if self.folds is not None and self.split is not None:
            raise ConfigError(
                "--folds and --split are two ways to hold out ratings: pass one of them"
            )
        for name, value in (("--test-users", self.test_users), ("--fold-in", self.fold_in)):
            if value is not None and self.split != "users":
                raise ConfigError(f"{name} needs --split users")
        if self.fold_in is not None and not 0 < self.fold_in < 1:
            raise ConfigError(f"--fold-in is {self.fold_in:g}, but must lie between 0 and 1")
        if self.split is not None and self.split not in _KINDS:
            fractions(self.split)

    def splits(self, ratings: Ratings, first: int = 0) -> Iterator[Split]:
        """Yield the splits, with seeds from `first` on."""
        from discreet.data.splits import k_fold

        self.check()
        for seed in range(first, first + (self.seeds or 1)):
            if self.folds is not None:
                yield from k_fold(ratings, self.folds, seed)
            else:
                yield self._one(ratings, self.split or "80/10/10", seed)

    def _one(self, ratings: Ratings, how: str, seed: int) -> Split:
        from discreet.data import splits

        if how == "users":
            n = self.test_users or max(1, min(MOST_TEST_USERS, ratings.n_users // 10))
            return splits.strong_generalization(
                ratings, n, n, 0.8 if self.fold_in is None else self.fold_in, seed
            )
        if how == "by-person":
            return splits.by_person(ratings, seed=seed)
        if how == "leave-one-out":
            return splits.leave_one_out(ratings, seed)
        if how == "newest":
            return splits.leave_one_out(ratings, seed, by_time=True)
        if how == "time":
            return splits.by_time(ratings, 0.1, seed=seed)
        return splits.random_ratings(ratings, fractions(how), seed)


def fractions(how: str) -> tuple[float, ...]:
    """Parse ``"80/10/10"`` (or ``"0.8/0.1/0.1"``) as fractions of 1."""
    try:
        parts = [float(part) for part in how.split("/")]
    except ValueError:
        near = difflib.get_close_matches(how.lower(), _KINDS, n=1)
        hint = (
            f"did you mean {near[0]}?"
            if near
            else f"write percentages such as 80/10/10, or {', '.join(_KINDS)}"
        )
        raise ConfigError(f"unknown split {how!r}: {hint}") from None
    total = sum(parts)
    if (
        len(parts) not in (2, 3)
        or min(parts) <= 0
        or not (abs(total - 100) < 1e-6 or abs(total - 1) < 1e-6)
    ):
        raise ConfigError(
            f"the split {how!r} must be train/test or train/valid/test in percent, with sum 100"
        )
    return tuple(part / total for part in parts)
