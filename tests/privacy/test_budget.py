import numpy as np
import pytest

from discreet.errors import ConfigError
from discreet.privacy.budget import Budget


def test_fields_become_floats_and_stay_fixed():
    budget = Budget(1, np.float32(0.0), "replace-one")
    assert budget.to_dict() == {"epsilon": 1.0, "delta": 0.0, "neighbouring": "replace-one"}
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
