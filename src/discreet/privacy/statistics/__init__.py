"""Sums over users that own their sensitivity, all of them in one registry that the tests walk.

`base` defines a statistic and has the registry; `sums` has the table of sensitivities;
`integer_sums` adds whole numbers exactly. The other modules have the statistics with their proofs:
item pairs are in `pairs` and `centered_pairs`, counts by community in `communities`, sums over rows
of features and targets in `regression`.
"""

__all__ = [
    "base",
    "bounds",
    "centered_pairs",
    "choice_moments",
    "communities",
    "contributions",
    "covariance",
    "gradients",
    "integer_sums",
    "pairs",
    "regression",
    "sums",
    "user_effects",
    "user_totals",
]
