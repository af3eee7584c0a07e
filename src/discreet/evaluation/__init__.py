"""How good a model is: metrics are pure functions, protocols ask a model about ratings it has not
seen.

`metrics` has one function per metric, `protocols` has `evaluate`, `results` the tables that it
returns, `priced` the same as a release, and `tuning` has `tune`. The names below are public, and
imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
