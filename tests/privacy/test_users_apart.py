"""What a user adds to a sum depends on that user and on public numbers, and not on how many
others there are.
"""

import pytest

import discreet
from discreet.testing import ConformanceError, check_private_model

MODELS = {
    "DPALS": discreet.DPALS(3, epsilon=4.0, rating_range=(1.0, 5.0), max_items=6),
    "DPMF, ranking": discreet.DPMF(epsilon=8.0, rating_range=(1.0, 5.0)),
    "DPMF, rating": discreet.DPMF(epsilon=8.0, rating_range=(1.0, 5.0), goal="rating"),
}


def find_broken(model):
    """Check the rule, and give what is broken in words."""
    try:
        check_private_model(model, people=1, draws=0, rules=["apart"])
    except ConformanceError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", MODELS)
def test_what_users_add_does_not_depend_on_who_shares_their_block(name):
    assert find_broken(MODELS[name]) == ""
