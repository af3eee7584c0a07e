"""Results of an audit, to be printed, saved as JSON or shown on a page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal, Self

from discreet.data.safe_io import read_document
from discreet.errors import DataError
from discreet.progress import html_notes, html_table
from discreet.version import __version__

Unit = Literal["mu", "epsilon"]
SIGNS = {"mu": "μ", "epsilon": "ε"}
FORMAT = "discreet-audit/1"
HEAD = ("level", "verdict", "found", "claimed", "seconds")


@dataclass(frozen=True)
class Claim:
    """The privacy guarantee that a trained model states.

    Parameters
    ----------
    epsilon, delta : float
    mu : float or None
        The parameter of Gaussian differential privacy, if the guarantee is of that kind.
    neighboring, accountant : str
    """

    epsilon: float
    delta: float
    mu: float | None
    neighboring: str
    accountant: str

    @property
    def unit(self) -> Unit:
        """The unit in which the claim and the found loss are compared."""
        return "epsilon" if self.mu is None else "mu"

    @property
    def size(self) -> float:
        """The claim in that unit."""
        return self.epsilon if self.mu is None else self.mu


@dataclass(frozen=True)
class Level:
    """The result of one level.

    Parameters
    ----------
    name : {"transcript", "noise", "one run", "scores", "tuning"}
    refuted : bool
        Whether the claim cannot hold.
    unit : {"mu", "epsilon"}
    claimed, found : float
        In that unit. `found` is the loss of the worst canary, or a lower bound on it (noise, one
        run).
    findings : tuple of str
        Sentences; those that refute the claim come first.
    sees, blind_to : str
        What this level can and cannot detect.
    seconds : float
    details : dict
        The data of tables and plots, as plain JSON values.
    """

    name: str
    refuted: bool
    unit: Unit
    claimed: float
    found: float
    findings: tuple[str, ...]
    sees: str
    blind_to: str
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return "REFUTED" if self.refuted else "not refuted"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, with infinite numbers as the string "Infinity"."""
        return {
            "name": self.name,
            "refuted": self.refuted,
            "verdict": self.verdict,
            "unit": self.unit,
            "claimed": _plain(self.claimed),
            "found": _plain(self.found),
            "findings": list(self.findings),
            "sees": self.sees,
            "blind_to": self.blind_to,
            "seconds": round(self.seconds, 3),
            "details": _plain(dict(self.details)),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Build a level from its ``to_dict``."""
        return cls(
            document["name"],
            bool(document["refuted"]),
            document["unit"],
            float(document["claimed"]),
            float(document["found"]),
            tuple(document["findings"]),
            document["sees"],
            document["blind_to"],
            float(document["seconds"]),
            document["details"],
        )


@dataclass(frozen=True)
class Audit:
    """The result of `discreet.audit`.

    Parameters
    ----------
    model : str
        The model with its parameters.
    claim : Claim
    levels : tuple of Level
    data : str
        Description of the users: generated, or those of the given ratings.
    spent : dict, optional
        If ratings were given: the cost of the training on them, and its ledger.
    version : str
        Version of discreet.
    """

    model: str
    claim: Claim
    levels: tuple[Level, ...]
    data: str
    spent: Mapping[str, Any] | None = None
    version: str = __version__

    @property
    def refuted(self) -> bool:
        """Whether any level refutes the claim."""
        return any(level.refuted for level in self.levels)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.refuted:
            names = " and ".join(level.name for level in self.levels if level.refuted)
            return (
                f"The claim of ε = {self.claim.epsilon:.4g} at δ = {self.claim.delta:.3g} is"
                f" REFUTED ({names})."
            )
        return (
            f"Nothing found refutes ε = {self.claim.epsilon:.4g} at δ = {self.claim.delta:.3g}. "
            "An audit is no proof: it can find faults, not exclude them."
        )

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Return the rows of the table: level, verdict, found, claimed, seconds."""
        return [
            (
                level.name,
                level.verdict,
                f"{SIGNS[level.unit]} {_relation(level)} {level.found:.4g}",
                f"{SIGNS[level.unit]} = {level.claimed:.4g}",
                f"{round(level.seconds, 3):.1f}",  # as it is saved
            )
            for level in self.levels
        ]

    def _repr_html_(self) -> str:
        """Return the printed result as HTML for notebooks."""
        notes = [f"{level.name}: {finding}" for level in self.levels for finding in level.findings]
        head = f"<p>{escape(f'{self.model}, on {self.data}')}</p>"
        return (
            f"<div>{head}{html_table(HEAD, self.rows())}{html_notes([*notes, self.verdict])}</div>"
        )

    def __str__(self) -> str:
        rows = [HEAD, *self.rows()]
        widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        notes = [f"{level.name}: {finding}" for level in self.levels for finding in level.findings]
        return "\n".join([f"{self.model}, on {self.data}", *table, *notes, self.verdict])

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "format": FORMAT,
            "version": self.version,
            "model": self.model,
            "claim": {**vars(self.claim)},
            "data": self.data,
            "spent": None if self.spent is None else dict(self.spent),
            "refuted": self.refuted,
            "verdict": self.verdict,
            "levels": [level.to_dict() for level in self.levels],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Build an audit from its ``to_dict``."""
        try:
            if document["format"] != FORMAT:
                raise DataError(
                    f"Unknown audit format {document['format']!r}: {FORMAT!r} is supported."
                )
            levels = tuple(Level.from_dict(level) for level in document["levels"])
            claim = Claim(**document["claim"])
            return cls(
                document["model"],
                claim,
                levels,
                document["data"],
                document["spent"],
                document["version"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError("This is not an audit written by discreet.") from error

    def save(self, path: str | Path) -> None:
        """Write the audit as JSON."""
        Path(path).write_text(
            json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an audit that `save` wrote."""
        try:
            document = read_document(Path(path))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} could not be read as an audit.") from error
        if not isinstance(document, dict):
            raise DataError(f"{path} is not an audit written by discreet.")
        return cls.from_dict(document)


def _relation(level: Level) -> str:
    """Return "≥" for the levels that find lower bounds, and "=" for those that are exact."""
    return "≥" if level.name in ("noise", "one run") else "="


def _plain(value: Any) -> Any:
    """Convert to JSON values; numbers unknown to JSON become strings that ``float`` reads."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value
