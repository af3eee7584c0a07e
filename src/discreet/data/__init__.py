"""Ratings and every way to obtain them: files, frames, sparse matrices, known and generated data.

`ratings` defines `Ratings`; `readers`, `csv_format`, `frames` and `csr` read them. `catalog` and
`features` hold public facts about items, `datasets` lists the official archives, `splits` holds
ratings out, and `cinema` is generated. The names below are public and imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
