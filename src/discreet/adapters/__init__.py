"""Adapters for other libraries: `implicit` and LensKit.

`ImplicitAdapter` gives any model the interface of `implicit`, which need not be installed.
`discreet.adapters.lenskit_scorer.PrivateScorer` is a component for LensKit's pipelines, and needs
LensKit. Both have the privacy statement of the wrapped model as ``privacy_``.
"""

from discreet.adapters.implicit import ImplicitAdapter

__all__ = ["ImplicitAdapter"]
