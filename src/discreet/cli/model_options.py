"""Options of every command that trains a model: privacy budget, model and parameters."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from discreet.cli.app import ADVANCED
from discreet.errors import ConfigError
from discreet.models import MODELS, model_class
from discreet.privacy.accounting.budget import DEFAULT_DELTA

_PANEL = "Model"
PRIVACY = "Privacy"
_SPELLINGS = {name.lower(): name for name in MODELS}
_PROMISE = (
    "epsilon",
    "delta",
    "allow_large_delta",
    "neighboring",
    "noise",
    "accountant",
    "rating_range",
)
PRIVATE = "dpmf"


def _option(help: str, *names: str, panel: str = _PANEL, **rest: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **rest)


@dataclass
class ModelOptions:
    """A model and its parameters; a parameter that is not given has the model's default."""

    epsilon: Annotated[
        float | None,
        _option(
            "Privacy budget ε: bounds how much the result can reveal about any one user. Smaller"
            " is more private.",
            panel=PRIVACY,
        ),
    ] = None
    delta: Annotated[
        float | None,
        _option(
            "Privacy budget δ: what any probability may change by beyond the factor e^ε. Default:"
            f" {DEFAULT_DELTA}.",
            panel=PRIVACY,
        ),
    ] = None
    rating_range: Annotated[
        str | None,
        _option(
            "Public range of the ratings, such as 1,5. By default it is read from the data, which"
            " the privacy statement reports as a caution.",
            panel=PRIVACY,
            metavar="LOW,HIGH",
        ),
    ] = None
    model: Annotated[
        str | None,
        _option(
            f"One of {', '.join(_SPELLINGS)}. Default: dpmf with --epsilon, als without.",
            metavar="NAME",
        ),
    ] = None
    goal: Annotated[
        Literal["ranking", "rating"] | None,
        _option(
            "ranking: rank items, from ratings or interactions (default of dpmf). rating: predict"
            " ratings (default of als and dpals).",
            show_choices=True,
        ),
    ] = None
    factors: Annotated[
        int | None,
        _option(
            "Number of factors. Default: 32 for als; for dpmf 64 with --goal ranking, and at most"
            " 32 with --goal rating, chosen by the signal-to-noise ratio.",
            metavar="N",
        ),
    ] = None
    iterations: Annotated[
        int | None,
        _option(
            "Number of training iterations; the budget of a private model is divided among them."
            " Default: 15 for als, 6 for dpmf with --goal rating.",
            metavar="N",
        ),
    ] = None
    regularization: Annotated[
        float | None, _option("Regularization strength. Default: chosen by the model.")
    ] = None
    item_features: Annotated[
        str | None,
        _option(
            "For dpmf: file of public item features, such as genres. Each line has an item id, then"
            " numbers or labels such as Comedy|War. Numbers in a column whose name ends in _id or"
            " _code are labels.",
            metavar="FILE",
        ),
    ] = None
    features: Annotated[
        str | None,
        _option(
            "For dpmf: columns of the item features that make up a user's own profile, such as"
            " author,genres. By default all in which items share values.",
            metavar="NAMES",
        ),
    ] = None
    text: Annotated[
        str | None,
        _option(
            "For dpmf: columns of the item features that are text, such as title,description."
            " Their words become part of the prior.",
            metavar="NAMES",
        ),
    ] = None
    item_similarities: Annotated[
        str | None,
        _option(
            "For dpmf: file of public similarities of items. Each line has two item ids and a"
            " weight.",
            metavar="FILE",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        _option(
            "Any other parameter of the model or its algorithm; may be repeated.",
            "--set",
            metavar="KEY=VALUE",
        ),
    ] = None
    random_state: Annotated[
        int | None,
        _option(
            "Random seed of initial factors and splits; secure noise does not use it. Default: 0;"
            " private training draws a new seed each time.",
            min=0,
            metavar="SEED",
            panel=ADVANCED,
        ),
    ] = None
    threads: Annotated[
        int | None,
        _option(
            "Number of processor cores to use. Default: all.", min=1, metavar="N", panel=ADVANCED
        ),
    ] = None
    neighboring: Annotated[
        Literal["add-remove", "replace-one"] | None,
        _option(
            "Neighboring data sets: one user added or removed (the default), or one user replaced"
            " by another.",
            panel=ADVANCED,
        ),
    ] = None
    accountant: Annotated[
        Literal["auto", "gdp", "rdp", "pld", "pure"] | None,
        _option(
            "Privacy accountant. Default: gdp; pld for dpsgd; auto (the least noise) for huberals.",
            panel=ADVANCED,
        ),
    ] = None
    noise: Annotated[
        Literal["secure", "seeded"] | None,
        _option(
            "Noise source. Default: secure. Seeded noise can be reproduced and protects no user: it"
            " is for research only.",
            panel=ADVANCED,
        ),
    ] = None
    allow_large_delta: Annotated[
        bool | None, _option("Accept a delta above 1e-3.", "--allow-large-delta", panel=ADVANCED)
    ] = None

    def make(self, default: str = "als", **more: Any) -> Any:
        """Return the model, not trained yet; `more` holds defaults for options not given."""
        given = self._parameters()
        cls = find_model(self.model or (PRIVATE if "epsilon" in given else default))
        allowed = cls.parameter_names()
        for name in _PROMISE if "epsilon" not in allowed else ():
            if name in given:
                how = (
                    f"use --model {PRIVATE}"
                    if self.model or "epsilon" in given
                    else "give --epsilon"
                )
                raise ConfigError(
                    f"--{name.replace('_', '-')} is for private models, and {cls.__name__} is not"
                    f" private: {how}"
                )
        if "epsilon" in allowed and "epsilon" not in given | more:
            raise ConfigError(
                f"{cls.__name__} needs a privacy budget: pass --epsilon, for example --epsilon 1"
            )
        from discreet.models.algorithm import field_names
        from discreet.models.estimator import no_parameter

        inner = cls.kinds(**given)[0] if hasattr(cls, "kinds") else None
        known = allowed if inner is None else list(dict.fromkeys([*allowed, *field_names(inner)]))
        for name in given:
            if name not in known:
                instead = getattr(cls, "instead", {}).get(name)
                message = f"{cls.__name__} has no parameter {name!r}: {instead}"
                raise ConfigError(message if instead else no_parameter(cls.__name__, name, known))
        types = (
            get_type_hints(cls) if inner is None else get_type_hints(inner) | get_type_hints(cls)
        )
        checked = {
            name: _check_type(name, value, types.get(name, Any)) for name, value in given.items()
        }
        usual = {name: value for name, value in more.items() if name in allowed}
        make = cls if inner is None else cls.configure
        return make(**(usual | checked))

    def ready(self) -> Any:
        """Return the model after all checks that need no data."""
        model = self.make()
        if hasattr(model, "plan"):
            # 2^20 items: more than any number of factors. Planning also finds infeasible budgets.
            model.plan(1 << 20)
        else:
            model.check()
        return model

    @property
    def options_used(self) -> list[str]:
        """Options given that choose the model or its parameters."""
        own = {name: f"--{name.replace('_', '-')}" for name in vars(self)}
        given = [own.get(name, f"--set {name}") for name in self._parameters()]
        return ["--model", *given] if self.model else given

    def use_threads(self) -> None:
        if self.threads is not None:
            from discreet.kernels import set_threads

            set_threads(self.threads)

    def _parameters(self) -> dict[str, Any]:
        model = (
            "goal",
            "factors",
            "iterations",
            "regularization",
            "random_state",
            "item_features",
            "features",
            "text",
            "item_similarities",
        )
        named = (*model, *_PROMISE)
        given = {name: value for name in named if (value := getattr(self, name)) is not None}
        if "rating_range" in given:
            given["rating_range"] = _range(given["rating_range"])
        for name in ("features", "text"):
            if name in given:
                given[name] = [one.strip() for one in given[name].split(",") if one.strip()]
        more = {name: given.pop(name) for name in ("text", "item_similarities") if name in given}
        if "text" in more and "item_features" not in given:
            raise ConfigError("--text names columns of item features: pass --item-features FILE")
        if more:
            from discreet.data.public_items import PublicItems

            given["item_features"] = PublicItems(
                given.get("item_features"), more.get("text", ()), more.get("item_similarities")
            )
        for setting in self.settings or []:
            name, equals, text = setting.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or not name:
                raise ConfigError(
                    f"--set {setting!r} is not KEY=VALUE: write for example --set regularization=25"
                )
            if name in given:
                raise ConfigError(f"the parameter {name!r} is given twice: keep one of them")
            given[name] = parse_value(text.strip())
        return given


def find_model(name: str) -> Any:
    """Return the class of a model; case does not matter."""
    if name.lower() not in _SPELLINGS:
        near = difflib.get_close_matches(name.lower(), _SPELLINGS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(_SPELLINGS)}"
        raise ConfigError(f"unknown model {name!r}: {hint}")
    return model_class(_SPELLINGS[name.lower()])


def is_private(model: Any) -> bool:
    """Return whether the model has a guarantee without cautions."""
    statement = getattr(model, "privacy_", None)
    return statement is not None and bool(statement.private)


def parse_value(text: str) -> Any:
    """Parse a setting as JSON (or true, false, none in any case); anything else is text."""
    constants = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in constants:
        return constants[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _range(text: str) -> list[float]:
    """Parse ``"1,5"``, ``"0.5:5"`` or ``"1-5"`` as two numbers."""
    number = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
    found = re.fullmatch(rf"\s*{number}\s*[-,:;\s]\s*{number}\s*", text, re.IGNORECASE)
    if found is None:
        raise ConfigError(
            f"--rating-range is {text!r}, but must be the lowest and the highest rating, such as"
            " 1,5"
        )
    return [float(found[1]), float(found[2])]


def _check_type(name: str, value: Any, wanted: Any) -> Any:
    """Return the value if the parameter accepts its type; models check the rest themselves."""
    kinds = _kinds(wanted)
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, list) and tuple in kinds:
        value = tuple(value)
    if (
        wanted is Any
        or (value is None and type(None) in kinds)
        or (type(value) in kinds and not numeric)
    ):
        return value
    words = [kind for kind in kinds if isinstance(kind, str)]
    if value in words:
        return value
    if numeric and not math.isfinite(value):
        raise ConfigError(f"{name} is {value}, but must be a finite number")
    if name == "random_state" and type(value) is int and value < 0:
        raise ConfigError(f"{name} is {value}, but must be a whole number of at least 0")
    if numeric and float in kinds:
        return float(value)
    if type(value) is int and int in kinds:
        return value
    names = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        type(None): "none",
        dict: 'a mapping such as {"sum": 1}',
        tuple: "a list such as [1, 5]",
        list: "a list of names",
    }
    allowed = [
        repr(kind) if isinstance(kind, str) else names.get(kind, str(kind)) for kind in kinds
    ]
    raise ConfigError(f"{name} is {value!r}, but must be {' or '.join(allowed)}")


def _kinds(wanted: Any) -> list[Any]:
    """Return the plain types that a parameter accepts, and the strings of a Literal."""
    if get_origin(wanted) is Literal:
        return list(get_args(wanted))
    if get_origin(wanted) in (dict, Mapping):
        return [dict]
    if get_origin(wanted) in (tuple, list):
        return [get_origin(wanted)]
    if get_origin(wanted) is Sequence:  # not str, which is the type of its parts
        return [list]
    parts = get_args(wanted)
    return [kind for part in parts for kind in _kinds(part)] if parts else [wanted]
