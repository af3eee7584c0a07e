"""Public similarities of items as features: a kernel prior on item vectors.

Similarities come from public sources: the same series, a shared author, a catalog's "related
titles", embeddings of texts or images. They must not come from users. In any form they become a
kernel K, and its leading eigenvectors become features,

    F = Q √Λ,   D^−½ K D^−½ ≈ Q Λ Qᵀ,   D = diag(row sums of K),                                 (1)

so that the prior v_j ~ N(Wᵀ f_j, T) with W_f ~ N(0, T/strength) has the covariance F Fᵀ ≈ K between
items. The strength is estimated with the rest: similarities without signal are drawn to nothing.
Nothing private is used, so this costs no privacy.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.features import _from_file, _ids, _number
from discreet.data.ids import IdIndex
from discreet.data.text_features import reduce_columns
from discreet.errors import DataError, EmptyFile, type_name

if TYPE_CHECKING:
    from scipy import sparse

logger = logging.getLogger("discreet")

COMPONENTS = 32  # half of the columns that a prior has at most


def similarity_features(given: Any, item_ids: NDArray[Any]) -> NDArray[np.float64]:
    """Return features (n_items, k ≤ `COMPONENTS`) by (1); NaN for items without similarities.

    Parameters
    ----------
    given : file or frame of (item, item, weight), square array, sparse matrix, or embeddings
        Arrays have one row per item of the ratings, in their order; a square one holds
        similarities, any other one embeddings. A mapping from item ids to vectors holds embeddings
        in any order, of some items. Weights are not negative.
    item_ids : (n_items,)
    """
    if isinstance(given, Mapping):
        return _embeddings_by_id(given, item_ids)
    if is_embedding(given, len(item_ids)):
        return _reduce(np.asarray(given, np.float64))
    return _eigenvectors(read_similarities(given, item_ids))


def is_embedding(given: Any, n: int) -> bool:
    """Tell whether this is an array of embeddings; raise a `DataError` for one that cannot be."""
    if not isinstance(given, np.ndarray) or given.shape == (n, n):
        return False
    numbers = np.issubdtype(given.dtype, np.number)
    if given.ndim != 2 or len(given) != n or not numbers or not np.isfinite(given).all():
        raise DataError(
            f"similarities has shape {given.shape}, but must have one row of finite"
            f" numbers for each of the {n:,} items."
        )
    return True


def _embeddings_by_id(given: Mapping[Any, Any], item_ids: NDArray[Any]) -> NDArray[np.float64]:
    """Return features (n_items, k) from vectors by item id; NaN for items without one."""
    place = IdIndex(item_ids).positions(_ids(list(given)), "item id")
    if not (place >= 0).any():
        raise DataError("similarities has none of the items of the ratings. Use the same ids.")
    try:
        vectors = np.array([np.asarray(one, np.float64) for one in given.values()])
    except (TypeError, ValueError):
        vectors = np.zeros(0)
    if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():
        raise DataError(
            "similarities is a mapping, but not from item ids to vectors of finite numbers,"
            " all of the same length."
        )
    known = place >= 0
    _report_unknown(len(known) - int(known.sum()), len(known), "vectors")
    # sorted, so that the order of the mapping does not matter
    order = np.flatnonzero(known)[np.argsort(place[known], kind="stable")]
    reduced = _reduce(vectors[order])
    found = np.full((len(item_ids), reduced.shape[1]), np.nan)
    found[place[order]] = reduced
    return found


def _reduce(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the principal components of embeddings; refuse those that tell no items apart."""
    reduced = reduce_columns(vectors, COMPONENTS)
    if not reduced.shape[1]:
        raise DataError(
            "similarities has vectors that tell no items apart. Pass vectors of two numbers or more"
            " that differ."
        )
    return reduced


def _report_unknown(strange: int, many: int, what: str) -> None:
    """Log how many rows of public data are left out."""
    if strange:
        logger.warning(
            "similarities: %s of %s %s are of items that are not among those of the ratings, and"
            " are left out.",
            f"{strange:,}",
            f"{many:,}",
            what,
        )


def read_similarities(given: Any, item_ids: NDArray[Any]) -> sparse.csr_array:
    """Return the symmetric matrix of similarities, by the larger of both weights of a pair."""
    from scipy import sparse  # takes a moment to import

    n = len(item_ids)
    if isinstance(given, np.ndarray) or sparse.issparse(given):
        K = sparse.csr_array(given, dtype=np.float64)
        if K.shape != (n, n):
            raise DataError(
                f"similarities has shape {K.shape}, but must be ({n:,}, {n:,}) or embeddings."
            )
    else:
        K = _from_rows(given, item_ids)
    if not np.isfinite(K.data).all() or (K.data < 0).any():
        raise DataError("similarities has weights that are negative or not finite.")
    K = sparse.csr_array(K.maximum(K.T))
    if not (K.sum() > K.diagonal().sum()):
        raise DataError(
            "similarities has no two different items with a weight above 0. Correct it, or leave it"
            " out."
        )
    return K


def _from_rows(given: Any, item_ids: NDArray[Any]) -> sparse.csr_array:
    """Return the matrix of a frame or file with two columns of items and one of weights."""
    from scipy import sparse  # takes a moment to import

    if isinstance(given, str | os.PathLike):
        file = os.fspath(given)
        if file.endswith((".npy", ".npz")):
            raise DataError(
                f"similarities is {file}, an array without item ids, but must be a file of (item,"
                " item, weight). Load the array in Python, and pass a mapping from item ids to its"
                " rows."
            )
        index = IdIndex(item_ids)

        def is_header(first: Sequence[str]) -> bool:
            named = len(first) == 3 and _number(first[2]) is None
            return named and bool((index.positions(_ids(first[:2]), "item id") < 0).all())

        try:
            _, columns = _from_file(given, is_header)
        except EmptyFile:
            raise DataError(
                f"similarities is {file}, which is empty, but must have a line of (item, item,"
                " weight) for each pair."
            ) from None
    elif hasattr(type(given), "columns") or hasattr(given, "column_names"):
        import narwhals.stable.v1 as nw

        frame: Any = nw.from_native(given, eager_only=True)
        columns = [column.to_list() for column in frame.iter_columns()]
    else:
        raise DataError(
            "similarities must be a file or frame of (item, item, weight), a matrix or"
            f" embeddings, not {type_name(given)}."
        )
    if len(columns) != 3:
        raise DataError(
            f"similarities has {len(columns)} columns, but must have item, item and weight."
            " Pass matrices and embeddings as arrays."
        )
    index = IdIndex(item_ids)
    if not len(columns[0]):
        raise DataError("similarities has no rows. Pass a row of (item, item, weight) per pair.")
    rows, others = (index.positions(_ids(column), "item id") for column in columns[:2])
    try:
        weight = np.asarray(columns[2], np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "similarities has weights that are no numbers. The columns are item, item, weight."
        ) from None
    known = (rows >= 0) & (others >= 0)
    if not known.any():
        raise DataError("similarities has no pair of items of the ratings. Use the same ids.")
    _report_unknown(len(known) - int(known.sum()), len(known), "rows")
    shape = (len(item_ids), len(item_ids))
    return sparse.csr_array((weight[known], (rows[known], others[known])), shape=shape)


def _eigenvectors(K: sparse.csr_array) -> NDArray[np.float64]:
    from scipy import sparse  # takes a moment to import

    total = np.asarray(K.sum(axis=1)).reshape(-1)
    known = np.flatnonzero(total > 0)
    found = np.full((K.shape[0], 0), np.nan)
    width = min(COMPONENTS, len(known) - 1)
    if width < 1:
        return found
    scale = sparse.diags_array(total[known] ** -0.5)
    A = scale @ K[known][:, known] @ scale + sparse.eye_array(len(known))  # eigenvalues from 0 to 2
    Q = np.random.default_rng(0).standard_normal((len(known), min(width + 8, len(known))))
    for _ in range(20):  # subspace iteration
        Q = np.linalg.qr(A @ Q)[0]
    values, turn = np.linalg.eigh(Q.T @ (A @ Q))
    values, turn = values[::-1][:width] - 1, turn[:, ::-1][:, :width]
    F = (Q @ turn)[:, values > 0] * np.sqrt(values[values > 0])
    found = np.full((K.shape[0], F.shape[1]), np.nan)
    found[known] = F
    return found
