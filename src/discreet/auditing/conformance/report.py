"""What came of checking a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """A rule and what came of it; ``passed`` is None where it could not be checked."""

    rule: str
    text: str
    passed: bool | None
    detail: str

    def __str__(self) -> str:
        mark = {True: "kept   ", False: "BROKEN ", None: "skipped"}[self.passed]
        return f"{mark}  {self.rule}: {self.text}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Report:
    """All checks of one model."""

    model: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return not self.broken

    @property
    def broken(self) -> list[str]:
        """Names of the rules that are broken."""
        return [check.rule for check in self.checks if check.passed is False]

    def __str__(self) -> str:
        return "\n".join([self.model, *(f"  {check}" for check in self.checks)])

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "model": self.model,
            "passed": self.passed,
            "checks": [vars(check) for check in self.checks],
        }


class ConformanceError(AssertionError):
    """A private model breaks a rule; ``report`` has all of them."""

    def __init__(self, report: Report):
        self.report = report
        broken = [str(check) for check in report.checks if check.passed is False]
        super().__init__(
            "\n".join(
                [f"{report.model} breaks {len(broken)} of {len(report.checks)} rules:", *broken]
            )
        )
