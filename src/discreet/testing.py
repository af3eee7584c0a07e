"""Alias of `discreet.auditing.conformance`, the kit that tests private models."""

from discreet.auditing.conformance import (
    Check,
    ConformanceError,
    PrivateModelConformance,
    Report,
    check_private_model,
    check_timeline,
    rule_names,
)

__all__ = [
    "Check",
    "ConformanceError",
    "PrivateModelConformance",
    "Report",
    "check_private_model",
    "check_timeline",
    "rule_names",
]
