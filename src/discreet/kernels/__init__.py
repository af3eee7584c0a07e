"""Compiled functions on plain arrays. They know neither people nor privacy; `reference` has each
in plain numpy.

The names below are public and imported on first use: loading the compiler takes longer than
answering one question, and `reference` answers it without.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
