"""Noise: where it comes from (sources), and how it is drawn exactly (sampler).

`gaussian_spec` says, slowly and in exact arithmetic, what the sampler must do; tests compare the
two.
"""

__all__ = ["gaussian_spec", "sampler", "sources"]
