"""The papers' tables and figures, the choice of defaults, and simulated data. Not part of the
wheel.

`reproduce` runs the entries that `configs/` describes, one TOML file each; `entry` and `sources`
read them, and the files named after a paper compute its rows. `papers` prices the papers' settings.
`families`, `synthetic` and `twins` generate data; importing this package adds the simulated
MovieLens sets to `discreet.load_dataset`.
"""

from __future__ import annotations

from discreet.data.datasets import Dataset, register_generator
from discreet.data.download import Progress
from discreet.data.ratings import Ratings


def _load_twin(name: str, seed: int, scale: float, progress: Progress | None) -> Ratings:
    from research.twins import load_twin  # numba takes a moment to import

    return load_twin(name, seed, scale, progress=progress)


for _dataset in (
    Dataset(
        "twin-ml10m", "simulated MovieLens 10M, half stars", 69_878, 10_677, 10_000_054, "generated"
    ),
    Dataset(
        "twin-ml20m",
        "simulated MovieLens 20M, positives only",
        136_677,
        20_108,
        9_990_682,
        "generated",
    ),
):
    register_generator(_dataset, _load_twin)
