"""Ratings, and every way to get them: files, frames, sparse matrices, known data sets, generated
data.

`ratings` is what all else makes and takes; `files`, `text`, `frames` and `csr` read; `catalog` and
`features` are what is public about items; `datasets` knows the official archives; `splits` holds
ratings out; `cinema` is generated. The names below are public, and imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
