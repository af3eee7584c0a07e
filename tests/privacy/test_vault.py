import copy
import pickle
import sys

import numpy as np
import pytest

from discreet.errors import PrivacyError
from discreet.privacy.vault import KEY, Box, Key, require


def test_only_the_key_opens():
    box = Box([1, 2, 3], "three numbers")
    assert box.open(KEY) == [1, 2, 3]
    for other in (None, object(), "KEY", 0):
        with pytest.raises(PrivacyError):
            box.open(other)
        with pytest.raises(PrivacyError):
            require(other)


def test_the_key_cannot_be_made_copied_or_stored():
    for attempt in (Key, lambda: copy.copy(KEY), lambda: copy.deepcopy(KEY), lambda: pickle.dumps(KEY)):
        with pytest.raises(PrivacyError):
            attempt()


@pytest.mark.parametrize(
    "attempt",
    [
        np.asarray,
        np.array,
        list,
        tuple,
        len,
        float,
        int,
        complex,
        bool,
        iter,
        sorted,
        sum,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda b: b[0],
        lambda b: 1 in b,
        lambda b: np.add(b, 1),
        lambda b: [*b],
        lambda b: range(b),
    ],
)
def test_a_box_refuses_to_become_anything(attempt):
    with pytest.raises(PrivacyError):
        attempt(Box(np.array([12345.678]), "one number"))


def test_a_box_shows_its_label_only():
    box = Box(np.full(1000, 12345.678), "ratings of 10 items")
    assert repr(box) == str(box) == f"{box}" == "<sealed ratings of 10 items>"
    assert not hasattr(box, "__dict__")
    assert sys.getsizeof(box) == sys.getsizeof(Box(None, ""))
    with pytest.raises(AttributeError):
        box.content  # noqa: B018
