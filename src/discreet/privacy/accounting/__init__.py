"""What releases cost: a budget, events and their prices, the closed form for Gaussian noise, loss distributions."""

__all__ = ["budget", "events", "gdp", "pld"]
