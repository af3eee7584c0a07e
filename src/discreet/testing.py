"""The conformance kit under the name that test files import it by: see
`discreet.auditing.conformance`.
"""

from discreet.auditing.conformance import (
    Check,
    ConformanceError,
    PrivateModelConformance,
    Report,
    check_private_model,
    rule_names,
)

__all__ = [
    "Check",
    "ConformanceError",
    "PrivateModelConformance",
    "Report",
    "check_private_model",
    "rule_names",
]
