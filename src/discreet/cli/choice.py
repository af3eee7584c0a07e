"""Which model to make, and how: the options of every command that trains one."""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer

from discreet.errors import ConfigError
from discreet.models import MODELS, model_class

_PANEL = "Model"
_SPELLINGS = {name.lower(): name for name in MODELS}


def _option(help: str, *names: str, **rest: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **rest)


@dataclass
class Choice:
    """A model and its parameters; what is not given is the model's own default."""

    model: Annotated[
        str | None, _option(f"One of {', '.join(_SPELLINGS)}; als unless said otherwise.", metavar="NAME")
    ] = None
    factors: Annotated[int | None, _option("Length of the vectors.", metavar="N")] = None
    iterations: Annotated[int | None, _option("Sweeps over users and items.", metavar="N")] = None
    regularization: Annotated[float | None, _option("How strongly vectors are held back.")] = None
    feedback: Annotated[
        Literal["explicit", "implicit"] | None,
        _option("Predict ratings, or rank items from what was chosen at all.", show_choices=True),
    ] = None
    random_state: Annotated[int | None, _option("Seed of what is random in training.", metavar="SEED")] = None
    settings: Annotated[
        list[str] | None, _option("Any other parameter of the model; may be repeated.", "--set", metavar="KEY=VALUE")
    ] = None
    threads: Annotated[int | None, _option("Processor cores to use; all unless given.", min=1, metavar="N")] = None

    def make(self, default: str = "als", **more: Any) -> Any:
        """The model, not trained yet; `more` are parameters that count where the options say nothing."""
        cls = find_model(self.model or default)
        given = self._parameters()
        allowed = cls.parameter_names()
        for name in given:
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, n=1)
                has = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(allowed) or 'none'}"
                raise ConfigError(f"{cls.__name__} has no parameter {name!r}: {has}")
        types = get_type_hints(cls.__init__)
        checked = {name: _checked(name, value, types.get(name, Any)) for name, value in given.items()}
        usual = {name: value for name, value in more.items() if name in allowed}
        return cls(**(usual | checked))

    @property
    def given(self) -> list[str]:
        """Options that were used and say something about the model."""
        return [*(["--model"] if self.model else []), *(f"--set {name}" for name in self._parameters())]

    def use_threads(self) -> None:
        if self.threads is not None:
            from discreet.kernels import set_threads

            set_threads(self.threads)

    def _parameters(self) -> dict[str, Any]:
        named = ("factors", "iterations", "regularization", "feedback", "random_state")
        given = {name: value for name in named if (value := getattr(self, name)) is not None}
        for setting in self.settings or []:
            name, equals, text = setting.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or not name:
                raise ConfigError(f"--set takes KEY=VALUE, such as --set regularization=25, and {setting!r} was given")
            if name in given:
                raise ConfigError(f"the parameter {name!r} is given twice")
            given[name] = _value(text.strip())
        return given


def find_model(name: str) -> Any:
    """The class of a model, whatever the case of its name."""
    if name.lower() not in _SPELLINGS:
        near = difflib.get_close_matches(name.lower(), _SPELLINGS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_SPELLINGS)}"
        raise ConfigError(f"there is no model {name!r}: {hint}")
    return model_class(_SPELLINGS[name.lower()])


def is_private(model: Any) -> bool:
    """Whether the model carries a privacy statement, and it was not given away since."""
    statement = getattr(model, "privacy_", None)
    return statement is not None and bool(getattr(statement, "private", True))


def _value(text: str) -> Any:
    """A setting as a Python value: numbers, true, false and none are themselves, the rest is text."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _checked(name: str, value: Any, wanted: Any) -> Any:
    """The value, if its type is one that the parameter has; models check the rest themselves."""
    kinds = get_args(wanted) or (wanted,)
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is Any or (value is None and type(None) in kinds) or (type(value) in kinds and not numeric):
        return value
    if numeric and not math.isfinite(value):
        raise ConfigError(f"{name} is {value}, but must be a finite number")
    if name == "random_state" and type(value) is int and value < 0:
        raise ConfigError(f"{name} is {value}, but must be a whole number of at least 0")
    if numeric and float in kinds:
        return float(value)
    if type(value) is int and int in kinds:
        return value
    names = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", type(None): "none"}
    raise ConfigError(f"{name} is {value!r}, but must be {' or '.join(names.get(kind, str(kind)) for kind in kinds)}")
