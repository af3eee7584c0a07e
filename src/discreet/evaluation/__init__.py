"""Evaluation on held-out ratings, and private tuning.

`metrics` has one function per metric, `evaluator` has `evaluate`, `results` its result,
`private_scores` the same as a release, and `tuning` has `tune`. The names below are public and
imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
