"""discreet: matrix-factorization recommenders trained with user-level differential privacy.

The names in ``__all__`` are the public API. They are imported on first use, so that ``import
discreet`` stays fast.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
