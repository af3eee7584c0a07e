"""The public item catalogue: which items exist, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from discreet.data.encode import as_ids, first_repeated, object_array
from discreet.errors import DataError


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Item ids in the order given and, where known, their titles."""

    ids: NDArray[Any]
    titles: NDArray[Any] | None = None

    @classmethod
    def of(cls, items: Any) -> Catalogue:
        """Catalogue from a catalogue, a mapping ``{id: title}`` or a list of ids."""
        if isinstance(items, Catalogue):
            return items
        if isinstance(items, Mapping):
            titles = object_array((str(title) for title in items.values()), len(items))
            return cls(as_ids(list(items), "item id"), titles)
        ids = as_ids(items, "item id")
        if first_repeated(ids) is not None:
            raise DataError(f"the catalogue lists the item {first_repeated(ids)!r} twice: every item may occur once")
        return cls(ids)
