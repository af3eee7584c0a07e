"""What the tests of ratings share."""

import numpy as np
from hypothesis import strategies as st

from discreet import Ratings

ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 9), st.integers(0, 5)),
    min_size=1,
    max_size=40,
)
"""Rows (user, item, value, time) with repetitions."""


def small() -> Ratings:
    """Three users, four items, timestamps equal to 10 · user + item."""
    users, items = [1, 1, 2, 3, 3, 3], ["a", "c", "b", "a", "b", "d"]
    return Ratings.from_arrays(users, items, [1, 2, 3, 4, 5, 0], [10, 12, 21, 30, 31, 33])


def triples(ratings: Ratings) -> list[tuple[object, ...]]:
    rows = np.repeat(ratings.user_ids, np.diff(ratings.indptr)).tolist()
    times = (
        [None] * ratings.n_ratings if ratings.timestamps is None else ratings.timestamps.tolist()
    )
    return list(
        zip(
            rows,
            ratings.item_ids[ratings.indices].tolist(),
            ratings.values.tolist(),
            times,
            strict=True,
        )
    )


def assert_inner_form(ratings: Ratings) -> None:
    assert ratings.indptr.dtype == np.int64
    assert ratings.indices.dtype == np.int32
    assert ratings.values.dtype == np.float32
    assert ratings.indptr[0] == 0
    assert (np.diff(ratings.indptr) >= 0).all()
    for start, end in zip(ratings.indptr, ratings.indptr[1:], strict=False):
        assert (np.diff(ratings.indices[start:end]) > 0).all()
