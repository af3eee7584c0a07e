"""Where an experiment gets its ratings from: official data where they are at hand, else what stands
for them.

At hand is what was given (``--data NAME=PATH``), what lies in the folder ``DISCREET_DATA``, and
what is in the cache of `discreet.load_dataset`. Nothing is downloaded. Ratings and splits are kept
for the next cell of the same process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from discreet.data import datasets, splits
from discreet.data.ratings import Ratings
from discreet.data.splits import Split
from discreet.errors import ConfigError, DataError

KEPT = 2  # data sets, and splits, that are held at a time


class Sources:
    """Ratings by the name of their data set.

    Parameters
    ----------
    paths : mapping, optional
        Official data sets and where they lie.
    """

    def __init__(self, paths: Mapping[str, str] | None = None) -> None:
        self.paths = dict(paths or {})
        for name, path in self.paths.items():
            datasets.describe(name)
            if not Path(path).exists():
                raise DataError(f"{path} does not exist: give the archive or the folder of {name}")
        self._kept: dict[str, Any] = {}

    @classmethod
    def given(cls, words: Iterable[str]) -> Sources:
        """From ``NAME=PATH``, or a PATH whose last part is the name, as in ``data/ml-10m.zip``."""
        paths = {}
        known = {dataset.name for dataset in datasets.datasets() if dataset.kind == "published"}
        for word in words:
            name, _, path = word.rpartition("=")
            name = name or Path(path).name.lower().removesuffix(".zip").replace("10m100k", "10m")
            if name not in known:
                raise ConfigError(
                    f"{word} names no data set: write NAME=PATH, with one of"
                    f" {', '.join(sorted(known))}"
                )
            paths[name] = path
        return cls(paths)

    def at_hand(self, name: str, instead: str | None) -> str:
        """The name itself if its ratings are here, else what stands for it."""
        if instead is None or name in self.paths or self._in_folder(name) is not None:
            return name
        return name if datasets.describe(name).present else instead

    def check(self, names: Iterable[str]) -> None:
        """Refuse data sets that are not here, before time is spent on others."""
        for name in dict.fromkeys(names):
            if name not in {dataset.name for dataset in datasets.datasets()} or name in self.paths:
                continue  # an entry's own name for what it generates
            if self._in_folder(name) is None and not datasets.describe(name).present:
                raise DataError(
                    f"{name} is not on this machine, and nothing stands for it: give it with "
                    f"--data {name}=PATH (discreet datasets says where it is from)"
                )

    def place(self, name: str) -> Path | None:
        """Where an official data set lies, a folder or an archive; None if it is not at hand."""
        found = self.paths.get(name) or self._in_folder(name) or datasets.describe(name).place
        return Path(found) if found is not None and Path(found).exists() else None

    def ratings(self, name: str, **options: Any) -> Ratings:
        """The ratings; `options` are those of generated data sets, such as ``scale``, and
        passed over by the others.
        """
        if datasets.describe(name).kind == "published":
            options = {"path": self.paths.get(name) or self._in_folder(name)}
        made = lambda: datasets.load_dataset(name, download=False, **options)  # noqa: E731
        return self._keep(f"ratings {name} {options}", made)  # type: ignore[no-any-return]

    def random(
        self,
        name: str,
        fractions: Iterable[float],
        seed: int = 0,
        top: int | None = None,
        replica: int = 0,
        **options: Any,
    ) -> Split:
        """Ratings held out at random, of the `top` most rated items only if that is given;
        `replica` is of a twin.
        """
        if replica:
            options |= {"seed": replica}

        def make() -> Split:
            ratings = self.ratings(name, **options)
            if top is not None:
                counts = np.bincount(ratings.indices, minlength=ratings.n_items)
                chosen = np.sort(np.argsort(-counts, kind="stable")[:top])
                ratings = ratings.filter(items=ratings.item_ids[chosen], min_user_ratings=1)
            return splits.random_ratings(ratings, tuple(fractions), seed=seed)

        return self._keep(f"split {name} {fractions} {seed} {top} {options}", make)  # type: ignore[no-any-return]

    def strong(self, name: str, held: float = 10_000, seed: int = 0, **options: Any) -> Split:
        """Whole users held out, `held` (or that part of all) for validation and as many for the
        test.
        """

        def make() -> Split:
            ratings = self.ratings(name, **options)
            # as in the literature: 4 stars and more, users with 5 of them
            if not name.startswith("twin"):
                ratings = ratings.binarize(4.0).filter(min_user_ratings=5, min_item_ratings=1)
            count = int(held if held >= 1 else held * ratings.n_users)
            return splits.strong_generalization(ratings, count, count, seed=seed)

        return self._keep(f"split {name} {held} {seed} {options}", make)  # type: ignore[no-any-return]

    def _in_folder(self, name: str) -> str | None:
        folder = os.environ.get("DISCREET_DATA")
        path = Path(folder) / name if folder else None
        return str(path) if path is not None and path.is_dir() else None

    def _keep(self, what: str, make: Any) -> Any:
        kind = what.split()[0]
        if what not in self._kept:
            others = [old for old in self._kept if old.split()[0] == kind]
            for old in others[: max(0, len(others) + 1 - KEPT)]:
                del self._kept[old]
            self._kept[what] = make()
        return self._kept[what]
