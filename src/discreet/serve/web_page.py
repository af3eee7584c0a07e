"""``discreet export --web``: one HTML file that recommends in the browser, with network blocked.

The file contains the item factors, the released statistics that fold-in needs, and a script that
computes what `discreet.models.fold_in` computes in Python. Its content security policy blocks all
connections, including to its own server, and allows its script and style sheet by their hashes.

Where fold-in adds up known vectors (DPMF for ranking), vectors and factors are stored as float16,
each column divided by its largest value: the error of a number is at most 2⁻¹¹ of itself, or 2⁻²⁵
of the largest in its column. All other rules solve for the user's vector with the factors, which
amplifies rounding errors: they keep float32.
"""

from __future__ import annotations

import base64
import html
import json
import re
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.safe_io import content_policy
from discreet.errors import ConfigError
from discreet.models.fold_in import KINDS
from discreet.models.scorer import Scorer
from discreet.privacy.release.statement import WEAK, describe_factor
from discreet.version import __version__

MOST_ITEMS = 200_000  # about 68 MB at rank 64 in float32, without titles
#: Arrays that are rounded to float16 where the fold-in rule has a `gain`.
HALVES = ("factors", "gain")
# not allowed in HTML: control characters, halves of surrogate pairs, noncharacters
_STRANGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def web_page(
    scorer: Scorer,
    statement: dict[str, Any],
    heading: str | None = None,
    noun: str | None = None,
) -> str:
    """Return the whole file as text.

    Parameters
    ----------
    scorer : Scorer
    statement : dict
        The privacy statement as JSON (`PrivacyStatement.to_dict`).
    heading : str, optional
    noun : str, optional
        What the items are, in the plural, such as "films". Default: "items".

    Raises
    ------
    ConfigError
        For a model with its own fold-in code, and for more than 200,000 items.
    """
    check_exportable(scorer)
    style = _part("page.css")
    script = f"{_part('readout.js')}\n{_part('page.js')}"
    private = statement["status"] != "not private"
    badge = "NOT PRIVATE"
    if private:
        badge = f"Differential privacy: ε = {statement['epsilon']:.4g} per user"
        if not statement.get("private"):
            badge = f"ε = {statement['epsilon']:.4g} per user: {statement['status']}"
    filled = {
        "policy": content_policy(style, script),
        "heading": _text(heading or "Recommendations made on your device"),
        "noun": _text(noun or "items"),
        "badge": _text(badge),
        "badge_kind": "private" if private and statement.get("private") else "open",
        "count": f"{len(scorer):,}",
        "promise": _promise(statement, private),
        "about": (
            f"Made by discreet {_text(__version__)}. This is a single file: save it, and it works"
            " offline."
        ),
        "style": style,
        "model": _as_data(describe_model(scorer)),
        "script": script,
    }
    return re.sub("@(\\w+)@", lambda found: filled[found[1]], _part("page.html"))


def check_exportable(scorer: Scorer) -> None:
    """Raise a `ConfigError` for a model that cannot be exported as a page."""
    if scorer.fold_in_rule.kind not in KINDS:
        raise ConfigError(
            "this model has its own fold-in code, which a page cannot run: use discreet serve"
            " instead"
        )
    if len(scorer) > MOST_ITEMS:
        raise ConfigError(
            f"a page can contain {MOST_ITEMS:,} items, and this model has {len(scorer):,}: use"
            " discreet serve instead"
        )


def describe_model(scorer: Scorer) -> dict[str, Any]:
    """Return the data of the script: numbers, names, and arrays packed as text."""
    arrays: dict[str, NDArray[Any]] = {
        "factors": scorer.factors.astype(np.float32),
        "biases": scorer.biases.astype(np.float32),
    } | scorer.fold_in_rule.arrays()
    if scorer.item_similarity.known is not None:
        arrays["item_similarity.known"] = scorer.item_similarity.known
    scale = scorer.rating_range
    numbers = scorer.fold_in_rule.numbers()
    rate = scale or ((numbers["low"], numbers["high"]) if numbers.get("levels") else None)
    ids = [item if isinstance(item, int | str) else str(item) for item in scorer.item_ids.tolist()]
    return {
        "rank": scorer.factors.shape[1],
        "ids": ids,
        "titles": (
            None if scorer.titles is None else [str(title) for title in scorer.titles.tolist()]
        ),
        "range": scale,
        "liked": scorer.default_rating,
        "rate": rate,
        "step": None if rate is None else _step(*rate),
        "numbers": numbers,
        "item_similarity": {"first": scorer.item_similarity.first},
        "arrays": {
            name: _pack_array(array, "gain" in arrays and name in HALVES)
            for name, array in arrays.items()
        },
    }


def round_half(array: NDArray[Any]) -> NDArray[np.float32]:
    """Round a matrix as the page does: to float16, scaled by column."""
    halves, scale = _halves(array)
    return (halves.astype(np.float64) * scale).astype(np.float32)


def _halves(array: NDArray[Any]) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
    largest = np.abs(array).max(axis=0, initial=0.0).astype(np.float64)
    scale = np.where(largest > 0, largest, 1.0)
    return (array / scale).astype(np.float16), scale


def _pack_array(array: NDArray[Any], half: bool) -> dict[str, Any]:
    if half:
        halves, scale = _halves(array)
        return {"kind": "f2", "data": _base64(halves.astype("<f2")), "scale": scale.tolist()}
    kinds = {"float32": "f4", "float64": "f8", "int32": "i4", "bool": "bool"}
    kind = kinds[array.dtype.name]
    return {"kind": kind, "data": _base64(array if kind == "bool" else array.astype(f"<{kind}"))}


def _base64(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _step(low: float, high: float) -> float:
    """Return the grid of the ratings that the page offers: 0.5, or a twentieth of a long scale."""
    return 0.5 if high - low <= 10 else (high - low) / 20


def _promise(statement: dict[str, Any], private: bool) -> str:
    if not private:
        return (
            "<p><strong>No guarantee.</strong> This model was trained without privacy protection,"
            " and individual ratings may be recovered from this file. Do not share it more widely"
            " than the ratings.</p>"
        )
    odds = describe_factor(float(statement["epsilon"]))
    delta = max(float(statement["delta"]), 1e-18)
    other = (
        "with another user's data in its place"
        if statement["neighboring"] == "replace-one"
        else "without it"
    )
    user = statement.get("unit", "user")
    plain = (
        f"<p>Anything that can be observed in this file is at most {odds} times as likely with"
        f" all data of any one {user} as {other}, and conversely, up to an additional probability"
        f" of one in {1 / delta:,.0f}. This is differential privacy for all data of each"
        f" {user}.</p>"
    )
    if statement["status"] == WEAK:
        plain = (
            f"<p>This model was trained with ε = {statement['epsilon']:.4g}, which is {WEAK}: what"
            f" can be learned from this file may be up to {odds} times as likely because of one"
            " user's data.</p>"
        )
    cautions = "".join(f"<li>{_text(caution)}</li>" for caution in statement.get("cautions", ()))
    listed = f"<p>It depends on this:</p><ul class='check'>{cautions}</ul>" if cautions else ""
    whole = f"<details><summary>In full</summary><p>{_text(statement['text'])}</p></details>"
    return plain + listed + whole


def _text(value: Any) -> str:
    return html.escape(_STRANGE.sub("\ufffd", str(value)), quote=True)


def _as_data(document: dict[str, Any]) -> str:
    """Return JSON text that cannot close its HTML element."""
    # ensure_ascii is on by default, so that all other characters are escaped
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return (
        (resources.files("discreet.serve") / "page" / name).read_text(encoding="utf-8").rstrip("\n")
    )
