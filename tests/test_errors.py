"""Messages of errors stay short, however long the values are that they quote."""

import pickle

import pytest

from discreet import errors
from discreet.data.datasets import describe
from discreet.errors import LONGEST_MESSAGE, BudgetExceeded, ConfigError, DataError, shorten


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
