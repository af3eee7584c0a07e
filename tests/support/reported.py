"""Models that were never trained, with titles that nobody should trust."""

from __future__ import annotations

import numpy as np

import discreet

NASTY = [
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked=2'>",
    "Tom & \"Jerry\" 'n' <b>co</b>",
    "x" * 300,
    "קולנוע פרדיסו \u202e backwards",
    "half \ud83d of a pair, \x00 and \x1b[31m",
    "]]><!-- & &amp; {{7*7}} ${7}",
    "  ",
    "日本の映画 · ドラマ",
    "\u2028 lines \u2029 apart",
]


def invented(n_items: int, titles: list[str], factors: int = 8) -> discreet.ALS:
    """A model that was never trained, with as many items as it takes."""
    rng = np.random.default_rng(0)
    model = discreet.ALS(factors)
    names = np.empty(n_items, object)
    names[:] = [titles[at % len(titles)] for at in range(n_items)]
    vectors = rng.normal(0, 0.3, (n_items, factors)).astype(np.float32)
    model.restore_items(
        np.arange(n_items), vectors, np.zeros(n_items, np.float32), names, (1.0, 5.0)
    )
    model.restore({"mean": 3.0, "spread": 1.0, "regularization": 10.0, "user_scale": 1.0})
    return model
