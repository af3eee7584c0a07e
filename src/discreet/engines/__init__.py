"""Engines hold ratings in blocks, run every user's steps, and add up exact integers.

`fit` of a private model accepts any `RatingsSource`. `local` uses one machine's memory, as plain
`Ratings` do; `blocks` uses block files on one machine; `spark` uses a Spark cluster. Sums are
int64, so that every engine gives the same bits for any number of blocks, in any order.
"""

from __future__ import annotations

from discreet.engines.blocks import BlockRatings
from discreet.engines.local import LocalRatings
from discreet.engines.spark import SparkRatings
from discreet.privacy.users.sealed_users import RatingsSource

__all__ = ["BlockRatings", "LocalRatings", "RatingsSource", "SparkRatings"]
