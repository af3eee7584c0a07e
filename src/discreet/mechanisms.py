"""Gaussian, Laplace and Huber noise, each with its price: for any statistic, inside this library or
elsewhere.

What is public of `discreet.privacy.accounting.mechanisms`; docs/noise.md says which to use
when.
"""

from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace, Mechanism

__all__ = ["Gaussian", "Huber", "Laplace", "Mechanism"]
