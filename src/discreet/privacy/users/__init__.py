"""Sealed users: what users compute by themselves (user steps), and the sums over them.

`sealed_users` seals ratings and has the two operations, `apply` (a step) and `sum` (a statistic),
and the protocol that `fit` requires of an engine; `steps` has all steps, `lazy_partitions` blocks
of users that are not in memory, `item_sampling` a user's own random choices, `poisson_batches`
secret samples of users.
"""

__all__ = ["item_sampling", "lazy_partitions", "poisson_batches", "sealed_users", "steps"]
