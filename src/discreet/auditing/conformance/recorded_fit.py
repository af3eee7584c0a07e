"""Record one fit: its releases, the learned model, the printed text and the saved files."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import pickle
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from discreet.auditing.conformance.recorder import Recorder
from discreet.data.ratings import Ratings
from discreet.errors import DiscreetError
from discreet.models.private import PrivateRecommender

_LONG = 50  # longer sequences are compared as one value, which keeps the list of places short
# Keys of JSON files that are not compared: checksums follow from the rest, ledger ids are random.
_LEFT_OUT = ("sha256", "checksum", "id")


@dataclasses.dataclass
class Run:
    """The record of one fit.

    Attributes
    ----------
    model : the fitted model
    watch : its releases
    said : printed, logged, warned and progress lines
    learned : the model's attributes, flattened
    files : contents of the saved folder by name
    """

    model: Any
    watch: Recorder
    said: list[str]
    learned: dict[str, Any]
    files: dict[str, bytes]

    @property
    def read_saved(self) -> dict[str, Any]:
        """All saved values by place, such as ``model.json: state.center``."""
        found: dict[str, Any] = {}
        for name, content in self.files.items():
            found |= flatten(_parse_file(name, content), f"{name}:", separator=" ")
        return found


def clone(model: PrivateRecommender, **changes: Any) -> Any:
    """Make a new model with the same parameters, except for `changes`."""
    return type(model)(**(model.get_params() | changes))


def fit(
    model: PrivateRecommender,
    ratings: Any,
    *,
    replay: Recorder | None = None,
    draws: int = 0,
    times: int = 1,
    newcomers: bool = False,
) -> Run:
    """Fit the given model in place, and record all of its output."""
    said: list[str] = []

    def progress(*what: Any) -> None:
        said.append(f"progress{what}")

    with Recorder(replay, draws, newcomers) as watch, _collect_output(said):
        for _ in range(times):
            model.fit(ratings, progress=progress)
        text = f"{model!r} {model.privacy_}"
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model"))
        files = {
            path.name: path.read_bytes()
            for path in sorted(Path(folder, "model").rglob("*"))
            if path.is_file()
        }
    known = {*model.parameter_names(), "earlier_ledgers_"}  # describes earlier fits
    learned = {name: value for name, value in vars(model).items() if name not in known}
    return Run(model, watch, [*said, text], flatten(learned), files)


def flatten(value: Any, path: str = "", separator: str = ".") -> dict[str, Any]:
    """Flatten a nested value to {place: comparable value}."""
    if isinstance(value, np.ndarray):
        content = value.tolist() if value.dtype == object else value.tobytes()
        return {path: (str(value.dtype), value.shape, content)}
    if isinstance(value, np.generic):
        return {path: value.item()}
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return {path: repr(value)}
    if hasattr(value, "to_dict") and hasattr(value, "ledger"):
        return flatten([value.to_dict(), value.ledger.to_dict() | {"id": ""}], path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        nested = [(str(key), inner) for key, inner in value.items()]
    elif isinstance(value, (list, tuple)) and len(value) <= _LONG:
        nested = [(str(at), inner) for at, inner in enumerate(value)]
    else:
        return {path: _opaque(value)}
    found: dict[str, Any] = {}
    for key, inner in nested:
        found |= flatten(inner, f"{path}{separator}{key}" if path else key)
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """List the places where two flattened values differ."""
    return [
        place
        for place in one | other
        if place not in one or place not in other or one[place] != other[place]
    ]


def _opaque(value: Any) -> Any:
    """Return the pickle of an unknown object, or `Kept` for ratings and sealed data."""
    if isinstance(value, Ratings):
        return Kept("the ratings themselves")
    try:
        return pickle.dumps(value)
    except DiscreetError:
        return Kept("sealed data")
    except Exception:  # an unknown object may raise anything
        return f"<{type(value).__name__}>"


@dataclasses.dataclass(frozen=True)
class Kept:
    """Private data found in a model."""

    what: str


def _parse_file(name: str, content: bytes) -> Any:
    """Parse a saved file to nested values, if its type is known."""
    with contextlib.suppress(Exception):
        if name.endswith(".safetensors"):
            from safetensors.numpy import load

            return load(content)
        if name.endswith(".json"):
            document = json.loads(content)
            return {key: value for key, value in document.items() if key not in _LEFT_OUT}
    return content


@contextlib.contextmanager
def _collect_output(said: list[str]) -> Iterator[None]:
    """Collect printed text, log lines and warnings."""

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(f"log: {record.getMessage()}")

    handler = Collect()
    ours = logging.getLogger("discreet")
    loggers = [ours] if ours.propagate is False else []
    loggers.append(logging.getLogger())
    level = ours.level
    printed = io.StringIO()
    ours.setLevel(logging.DEBUG)
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(record=True) as caught,
        ):
            yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        ours.setLevel(level)
    said += [f"printed: {line}" for line in printed.getvalue().splitlines()]
    said += [
        f"warning: {w.message}" for w in caught if not w.category.__module__.startswith("numba")
    ]
