"""The README that is saved with a model: what it is, its guarantee, how to use it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from discreet.models.storage.ledger_history import is_earlier
from discreet.privacy.release.statement import CONFIRMED, PUBLIC_USERS

if TYPE_CHECKING:
    from discreet.models.base import Recommender
    from discreet.privacy.release.statement import PrivacyStatement

_NOT_PRIVATE = """\
# {name}: NOT PRIVATE

This recommender was trained **without privacy protection**. Its item factors were computed from
exact ratings, and single users' ratings may be recovered from them. Do not publish it, and do not
share it more widely than the ratings.

- {items:,} items, {factors} factors, goal: {goal}
- parameters: {parameters}
- it holds no user's vector; a user's vector is computed from that user's own history when it is
  needed

```python
import discreet

model = discreet.load("this-folder")
item_ids, scores = model.recommend({example}, n=10)
```
"""


_PRIVATE = """\
# {headline}

{cautions}{statement}

- {items:,} items, {factors} factors, goal: {goal}
- parameters: {parameters}
- `ledger.json` lists every release with its sensitivity and noise; `discreet budget ledger.json`
  verifies it and computes ε again
- it holds no user's vector, no exact number of {user}s and no rating; a user's vector is computed
  from that user's own history when it is needed, and is for that user alone

```python
import discreet

model = discreet.load("this-folder")
print(model.privacy_)
item_ids, scores = model.recommend({example}, n=10)
```
"""


_EARLIER = """
- earlier models in this folder have their own ledgers: {names}; where they are of the same users,
  the privacy costs add up, and the total guarantee is weaker than this card states
"""


def with_earlier(card: str, files: Iterable[str]) -> str:
    """Add a line about the ledgers of earlier trainings, if there are any."""
    names = [f"`{name}`" for name in files if is_earlier(name)]
    if not names:
        return card
    start, fence, rest = card.partition("\n```python")
    return start + _EARLIER.removeprefix("\n").format(names=", ".join(names)) + fence + rest


def private(model: Recommender, statement: PrivacyStatement) -> str:
    """Write the card of a private model, or of one whose guarantee was lost."""
    return _front_matter(type(model).__name__, statement) + _PRIVATE.format(
        headline=_headline(type(model).__name__, statement),
        cautions=_cautions(statement) if statement.finite else "",
        statement=_escape_names(statement),
        user=statement.user,
        items=len(model.item_ids_),
        factors=model.item_factors_.shape[1],
        goal=model.goal,
        parameters=_code(_list_parameters(model, statement)),
        example=model.item_ids_[:2].tolist(),
    )


def _list_parameters(model: Recommender, statement: PrivacyStatement) -> str:
    """List the parameters; features of items are input, of which only the use is known."""
    saved = {name: repr(value) for name, value in model.params_to_save().items()}
    if "item_features" in saved and any(a.name == "features" for a in statement.assumptions):
        saved["item_features"] = "(not saved)"
    return ", ".join(f"{name}={value}" for name, value in saved.items())


def _code(text: str) -> str:
    """Return text as a code span, which it cannot end: with more backticks than are in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"


def _escape_names(statement: PrivacyStatement) -> str:
    """Return the statement with free text, such as who confirmed what is public, as plain text."""
    text = str(statement)
    for assumption in statement.assumptions:
        found = CONFIRMED.search(assumption.text)
        if assumption.name == PUBLIC_USERS and found:
            shown = f"{assumption.text[: found.start(1)]}{escape_markdown(found[1])})"
            text = text.replace(assumption.text, shown)
    return text


def escape_markdown(text: str) -> str:
    """Return text on one line, without the meaning that Markdown or HTML would give to it."""
    plain = escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_\[\]#|~]|:(?=//))", r"\\\1", plain)


def _front_matter(name: str, statement: PrivacyStatement | None) -> str:
    """Return what model hubs read: the library, tags, and the guarantee as numbers."""
    finite = statement is not None and statement.finite
    tags = [
        "recommender-system",
        "matrix-factorization",
        *(["differential-privacy"] if finite else []),
    ]
    lines = [
        "---",
        "library_name: discreet",
        "tags:",
        *(f"- {tag}" for tag in tags),
        "discreet:",
        f"  model: {name}",
    ]
    lines.append(f"  privacy: {statement.status if statement is not None else 'not private'}")
    if statement is not None and finite:
        lines += [f"  epsilon: {statement.epsilon:.6g}", f"  delta: {statement.delta:.3e}"]
        lines.append(f"  neighboring: {statement.neighboring}")
    return "\n".join([*lines, "---", "", ""])


def _headline(name: str, statement: PrivacyStatement) -> str:
    price = f"ε = {statement.epsilon:.4g}, δ = {statement.delta:.3g}"
    if not statement.finite:
        return f"NOT PRIVATE: {name}, {price}"
    if statement.weak:
        return f"{name}: {statement.status} with {price}"
    return f"{name}: private with {price}" + (", WITH CAUTIONS" if statement.cautions else "")


def _cautions(statement: PrivacyStatement) -> str:
    """List what the guarantee depends on."""
    if not statement.cautions:
        return ""
    listed = "".join(f"- **{caution}**\n" for caution in statement.cautions)
    return f"Cautions, which must be justified before relying on the guarantee below:\n\n{listed}\n"


def not_private(model: Recommender) -> str:
    """Write the card of a model without privacy."""
    example = model.item_ids_[:2].tolist()
    return _front_matter(type(model).__name__, None) + _NOT_PRIVATE.format(
        name=type(model).__name__,
        items=len(model.item_ids_),
        factors=model.item_factors_.shape[1],
        goal=model.goal,
        parameters=_code(str(model)),
        example=example,
    )
