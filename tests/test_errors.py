"""Messages of errors stay short, however long the values are that they quote."""

import errno
import pickle

import numpy as np
import pyarrow as pa
import pytest

from discreet import errors
from discreet.data.datasets import describe
from discreet.errors import (
    LONGEST_MESSAGE,
    BudgetExceeded,
    ConfigError,
    DataError,
    is_out_of_memory,
    shorten,
)


def test_a_long_value_is_cut_in_the_middle_and_the_advice_stays():
    for kind in (DataError, ConfigError, BudgetExceeded):
        message = str(kind(f"the value {'x' * 10_000!r} is not allowed: use 7"))
        assert len(message) == LONGEST_MESSAGE
        assert message.startswith("the value 'xxx")
        assert " … " in message
        assert message.endswith("is not allowed: use 7")


def test_messages_of_ordinary_length_stay_as_they_are():
    text = "x" * LONGEST_MESSAGE
    assert shorten(text) is text
    assert DataError(text).args == (text,)


def test_every_error_of_the_library_is_short_and_survives_a_pickle():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) >= 8
    for kind in kinds:
        copy = pickle.loads(pickle.dumps(kind("a" * 5000)))
        assert type(copy) is kind
        assert len(str(copy)) == LONGEST_MESSAGE


def test_a_real_call_with_a_long_value_answers_in_a_few_lines():
    with pytest.raises(ConfigError) as caught:
        describe("m" * 10_000)
    assert len(str(caught.value)) <= LONGEST_MESSAGE
    assert "known are cinema" in str(caught.value) or "ml-latest-small" in str(caught.value)


def raise_from(error, cause):
    try:
        raise error from cause
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 8589934592 failed"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libarrow.so.2600: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        RuntimeError("std::bad_alloc"),
        raise_from(
            OSError("Could not load 'libllvmlite.so'"), OSError("x.so: failed to map segment")
        ),
    ],
)
def test_too_little_memory_is_known_by_all_its_names(error):
    assert is_out_of_memory(error)


def test_numpy_says_that_there_is_too_little_memory():
    with pytest.raises(MemoryError) as caught:
        np.empty(1 << 60, np.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    "error", [ValueError("out of memory"), OSError(errno.ENOENT, "no such file"), RuntimeError("x")]
)
def test_other_errors_are_not_taken_for_too_little_memory(error):
    assert not is_out_of_memory(error)
