"""Gaussian, Laplace and Huber mechanisms with their privacy cost, for any statistic.

The public part of `discreet.privacy.accounting.mechanisms`; docs/noise.md compares them.
"""

from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace, Mechanism

__all__ = ["Gaussian", "Huber", "Laplace", "Mechanism"]
