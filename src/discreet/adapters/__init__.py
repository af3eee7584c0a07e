"""discreet in other people's pipelines: models that speak the languages of `implicit` and of
LensKit.

`ImplicitAdapter` takes any model of ours and answers as a model of `implicit` does; neither needs
the other installed. `discreet.adapters.lenskit_scorer.PrivateScorer` is a component for LensKit's
pipelines, and needs LensKit. Both pass on the promise of the model inside: its statement is their
``privacy_``.
"""

from discreet.adapters.implicit import ImplicitAdapter

__all__ = ["ImplicitAdapter"]
