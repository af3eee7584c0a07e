"""Checks for private models, shipped with the package: whoever writes a model gets the whole set
for nothing.

    from discreet.testing import check_private_model

    print(check_private_model(MyModel(factors=4, epsilon=1.0)))

or, in a test file, a subclass of `PrivateModelConformance`, which pytest turns into one test per
rule.
"""

from discreet.auditing.conformance.kit import PrivateModelConformance, check_private_model
from discreet.auditing.conformance.rules import Check, ConformanceError, Report
from discreet.auditing.conformance.rules import names as rule_names

__all__ = [
    "Check",
    "ConformanceError",
    "PrivateModelConformance",
    "Report",
    "check_private_model",
    "rule_names",
]
