"""Sums over users that own their sensitivity, all of them in one registry that the tests walk.

`base` defines a statistic and has the registry; `sums` has the table of sensitivities;
`integer_sums` adds whole numbers exactly. The other modules have the statistics with their proofs.
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
