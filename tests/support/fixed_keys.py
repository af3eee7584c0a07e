"""Keys of the noise generator that follow from a test's name, so that no outcome depends on chance.

The noise itself is drawn by the same generator as outside of tests: only its keys, which come from
the operating system otherwise, are the same in every run. Processes that a test starts or forks
have keys of the system. ``DISCREET_TEST_NOISE=secret`` leaves all keys to the system.
"""

import hashlib
import itertools
import os


class FixedKeys:
    """Stands for the module `os` in `discreet.privacy.noise.sources`."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.start("")

    def start(self, name: str) -> None:
        """Begin the keys of a test, fixtures included."""
        self.name = name
        self.drawn = itertools.count()

    def urandom(self, size: int) -> bytes:
        if os.getpid() != self.process:
            return os.urandom(size)
        return hashlib.shake_256(f"{self.name} {next(self.drawn)}".encode()).digest(size)

    def __getattr__(self, name: str):
        return getattr(os, name)
