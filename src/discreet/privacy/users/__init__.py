"""Sealed users: what users compute by themselves (user steps), and the sums over them.

`sealed_users` seals ratings and has the two verbs, `apply` and `sum`, of which all else is made;
what a step and a statistic are is in `statistics.base`. `ratings_source` is what `fit` asks of an
engine; `partitions` and `lazy_partitions` hold blocks of users. The other modules are the steps of
single algorithms.
"""

__all__ = [
    "gradient_steps",
    "huber_weights",
    "item_sampling",
    "lazy_partitions",
    "leave_one_out",
    "partitions",
    "poisson_batches",
    "ratings_source",
    "residual_covariance",
    "ridge",
    "sealed_users",
]
