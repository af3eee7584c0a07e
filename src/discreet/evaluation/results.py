"""Results of an evaluation: frozen values that print as a table and convert to JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from discreet.evaluation.metrics import Array
from discreet.progress import html_notes, html_table

EXACT = (
    "these scores are computed exactly from users' ratings and are not covered by the model's ε;"
    " evaluate(..., epsilon=…) releases them with noise"
)


@dataclass(frozen=True)
class Slice:
    """The metrics of one popularity quintile.

    Attributes
    ----------
    quintile : int
        1 (the most popular items) to 5 (the tail).
    n_items, train_share
        Number of items, and their share of the training ratings (NaN for an empty training set).
    n_targets, n_users, n_ranked
        Numbers of held-out ratings of its items, of users with one, and of users with a relevant
        one (as in `Evaluation`).
    values, stderr : dict
        As in `Evaluation`; NaN without held-out ratings.
    """

    quintile: int
    n_items: int
    train_share: float
    n_targets: int
    n_users: int
    n_ranked: int | None
    values: Mapping[str, float]
    stderr: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, with None for NaN and infinity."""
        return {
            "quintile": self.quintile,
            "n_items": self.n_items,
            "train_share": _number(self.train_share),
            "n_targets": self.n_targets,
            "n_users": self.n_users,
            "n_ranked": self.n_ranked,
            "values": _numbers(self.values),
            "stderr": _numbers(self.stderr),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Scores of one model on one held-out part.

    Attributes
    ----------
    values, stderr : dict
        Metric name to score, and to its standard error over users (NaN for coverage and gini).
    slices : tuple of Slice
        Scores by popularity quintile, head first; empty without slices.
    n_users, n_ranked, n_targets : int
        Numbers of users with a held-out rating, of users with a *relevant* one (ranking metrics are
        means over these; None without ranking metrics), and of held-out ratings.
    conditions : dict
        What the scores depend on: model class, goal, split, seed, part, relevance threshold, kind
        of slices.
    notes : tuple of str
        Remarks for comparisons, such as the number of users left out.
    user_ids, per_user
        Users of the part, and metric name to one value per user, NaN for users left out. They
        describe individual users: neither printed nor in `to_dict` by default.
    """

    values: Mapping[str, float]
    stderr: Mapping[str, float]
    slices: tuple[Slice, ...]
    n_users: int
    n_ranked: int | None
    n_targets: int
    conditions: Mapping[str, Any]
    notes: tuple[str, ...]
    user_ids: Array = field(repr=False)
    per_user: Mapping[str, Array] = field(repr=False)

    def __getitem__(self, metric: str) -> float:
        return self.values[metric]

    def __repr__(self) -> str:
        scores = ", ".join(f"{name}={value:.4f}" for name, value in self.values.items())
        return f"<Evaluation of {self.conditions['model']} on {self.conditions['part']}: {scores}>"

    def __str__(self) -> str:
        head, rows, notes = self._table_to_show()
        return "\n".join([head, "", *_table(rows), "", *(f"- {note}" for note in notes)])

    def _table_to_show(self) -> tuple[str, list[list[str]], list[str]]:
        """Return the headline, the table with its header row, and the notes."""
        c = self.conditions
        head = (
            f"{c['model']} on {c['split']} (seed {c['seed']}), {c['part']}: "
            f"{_count(self.n_users, 'user')}, {_count(self.n_targets, 'held-out rating')}"
        )
        names = ["1 (head)", "2", "3", "4", "5 (tail)"] if self.slices else []
        rows = [["metric", "value", "± s.e.", *names]]
        for name, value in self.values.items():
            rows.append(
                [
                    name,
                    *map(_cell, [value, self.stderr[name], *(s.values[name] for s in self.slices)]),
                ]
            )
        notes = [*self.notes, EXACT]
        if self.slices:
            items = ", ".join(f"{s.n_items:,}" for s in self.slices)
            fifth = (
                f"a fifth of the {'training ratings' if c['slices'] == 'ratings' else 'items'} each"
            )
            notes.insert(0, f"1 to 5: items by popularity in training, {fifth} ({items} items)")
        return head, rows, notes

    def _repr_html_(self) -> str:
        """Return the printed result as HTML for notebooks."""
        head, rows, notes = self._table_to_show()
        return f"<div><p>{escape(head)}</p>{html_table(rows[0], rows[1:])}{html_notes(notes)}</div>"

    def to_dict(self, per_user: bool = False) -> dict[str, Any]:
        """Return a dictionary for JSON; ``per_user=True`` adds ``user_ids`` and ``per_user``."""
        out: dict[str, Any] = {
            "values": _numbers(self.values),
            "stderr": _numbers(self.stderr),
            "slices": [s.to_dict() for s in self.slices],
            "n_users": self.n_users,
            "n_ranked": self.n_ranked,
            "n_targets": self.n_targets,
            "conditions": dict(self.conditions),
            "notes": list(self.notes),
        }
        if per_user:
            out["user_ids"] = self.user_ids.tolist()
            out["per_user"] = {
                name: [_number(x) for x in v.tolist()] for name, v in self.per_user.items()
            }
        return out


def _table(rows: list[list[str]]) -> list[str]:
    """Format lines with the first column flush left and the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.rjust(w) for cell, w in zip(row, widths, strict=True)] for row in rows]
    return [
        "  ".join([row[0].ljust(widths[0]), *cells[1:]])
        for row, cells in zip(rows, padded, strict=True)
    ]


def _cell(x: float) -> str:
    return "–" if math.isnan(x) else f"{x:.4f}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _number(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def _numbers(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _number(x) for name, x in values.items()}
