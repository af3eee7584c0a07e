"""Conformance checks for every private model, also those outside this package.

    from discreet.testing import check_private_model

    print(check_private_model(MyModel(factors=4, epsilon=1.0)))

In a test file, subclass `PrivateModelConformance`: pytest runs one test per rule.
"""

from discreet.auditing.conformance.kit import PrivateModelConformance, check_private_model
from discreet.auditing.conformance.rules import Check, ConformanceError, Report
from discreet.auditing.conformance.rules import names as rule_names
from discreet.auditing.conformance.timeline_rule import check_timeline

__all__ = [
    "Check",
    "ConformanceError",
    "PrivateModelConformance",
    "Report",
    "check_private_model",
    "check_timeline",
    "rule_names",
]
