"""Noise: where it comes from (sources), and how it is drawn exactly (sampler).

`gaussian_spec` specifies the sampler in slow, exact arithmetic; tests compare the two.
"""

__all__ = ["gaussian_spec", "sampler", "sources"]
