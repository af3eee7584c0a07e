"""People behind glass: what one user may contribute (bounds), and what users compute by themselves (steps).

`users` seals ratings and has the two verbs, `map` and `sum`, of which all else is made; `block` says what a step and
a statistic are. `descent`, `residuals`, `huber_weights`, `poisson_batches` and `item_sampling` are the steps of single
algorithms. `protocol` is what `fit` asks of an engine.
"""

__all__ = [
    "block",
    "bounds",
    "descent",
    "huber_weights",
    "item_sampling",
    "poisson_batches",
    "protocol",
    "residuals",
    "users",
]
