"""What releases cost: a budget, events and their prices, the closed form for Gaussian noise, loss distributions.

`selection` prices the best of several runs; `lifetime` keeps one budget for all trainings on the same people, in a file
(`store_log`).
"""

__all__ = ["budget", "events", "gdp", "lifetime", "pld", "selection", "store_log"]
