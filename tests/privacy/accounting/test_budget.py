import numpy as np
import pytest

from discreet.errors import ConfigError
from discreet.privacy.accounting.budget import Budget


def test_fields_become_floats_and_stay_fixed():
    budget = Budget(1, np.float32(0.0), "replace-one")
    assert budget.to_dict() == {"epsilon": 1.0, "delta": 0.0, "neighboring": "replace-one"}
    assert isinstance(budget.delta, float)
    with pytest.raises(AttributeError):
        budget.epsilon = 2.0


@pytest.mark.parametrize("epsilon", [0, -1, float("inf"), float("nan"), "1", None, True, [1.0]])
def test_epsilon_is_validated(epsilon):
    with pytest.raises(ConfigError, match="epsilon"):
        Budget(epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1, 2.0, float("nan"), "small"])
def test_delta_is_validated(delta):
    with pytest.raises(ConfigError, match="delta"):
        Budget(1.0, delta)


def test_relation_is_validated():
    with pytest.raises(ConfigError, match=r"bounded.*add-remove.*replace-one"):
        Budget(1.0, 1e-6, "bounded")


@pytest.mark.parametrize("delta", [0.0011, 0.01, 0.5, 0.999])
def test_a_large_delta_is_refused_unless_it_is_allowed_in_words(delta):
    with pytest.raises(ConfigError, match=r"or pass allow_large_delta=True\.$"):
        Budget(1.0, delta)
    with pytest.raises(ConfigError, match="allow_large_delta='yes'"):
        Budget(1.0, delta, allow_large_delta="yes")
    allowed = Budget(1.0, delta, allow_large_delta=True)
    assert allowed.to_dict()["allow_large_delta"] is True
    assert Budget(**allowed.to_dict()) == allowed


def test_what_was_allowed_in_vain_is_not_recorded():
    assert Budget(1.0, 1e-3, allow_large_delta=True) == Budget(1.0, 1e-3)
    assert "allow_large_delta" not in Budget(1.0, 1e-3, allow_large_delta=True).to_dict()


@pytest.mark.parametrize("delta", [1e-300, 5e-324, 9e-16])
def test_a_delta_below_all_precision_is_refused(delta):
    with pytest.raises(ConfigError, match="below 1e-15"):
        Budget(1.0, delta)
    Budget(1.0, 1e-15)
