"""DPMF, the recommended model: rankings from item pairs, or ratings from biases and factors.

`model` has the class and its parameters, `ranking` and `rating` the two algorithms.
`pair_factorization` turns released item pairs into vectors; `user_effects`, `rating_factors` and
`residual_covariance` are the parts of `rating`; `feature_prior` uses public features of items.
"""

from discreet.models.dpmf.model import DPMF

__all__ = ["DPMF"]
