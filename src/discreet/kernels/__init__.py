"""Compiled functions on plain arrays, without users or privacy; `reference` has each in numpy.

The names below are public and imported on first use: loading the compiler takes longer than a
single query, which `reference` answers without it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
