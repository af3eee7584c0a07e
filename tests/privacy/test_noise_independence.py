"""Secure noise is independent between releases, processes and moments, and leaves sums on their
grid.
"""

import subprocess
import sys

import numpy as np

from discreet.auditing.correlation import Correlation
from discreet.auditing.frozen import freeze
from discreet.privacy.accounting.mechanisms import Gaussian
from discreet.privacy.noise.sources import SecureNoise

GRID = 4.0**-14
DRAW = """
import sys
from discreet.auditing.frozen import freeze
from discreet.privacy.noise.sources import SecureNoise
with freeze():
    print(SecureNoise().gaussian(16, 2.0**40).tolist())
"""


def release(source, shape, scale):
    """Release zeros on a grid and give their noise, as standard normal numbers."""
    return source.add(np.zeros(shape, np.int64), Gaussian(scale), None, GRID) / scale


def test_releases_of_one_training_have_independent_noise():
    found = Correlation()
    for _ in range(20):
        source = SecureNoise()
        found.add(
            [
                (f"{shape}", release(source, shape, 3.0 + len(shape)))
                for shape in ((60,), (40, 6), (3,), (1,))
            ]
        )
    assert found.find_correlation(1e-9) is None


def test_secure_noise_keeps_sums_on_their_grid():
    units = release(SecureNoise(), (500,), 1.0) / GRID
    assert np.array_equal(units, np.rint(units))


def test_noise_does_not_follow_from_clock_or_process():
    with freeze():
        one, other = (release(SecureNoise(), (16,), 1.0) for _ in range(2))
    assert not np.array_equal(one, other)


def test_processes_with_equal_clock_and_id_draw_different_noise():
    one, other = (
        subprocess.run(
            [sys.executable, "-c", DRAW], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    )
    assert one.count(",") == 15
    assert one != other
