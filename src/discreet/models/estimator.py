"""The scikit-learn conventions of models: parameters, a fitted state and their display."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any, NoReturn, Self, dataclass_transform

from discreet.errors import ConfigError


def no_parameter(model: str, name: str, allowed: Iterable[str]) -> str:
    """Return the message about an unknown parameter, with the nearest known one."""
    known = list(allowed)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
    return f"{model} has no parameter {name!r}: {hint}"


def check_keywords(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap a constructor so that its errors name the class and the nearest parameter."""
    signature = inspect.signature(init)
    known = [name for name in signature.parameters if name != "self"]

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **given: Any) -> None:
        try:
            signature.bind(self, *args, **given)
        except TypeError as problem:
            model = type(self).__name__
            unknown = [name for name in given if name not in known]
            if unknown:
                raise TypeError(no_parameter(model, unknown[0], known)) from None
            message = f"{model}({', '.join(known)}): {problem}; pass parameters by name"
            raise TypeError(message) from None
        init(self, *args, **given)

    return construct


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class Estimator:
    """Base of all models: a subclass declares its parameters as annotated class attributes.

    Each subclass becomes a dataclass whose fields are keyword-only (``field(kw_only=False)`` allows
    a position), so its constructor only stores parameters and `sklearn.base.clone` and searches
    work. Learned attributes are declared with ``field(init=False)`` and end in an underscore.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        if "__init__" in vars(cls):
            cls.__init__ = check_keywords(cls.__init__)  # type: ignore[method-assign]

    @classmethod
    def parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.parameter_names()}

    def set_params(self, **params: Any) -> Self:
        for name, value in params.items():
            if name not in self.parameter_names():
                raise ConfigError(no_parameter(type(self).__name__, name, self.parameter_names()))
            setattr(self, name, value)
        return self

    def score(self, *given: Any, **more: Any) -> NoReturn:
        """Raise: `discreet.evaluate` names the metric, the held-out data and the privacy cost."""
        raise ConfigError(
            "a recommender has no single score: it depends on the metric and on held-out ratings,"
            " and exact scores are not covered by ε. Use discreet.evaluate(model, split, metrics),"
            " or evaluate(..., epsilon=0.1) for private scores."
        )

    # ------------------------------------------------------------ for scikit-learn

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "item_ids_")

    def __sklearn_tags__(self) -> Any:
        """Return tags: sparse input, no target, and random results without a seed."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            input_tags=InputTags(two_d_array=False, sparse=True),
            non_deterministic=getattr(self, "random_state", 0) is None,
        )

    # ------------------------------------------------------------ display

    def _params_given(self) -> dict[str, Any]:
        """Return the parameters that are not at their defaults."""
        default = {
            name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()
        }
        return {name: value for name, value in self.get_params().items() if value != default[name]}

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._params_given().items())
        return f"{type(self).__name__}({given})"

    def _repr_html_(self) -> str:
        """Render parameters, what was learned and the guarantee for notebooks.

        The seed of a private model is left out, because notebooks are shared and seeded noise could
        be subtracted with it.
        """
        private = "epsilon" in self.parameter_names()
        told = {
            name: value
            for name, value in self._params_given().items()
            if not (private and name == "random_state")
        }
        listed = ", ".join(f"{name}={value!r}" for name, value in told.items())
        head = f"<p><strong>{escape(type(self).__name__)}</strong>({escape(listed)})</p>"
        statement = getattr(self, "privacy_", None)
        promise = "" if statement is None else statement._repr_html_()
        if not self.__sklearn_is_fitted__():
            return f"<div>{head}<p>Not trained yet.</p>{promise}</div>"
        items, factors = self.item_factors_.shape  # type: ignore[attr-defined]
        size = f"<p>{items:,} items, {factors:,} factors</p>"
        learned = str(getattr(self, "summary_", ""))
        if statement is None:
            promise = (
                "<p><strong>Not private:</strong> single users' ratings may be recovered from"
                " it.</p>"
            )
        return f"<div>{head}{size}{f'<p>{escape(learned)}</p>' if learned else ''}{promise}</div>"
