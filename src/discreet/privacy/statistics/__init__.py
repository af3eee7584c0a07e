"""Sums over users that own their sensitivity, all of them in one registry that the tests walk.

`base` says what a statistic is and has the registry; `sums` what a sum is, with the table of
sensitivities; `integer_sums` how whole numbers are added exactly. The other modules are the
statistics, each with its proof.
"""

__all__ = [
    "base",
    "bounds",
    "contributions",
    "covariance",
    "gradients",
    "integer_sums",
    "pairs",
    "sums",
    "user_effects",
    "user_totals",
]
