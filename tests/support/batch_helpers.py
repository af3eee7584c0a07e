"""Users who go as far as anybody can, for the statistics of the baselines."""

import math

from discreet.privacy.users.sealed_users import seal
from support.sealed_helpers import make

N_ITEMS = 6
ORDINARY = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.0, 2: 2.0, 3: 3.0, 5: 1.0}, {0: 2.0}, {}]
ADVERSARIES = {
    "every item": dict.fromkeys(range(N_ITEMS), 5.0),
    "every item, far too high": dict.fromkeys(range(N_ITEMS), 1e30),
    "both": {0: 1e30, 1: -1e30, 2: 1e30, 4: -1e30},
    "the largest float": {0: 3.4e38, 1: -3.4e38, 2: -3.4e38, 4: -3.4e38},
    "not a number": {0: math.nan, 2: math.nan, 4: 3.0},
    "infinite": {0: math.inf, 2: -math.inf, 4: math.inf},
    "tiny": {0: 1e-38, 1: 1e-30, 5: -1e-38},
    "one": {3: -7.0},
    "none": {},
}


def sealed(rows, bounds, ids=None):
    return seal(make(rows, N_ITEMS, ids), bounds)
