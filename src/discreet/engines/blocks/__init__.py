"""Ratings in files on one machine: data larger than memory, without a cluster.

`BlockRatings.write` divides ratings of any size into blocks of users, and `fit` of a private model
takes a `BlockRatings`. It is the reference for every other engine.
"""

from __future__ import annotations

from discreet.engines.blocks.ratings import BlockRatings

__all__ = ["BlockRatings"]
