"""scikit-learn's conventions, as far as they fit a recommender; what does not fit is refused
with the reason.
"""

import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import ParameterGrid
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

import discreet
from discreet.errors import ConfigError
from discreet.models import MODELS, model_class


def make(name):
    cls = model_class(name)
    return cls(
        **({"epsilon": 3.0, "random_state": 4} if "epsilon" in cls.parameter_names() else {})
    )


@pytest.mark.parametrize("name", MODELS)
def test_parameters_clones_and_tags(name):
    model = make(name)
    twin = clone(model)
    assert twin is not model
    assert type(twin) is type(model)
    assert twin.get_params() == model.get_params()
    for key, value in model.get_params().items():
        assert twin.set_params(**{key: value}).get_params()[key] is value
    tags = get_tags(model)
    assert tags.requires_fit
    assert tags.input_tags.sparse
    assert not tags.target_tags.required
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    with pytest.raises(ConfigError, match=r"no single score: .* Use discreet\.evaluate"):
        model.score(None)


def test_private_models_are_different_in_every_run():
    assert get_tags(discreet.DPMF(epsilon=1)).non_deterministic
    assert not get_tags(discreet.ALS()).non_deterministic


def test_a_clone_has_learned_nothing_and_a_grid_sets_parameters():
    ratings = discreet.load_dataset("cinema", scale=0.01)
    model = discreet.ALS(2, iterations=1).fit(ratings)
    check_is_fitted(model)
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(model))
    grid = [
        clone(model).set_params(**setting)
        for setting in ParameterGrid({"factors": [2, 3], "regularization": [5]})
    ]
    assert [(m.factors, m.regularization) for m in grid] == [(2, 5), (3, 5)]
    assert [m.fit(ratings).item_factors_.shape[1] for m in grid] == [2, 3]
