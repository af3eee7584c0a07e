"""discreet: matrix-factorization recommenders trained with user-level differential privacy.

The names in ``__all__`` are the public API. They are imported on first use, so that ``import
discreet`` stays fast.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _show_warnings() -> None:
    """Show warnings as such where the program that imports this has not set up logging."""
    import logging

    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("discreet: %(levelname)s: %(message)s"))
    handler.addFilter(lambda record: not logging.getLogger().handlers)
    logging.getLogger("discreet").addHandler(handler)


_show_warnings()
