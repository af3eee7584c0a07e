"""People in files on one machine: more ratings than memory holds, and no cluster.

`Blocks.write` divides ratings of any size into blocks of users; `Blocks` is what `fit` of a private
model takes. It is the reference for every other engine.
"""

from __future__ import annotations

from discreet.engines.blocks.ratings import BlockRatings

__all__ = ["BlockRatings"]
