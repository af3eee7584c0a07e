"""Where people live: an engine holds ratings in blocks, lets every user take a step, and adds up
exact integers.

`People` is what `fit` of a private model accepts. `local` is one machine's memory, and what plain
`Ratings` use; `blocks` is block files on one machine; `spark` is a Spark cluster. Sums are int64,
so that every engine gives the same bits for any number of blocks, in any order.
"""

from __future__ import annotations

from discreet.engines.blocks import BlockRatings
from discreet.engines.local import LocalRatings
from discreet.engines.spark import SparkRatings
from discreet.privacy.users.sealed_users import RatingsSource

__all__ = ["BlockRatings", "LocalRatings", "RatingsSource", "SparkRatings"]
