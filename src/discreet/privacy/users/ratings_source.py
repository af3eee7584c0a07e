"""What `fit` of a private model asks of an engine."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.sealed_users import Users


@runtime_checkable
class RatingsSource(Protocol):
    """People with their ratings, wherever they are; `discreet.Ratings` is one form.

    Everything here is public but what `seal` puts behind glass, and `rating_range`, which is asked
    for only where the caller gave none; the statement then says that it was read from the data. An
    engine may also have ``engine``, words for the ledger on where people are and in how many
    blocks; ``public_range``, a range of ratings that is public; ``exact_only``, true where it adds
    up whole numbers alone; ``replays``, true where users take their steps again for every sum;
    ``ready()``, which is called before anything is charged; and ``user_problem`` with ``rated``,
    what speaks against the user column (`discreet.data.user_column`).
    """

    @property
    def n_items(self) -> int: ...

    @property
    def item_ids(self) -> NDArray[Any]: ...

    @property
    def titles(self) -> NDArray[Any] | None: ...

    @property
    def catalog(self) -> bool:
        """Whether the items are a public catalog, and were not found in the ratings."""

    @property
    def filtered(self) -> str:
        """How ratings were left out by looking at them, in words; empty where they were not."""

    def rating_range(self) -> tuple[float, float] | None:
        """The lowest and the highest rating there is; None where there is none."""

    def seal(self, bounds: Bounds, *, seed: int = 0) -> Users:
        """Users with their ratings behind glass; `seed` is of their random choices among their
        items.
        """
