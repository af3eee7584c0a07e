"""What releases cost: a budget, events and their prices, the closed form for Gaussian noise, loss distributions.

`lifetime` keeps one budget for all trainings on the same people, in a file (`store_log`).
"""

__all__ = ["budget", "events", "gdp", "lifetime", "pld", "store_log"]
