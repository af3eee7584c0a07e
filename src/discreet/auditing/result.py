"""What an audit found: values that can be printed, saved as JSON and shown on a page."""

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
    """What a model says of itself after a training.

    Parameters
    ----------
    epsilon, delta : float
    mu : float or None
        The parameter of Gaussian differential privacy that (ε, δ) stands for, where the claim is of
        that kind.
    neighboring, accountant : str
    """

    epsilon: float
    delta: float
    mu: float | None
    neighboring: str
    accountant: str

    @property
    def unit(self) -> Unit:
        """In which number the claim is compared with what was found."""
        return "epsilon" if self.mu is None else "mu"

    @property
    def size(self) -> float:
        """The claim in that number."""
        return self.epsilon if self.mu is None else self.mu


@dataclass(frozen=True)
class Level:
    """What came of one level.

    Parameters
    ----------
    name : {"transcript", "noise", "one run", "scores", "tuning"}
    refuted : bool
        Whether the claim cannot be true.
    unit : {"mu", "epsilon"}
    claimed, found : float
        In that unit. `found` is what the worst canary lost, or a lower bound of it (noise, one
        run).
    findings : tuple of str
        In words; what refutes the claim comes first.
    sees, blind_to : str
        What this level can find, and what it cannot.
    seconds : float
    details : dict
        Everything that tables and plots are made of, as plain JSON values.
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
        """Ready for JSON; an infinite number is the word "Infinity"."""
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
        """The level that ``to_dict`` described."""
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
        On whom, in words: generated people, or people's own ratings.
    spent : dict, optional
        Where people's own ratings were used: what that cost, and the ledger of it.
    version : str
        Of discreet.
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
        """In one sentence."""
        if self.refuted:
            names = " and ".join(level.name for level in self.levels if level.refuted)
            return (
                f"The claim of ε = {self.claim.epsilon:.4g} at δ = {self.claim.delta:.3g} is"
                f" REFUTED ({names})."
            )
        return (
            f"Nothing found refutes ε = {self.claim.epsilon:.4g} at δ = {self.claim.delta:.3g}. "
            "An audit is no proof: it finds faults, and their absence only as far as it can see."
        )

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """The table: level, verdict, found, claimed, seconds."""
        return [
            (
                level.name,
                level.verdict,
                f"{SIGNS[level.unit]} {_relation(level)} {level.found:.4g}",
                f"{SIGNS[level.unit]} = {level.claimed:.4g}",
                f"{level.seconds:.1f}",
            )
            for level in self.levels
        ]

    def _repr_html_(self) -> str:
        """For notebooks: the same as in print."""
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
        """Ready for JSON."""
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
        """The audit that ``to_dict`` described."""
        try:
            if document["format"] != FORMAT:
                raise DataError(
                    f"this audit has the format {document['format']!r}, and {FORMAT!r} is known"
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
            raise DataError("this is not an audit written by discreet") from error

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(
            json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        try:
            document = read_document(Path(path))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} could not be read as an audit") from error
        if not isinstance(document, dict):
            raise DataError(f"{path} is not an audit written by discreet")
        return cls.from_dict(document)


def _relation(level: Level) -> str:
    """Noise and one run find what a claim cannot be below; what the other levels find is exact."""
    return "≥" if level.name in ("noise", "one run") else "="


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers that JSON does not have become words that ``float`` reads."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value
