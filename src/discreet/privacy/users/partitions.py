"""Where people are: what `Users` asks of an engine that holds them.

A `Place` holds people in blocks, in some form. It gives the place after every user has taken a
step, and a function for the exact sum of a statistic. `InMemory` is the plain one: its blocks are
arrays, a step is taken at once, and sums run over the blocks in their order.
`discreet.privacy.users.lazy_partitions` has the other one, which writes steps down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

from numpy.typing import NDArray

from discreet.privacy.statistics.base import Block, Public, Statistic, UserStep
from discreet.privacy.statistics.sums import Compute


class Partitions(ABC):
    """People in blocks. A place never changes: a step leads to another one."""

    __slots__ = ()

    @abstractmethod
    def after(self, step: UserStep, public: Public) -> Partitions:
        """The same people after the step; `public` is what was known before it."""

    @abstractmethod
    def adder(self, statistic: Statistic, public: Public) -> Compute:
        """A function (grid, rows) for the sum over all people as they are here."""

    def close(self) -> None:
        """Drop what an engine keeps between sums; called when a training has ended, or failed."""
        return


class MemoryPartitions(tuple[Block, ...], Partitions):
    """Blocks of arrays in this process."""

    __slots__ = ()

    def after(self, step: UserStep, public: Public) -> MemoryPartitions:
        return MemoryPartitions(step.run(block, public) for block in self)

    def adder(self, statistic: Statistic, public: Public) -> Compute:
        @cache  # once for all blocks of rows
        def partials(grid: float | None) -> list[Any]:
            return [statistic.partial(block, public, grid) for block in self]

        def compute(grid: float | None, rows: slice) -> NDArray[Any]:
            first, *others = partials(grid)
            found: NDArray[Any] = first(rows)
            for one in others:
                found = found + one(rows)
            return found

        return compute
