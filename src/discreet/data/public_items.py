"""All that is public about items, as one value: features, texts and similarities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.features import item_features
from discreet.data.similarities import similarity_features
from discreet.data.text_features import Embedding, text_features
from discreet.errors import ConfigError, type_name


@dataclass(frozen=True, eq=False, repr=False)
class PublicItems:
    """Public features, texts and similarities of items, for `item_features` of `DPMF`.

    Parameters
    ----------
    features : file, frame, mapping or array, optional
        Columns such as genres or years.
    text : list of str, or mapping, optional
        Columns of `features` that are text, such as titles or descriptions: hashed words, reduced
        to 16 numbers, are part of the prior. A mapping gives a function for each column, from a
        list of texts to an array, such as a language model's, or the array itself, with one row per
        row of `features`.
    similarities : file, frame, matrix, array or mapping, optional
        Similarities of items as a prior for their factors: rows of (item, item, weight), a square
        matrix, or embeddings with one row per item, in the order of the catalog (``items``) or,
        without one, of the sorted ids; or a mapping from item ids to embeddings. They must not come
        from users.
    """

    features: Any = None
    text: Sequence[str] | Mapping[str, Embedding] = ()
    similarities: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.text, str):
            raise ConfigError(f"text must be a list of columns. Pass text=[{self.text!r}].")
        if not isinstance(self.text, (list, tuple, Mapping)) and self.text is not None:
            raise ConfigError(
                f"text is {type_name(self.text)}, but must be a list of names of columns, or a"
                " mapping. Pass for example text=['title']."
            )
        if self.features is None and not self.text and self.similarities is None:
            raise ConfigError("PublicItems is empty. Pass features or similarities.")
        if self.text and self.features is None:
            raise ConfigError("text names columns of features, which is not given. Pass both.")
        if self.text and isinstance(self.features, (np.ndarray, Mapping)):
            raise ConfigError(
                f"text names columns of features, and {type_name(self.features)} has no names of"
                " columns. Pass a file or a frame."
            )
        if isinstance(self.text, Mapping) and not all(map(_is_embedding, self.text.values())):
            raise ConfigError(
                "text must have a function from texts to an array for each column, or an array with"
                " one row per row of features."
            )

    @classmethod
    def from_any(cls, given: Any) -> PublicItems:
        """Return `given`, or public items with `given` as their features."""
        return given if isinstance(given, cls) else cls(given)

    def numbers(self, item_ids: NDArray[Any], optional: bool) -> NDArray[np.float64] | None:
        """Return features (n_items, k) of all kinds; with `optional`, None where there are none."""
        found = []
        if self.text:
            found.append(text_features(self.features, item_ids, self.text))
        if self.similarities is not None:
            found.append(similarity_features(self.similarities, item_ids))
        if self.features is not None:
            X = item_features(self.features, item_ids, optional or bool(found))
            found = found if X is None else [X, *found]
        return np.hstack(found) if found else None

    def describe_sources(self) -> str:
        """Return a clause that names text and similarities, if they are given."""
        extra = [name for name in ("text", "similarities") if self._has(name)]
        if not extra:
            return ""
        return f" ({'with' if self._has('features') else 'from'} {' and '.join(extra)})"

    def __repr__(self) -> str:
        """Name the kinds instead of all their numbers."""
        given = [name for name in ("features", "text", "similarities") if self._has(name)]
        return f"<PublicItems: {', '.join(given)}>"

    def _has(self, name: str) -> bool:
        value = getattr(self, name)
        return value is not None and not (name == "text" and not value)


def _is_embedding(given: Any) -> bool:
    return callable(given) or isinstance(given, np.ndarray)
