"""Noise: which laws there are (mechanisms), where it comes from (sources), how it is drawn exactly (sampler).

`specification` says, slowly and in exact arithmetic, what the sampler must do; tests compare the two.
"""

__all__ = ["mechanisms", "sampler", "sources", "specification"]
