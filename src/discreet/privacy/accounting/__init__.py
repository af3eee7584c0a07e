"""Accounting: budgets, mechanisms, accountants, and the cost of the best of several runs."""

__all__ = [
    "budget",
    "gdp",
    "mechanisms",
    "pld",
    "pricing",
    "private_selection",
]
