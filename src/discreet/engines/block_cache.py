"""Blocks that stay in memory between passes, with what their users have computed so far, up to a
number of bytes.

It saves reading a block again, and taking the steps again that two passes have in common. A block
that is not here is read and led through all its steps, to the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from threading import Lock
from typing import Any

import numpy as np

from discreet.errors import ConfigError
from discreet.privacy.statistics.base import Block
from discreet.privacy.users.lazy_partitions import Point

States = Mapping[Point, Block]
_NOTHING: States = {}


class BlockCache:
    """Blocks by name, each at some points of its way.

    Every pass comes by all blocks, so that the one which was used longest ago is needed next: where
    there is no room for all, those that are there stay, and others are not taken in.

    Parameters
    ----------
    room : int
        Bytes.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._states: dict[Hashable, States] = {}
        self._sizes: dict[Hashable, int] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._states)

    def lookup(self, name: Hashable) -> States:
        """What is known of a block."""
        return self._states.get(name, _NOTHING)

    def keep(self, name: Hashable, states: States) -> None:
        """Keep this of a block instead of what was known, if there is room."""
        size = memory_of(states.values())
        with self._lock:
            self._states.pop(name, None)
            self._sizes.pop(name, None)
            if states and sum(self._sizes.values()) + size <= self._room:
                self._states[name] = states
                self._sizes[name] = size


def memory_of(blocks: Collection[Block]) -> int:
    """The memory that blocks take together, which share most of their arrays."""
    owners = {
        id(owner): memoryview(owner).nbytes
        for block in blocks
        for owner in map(_owner, block.arrays())
    }
    return sum(owners.values())


def _owner(array: np.ndarray) -> Any:
    """Whatever holds the memory of an array: all of it stays as long as the array does."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


def room_for(megabytes: object) -> int:
    """Bytes for the parameter `cache_megabytes`."""
    if isinstance(megabytes, bool) or not isinstance(megabytes, int) or megabytes < 0:
        raise ConfigError(
            f"cache_megabytes is {megabytes!r}, but must be a whole number of at least 0"
        )
    return megabytes << 20
