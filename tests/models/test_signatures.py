"""One word, one meaning, one unit across all models and algorithms: signatures against the
glossary in the docs.
"""

import dataclasses
import inspect
import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from discreet.models import MODELS, model_class
from discreet.models.algorithm import ALGORITHMS, Algorithm, algorithm_class
from discreet.models.private import PrivateRecommender

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
SHELLS = {name: model_class(name) for name in MODELS}
VALUES = {algorithm_class(name).__name__: algorithm_class(name) for name in ALGORITHMS}
PRIVATE = {name: cls for name, cls in SHELLS.items() if issubclass(cls, PrivateRecommender)}


def parameters(cls):
    """{name: annotation} of a constructor."""
    hints = get_type_hints(cls if dataclasses.is_dataclass(cls) else cls.__init__)
    return {
        name: hints[name] for name in inspect.signature(cls.__init__).parameters if name != "self"
    }


def glossary():
    """{parameter: (meaning, unit)}, and how often each is there."""
    rows = re.findall(
        r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [(name, meaning.strip(), unit.strip()) for name, meaning, unit in rows]


def kinds(annotation):
    """The types that a parameter may have, without None and without words that stand for a
    value.
    """
    if get_origin(annotation) in (Union, types.UnionType):
        return set().union(*(kinds(part) for part in get_args(annotation)))
    if annotation in (type(None), str) or get_origin(annotation) is Literal:
        return set()
    if inspect.isclass(annotation) and issubclass(annotation, Algorithm):
        return {Algorithm}
    return {annotation}


EVERY = SHELLS | VALUES


def used():
    """{parameter: {class: its types}}"""
    found: dict[str, dict[str, set[Any]]] = {}
    for owner, cls in EVERY.items():
        for name, hint in parameters(cls).items():
            found.setdefault(name, {})[owner] = kinds(hint)
    return found


USED = used()


def test_every_parameter_is_in_the_glossary_once_and_nothing_else_is():
    listed = [name for name, _, _ in glossary()]
    assert sorted(listed) == sorted(set(listed))
    assert sorted(set(USED) - set(listed)) == []
    assert sorted(set(listed) - set(USED)) == []
    assert all(meaning and unit for _, meaning, unit in glossary())


@pytest.mark.parametrize("name", USED)
def test_a_parameter_has_the_same_type_wherever_it_is(name):
    found = {frozenset(kind) for kind in USED[name].values() if kind}
    assert len(found) <= 1, USED[name]


@pytest.mark.parametrize("name", SHELLS)
def test_a_model_for_users_has_few_parameters(name):
    assert len(parameters(SHELLS[name])) <= 15


@pytest.mark.parametrize("name", PRIVATE)
def test_private_models_say_the_promise_in_the_same_words(name):
    given = inspect.signature(PRIVATE[name].__init__).parameters
    assert given["epsilon"].default is inspect.Parameter.empty, "whoever trains privately says it"
    defaults = {
        key: given[key].default
        for key in ("delta", "neighboring", "noise", "random_state", "rating_range")
    }
    assert defaults == dict(
        delta=1e-6, neighboring="add-remove", noise="secure", random_state=None, rating_range=None
    )
    assert given["algorithm"].default is None
    by_name = [
        key for key, parameter in given.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert by_name == [key for key in given if key not in ("self", "factors")]


def goals(shell):
    """The algorithms that a model is a shell of: one, or one for each goal."""
    if "goal" not in inspect.signature(shell.__init__).parameters:
        return [shell.kinds()[0]]
    return [shell.kinds(goal=goal)[0] for goal in ("ranking", "rating")]


@pytest.mark.parametrize("name", PRIVATE)
def test_a_model_parameter_is_an_algorithm_field_without_a_second_default(name):
    shell = PRIVATE[name]
    values = goals(shell)
    own = {
        "epsilon",
        "delta",
        "neighboring",
        "accountant",
        "noise",
        "random_state",
        "algorithm",
        "goal",
        "item_features",
        "features",
    }
    own |= {"allow_large_delta"}
    fields = {field.name for value in values for field in dataclasses.fields(value)}
    names = " or ".join(value.__name__ for value in values)
    for key, parameter in inspect.signature(shell.__init__).parameters.items():
        if key in own | {"self"}:
            continue
        assert key in fields, f"{key} of {name} is nothing that {names} has"
        if key != "goal":
            assert parameter.default is None, f"{key}: the default belongs to {names}"


@pytest.mark.parametrize("name", EVERY)
def test_every_parameter_is_documented_where_it_is_defined(name):
    pages = [
        inspect.getdoc(cls) or ""
        for cls in EVERY[name].__mro__
        if cls.__module__.startswith("discreet")
    ]
    text = "\n".join(pages)
    heads = " ".join(re.findall(r"^([\w, ]+?)(?: : .*)?$", text, re.MULTILINE))
    missing = [key for key in parameters(EVERY[name]) if not re.search(rf"\b{key}\b", heads)]
    assert missing == []


def test_types_are_told_apart():
    """What the tests above compare."""
    assert kinds(int | None) == {int}
    assert kinds(float | Literal["user"]) == {float}
    assert kinds(Literal["a", "b"]) == set()
    assert kinds(int) != kinds(float)
    assert kinds(Any) == {Any}
