"""What releases cost: a budget, mechanisms and their prices, the closed form for Gaussian noise,
loss distributions.

`private_selection` prices the best of several runs.
"""

__all__ = [
    "budget",
    "gdp",
    "mechanisms",
    "pld",
    "pricing",
    "private_selection",
]
