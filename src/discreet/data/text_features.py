"""Text columns of public item features as numbers: hashed word n-grams, reduced by PCA.

Words and pairs of neighboring words of each text are hashed to `BUCKETS` columns by a fixed hash,
so that nothing has to be stored and every run gives the same numbers. A column counts by how rare
it is among the items (tf-idf), each text has norm 1, and the whole is reduced to its first
principal components by a randomized SVD with a fixed seed. Only public texts are used, so this
costs no privacy. Any function from a list of texts to an array, such as a language model's, can
take the place of hashed words.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.features import _ids, _numbers, _read_columns
from discreet.data.ids import IdIndex
from discreet.errors import DataError

if TYPE_CHECKING:
    from scipy import sparse

BUCKETS = 1 << 14  # few words of a catalog share one, and a matrix of them fits into memory
COMPONENTS = 16  # a prior with more than 64 features is reduced again, genres among them
NOT_APART = "has no two columns of numbers that tell items apart"
_WORD = re.compile(r"[^\W_]+")
Embed = Callable[[Sequence[str]], Any]
Embedding = Embed | NDArray[Any]


def text_features(
    source: Any, item_ids: NDArray[Any], text: Sequence[str] | Mapping[str, Embedding]
) -> NDArray[np.float64]:
    """Return numbers (n_items, k) of text columns; NaN for items without text.

    Parameters
    ----------
    source : file or frame, as for `item_features`
    item_ids : (n_items,)
    text : names of columns, or {name: function from a list of texts to an array}
        Or {name: array with one row per row of `source`}.
    """
    ids, columns, where = _read_columns(source)
    at = IdIndex(_ids(ids)).positions(item_ids, "item id")
    found = []
    for name in text:
        if name not in columns:
            raise DataError(
                f"{where} has no column {name!r}. Its columns are"
                f" {', '.join(map(repr, list(columns)[:12]))}."
            )
        given = text[name] if isinstance(text, Mapping) else None
        if isinstance(given, np.ndarray):
            X = _align_embedding(given, name, len(ids), at)
            why = NOT_APART
        else:
            cells = _as_texts(name, columns[name], given is None)
            aligned = [cells[i] if i >= 0 else "" for i in at.tolist()]
            X = embed_texts(aligned, given)
            why = _describe_nothing(aligned, given is None)
        if not X.shape[1]:
            raise DataError(f"The column {name!r} in text {why}. Leave it out of text.")
        found.append(X)
    return np.hstack(found)


def _as_texts(name: str, values: Sequence[Any], hashed: bool) -> list[str]:
    """Return the cells of a column as texts; refuse lists and, where words are hashed, numbers."""
    if any(isinstance(cell, (list, tuple, np.ndarray)) for cell in values):
        raise DataError(
            f"The column {name!r} in text holds lists instead of text. Leave it out of text: lists"
            " of numbers in features are used without it."
        )
    numbers = _numbers(values) if hashed else None
    if numbers is not None and not np.isnan(numbers).all():
        raise DataError(
            f"The column {name!r} in text holds numbers instead of text. Leave it out of text:"
            " numbers in features are used without it."
        )
    return ["" if cell is None or cell != cell else str(cell) for cell in values]


def _describe_nothing(texts: Sequence[str], hashed: bool) -> str:
    """Say why these texts have no numbers."""
    known = sum(bool(_WORD.search(text)) for text in texts)
    if known < 2:
        return f"has words for {known} of the items of the ratings"
    return "has no words that tell items apart" if hashed else NOT_APART


def _align_embedding(
    given: NDArray[Any], name: str, n: int, at: NDArray[Any]
) -> NDArray[np.float64]:
    """Return numbers (n_items, k ≤ `COMPONENTS`) from vectors of n rows; NaN for items in none."""
    numbers = np.issubdtype(given.dtype, np.number)
    if given.ndim != 2 or len(given) != n or not numbers or not np.isfinite(given).all():
        raise DataError(
            f"text has an array of {given.dtype} with shape {given.shape} for {name!r}, but must"
            f" have one row of finite numbers for each of the {n:,} rows of features."
        )
    Z = reduce_columns(np.asarray(given, np.float64)[at[at >= 0]], COMPONENTS)
    found = np.full((len(at), Z.shape[1]), np.nan)
    found[at >= 0] = Z
    return found


def embed_texts(texts: Sequence[str], embed: Embed | None = None) -> NDArray[np.float64]:
    """Return numbers (n, k ≤ `COMPONENTS`) of these texts; NaN for empty ones.

    Parameters
    ----------
    texts : list of str
    embed : function, optional
        From a list of texts to an array (n, d). By default hashed word n-grams.
    """
    known = np.array([bool(_WORD.search(text)) for text in texts])
    found = np.full((len(texts), 0), np.nan)
    if known.sum() < 2:
        return found
    some = [text for text, good in zip(texts, known, strict=True) if good]
    X = hash_words(some) if embed is None else _check_embedding(embed(some), len(some))
    Z = reduce_columns(X, COMPONENTS)
    found = np.full((len(texts), Z.shape[1]), np.nan)
    found[known] = Z
    return found


def hash_words(texts: Sequence[str]) -> sparse.csr_array:
    """Return tf-idf weights (n, `BUCKETS`) of words and of pairs of neighboring words, of norm 1.

    Words that only one text has are left out: no other text shares them.
    """
    from scipy import sparse  # takes a moment to import

    rows: list[int] = []
    columns: list[int] = []
    place: dict[str, int] = {}
    for row, text in enumerate(texts):
        words = _WORD.findall(text.casefold())
        pairs = [f"{a} {b}" for a, b in itertools.pairwise(words)]
        for gram in {*words, *pairs}:
            if gram not in place:
                digest = hashlib.blake2b(gram.encode(), digest_size=8).digest()
                place[gram] = int.from_bytes(digest, "little") % BUCKETS
            rows.append(row)
            columns.append(place[gram])
    X = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(texts), BUCKETS))
    X.data[:] = 1.0
    held = np.bincount(X.indices, minlength=BUCKETS)
    weight = np.where(held > 1, np.log(len(texts) / np.maximum(held, 1)), 0.0)
    X.data *= weight[X.indices]
    norm = np.sqrt(
        np.bincount(
            np.repeat(np.arange(len(texts)), np.diff(X.indptr)), X.data**2, minlength=len(texts)
        )
    )
    X.data /= np.repeat(np.maximum(norm, 1e-12), np.diff(X.indptr))
    return X


def reduce_columns(X: Any, most: int) -> NDArray[np.float64]:
    """Return at most so many principal components of X (dense or sparse), by a seeded SVD."""
    mean = np.asarray(X.mean(axis=0)).reshape(-1)
    width = min(most, min(X.shape) - 1)
    if width < 1:
        return np.zeros((X.shape[0], 0))
    Q = np.random.default_rng(0).standard_normal((X.shape[1], min(width + 8, min(X.shape))))
    for _ in range(6):  # subspace iteration on the centered columns
        Y = np.linalg.qr(X @ Q - mean @ Q)[0]
        Q = np.linalg.qr(X.T @ Y - np.outer(mean, Y.sum(axis=0)))[0]
    U, s, _ = np.linalg.svd(X @ Q - mean @ Q, full_matrices=False)
    kept = s[:width] > 1e-9 * max(float(s[0]), 1e-300)
    return np.asarray((U[:, :width] * s[:width])[:, kept])


def _check_embedding(given: Any, n: int) -> NDArray[np.float64]:
    try:
        X = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise DataError("text must return numbers. Correct the function.") from None
    if X.ndim != 2 or len(X) != n:
        raise DataError(
            f"text must return finite numbers of shape ({n:,}, d), but returned shape {X.shape}."
            " Correct the function."
        )
    if not np.isfinite(X).all():
        row = int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])
        what = "NaN" if np.isnan(X[row]).any() else "an infinite number"
        raise DataError(
            f"text must return finite numbers, but returned {what} in row {row:,} (from 0)."
            " Correct the function."
        )
    return X
