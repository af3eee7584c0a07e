"""Private linear regression over users' rows: the first use of the release point outside ratings.

`DPRegression` fits many targets on the same features from three noisy sums, with one ledger.
"""

from discreet.regression.linear import DPRegression

__all__ = ["DPRegression"]
