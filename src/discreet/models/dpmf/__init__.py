"""DPMF, the recommended model: rankings from item pairs, or ratings from biases and factors.

`model` has the class and its parameters, `ranking` and `rating` the two algorithms.
Parts of `ranking`: `pair_factorization` turns released item pairs into vectors, and `profile` fits
users' profiles in public features. Parts of `rating`: `rating_training` (the order of releases),
`population`, `item_biases`, `user_effects`, `residual_covariance` and `rating_factors`. Both use
`feature_prior`, the prior from public features.
"""

from discreet.models.dpmf.model import DPMF

__all__ = ["DPMF"]
