"""Cache of blocks and their users' intermediate results between passes, of bounded size.

It saves reading a block again and repeating the steps that two passes share. A block that is not
cached is read and run through all its steps, to the same bits.
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
    """Blocks by name, each in the states after some steps.

    Every pass visits all blocks in order, so the least recently used block is needed next. If
    memory is short, cached blocks therefore stay and no others are added.

    Parameters
    ----------
    room : int
        Capacity in bytes.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._states: dict[Hashable, States] = {}
        self._sizes: dict[Hashable, int] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._states)

    def lookup(self, name: Hashable) -> States:
        """Return the cached states of a block."""
        return self._states.get(name, _NOTHING)

    def keep(self, name: Hashable, states: States) -> None:
        """Replace the cached states of a block, if there is enough memory."""
        size = memory_of(states.values())
        with self._lock:
            self._states.pop(name, None)
            self._sizes.pop(name, None)
            if states and sum(self._sizes.values()) + size <= self._room:
                self._states[name] = states
                self._sizes[name] = size


def memory_of(blocks: Collection[Block]) -> int:
    """Return the memory that blocks take together; shared arrays count once."""
    owners = {
        id(owner): memoryview(owner).nbytes
        for block in blocks
        for owner in map(_owner, block.arrays())
    }
    return sum(owners.values())


def _owner(array: np.ndarray) -> Any:
    """Return the object that owns the memory of an array, all of which stays allocated."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


def room_for(megabytes: object) -> int:
    """Convert the parameter `cache_megabytes` to bytes."""
    if isinstance(megabytes, bool) or not isinstance(megabytes, int) or megabytes < 0:
        raise ConfigError(
            f"cache_megabytes is {megabytes!r}, but must be a whole number of at least 0"
        )
    return megabytes << 20
