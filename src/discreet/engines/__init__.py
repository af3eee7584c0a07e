"""Where people live: an engine holds ratings in blocks, lets every user take a step, and adds up exact integers.

`People` is what `fit` of a private model accepts. `local` is one machine's memory, and what plain `Ratings` use;
`blocks` is block files on one machine; `spark` is a Spark cluster; `devices` simulates a server and its users as
processes. Sums are int64, so that every engine gives the same bits for any number of blocks, in any order.
"""

from __future__ import annotations

from discreet.engines.blocks import Blocks
from discreet.engines.devices import Devices
from discreet.engines.local import LocalPeople
from discreet.engines.spark import SparkRatings
from discreet.privacy.people.protocol import People

__all__ = ["Blocks", "Devices", "LocalPeople", "People", "SparkRatings"]
