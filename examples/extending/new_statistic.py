"""A statistic of your own: how many people liked each item, where a person counts as one however
much they rated.

Run it with ``python examples/extending/new_statistic.py``. A statistic owns its sensitivity: the
docstring proves it; in the library it would also be an example in tests/privacy/test_registry.py,
which sets adversaries on it.
"""

from dataclasses import dataclass

import numpy as np

import discreet
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.base import SensitivityBounds, Statistic, per_item_total, register
from discreet.privacy.statistics.bounds import SHAVE, Bounds
from discreet.privacy.users.sealed_users import seal


@register("one voice each")
@dataclass(frozen=True)
class OneVoiceEach(Statistic):
    """Σ_i x_ij with x_ij = 1/√n_i for the n_i items that i rated above the center: a user adds a
    vector of norm 1.

    Entries are never negative, so that replacing a user moves the sum by at most √2.
    """

    def check(self, public):
        """Accept any users."""

    def shape(self, public):
        return (public.n_items,)

    def reach(self, public):
        return SensitivityBounds(l2=1.0, l1=public.n_items**0.5, entry=1.0, replace_l2=2**0.5)

    def partial(self, block, public, grid):
        liked = block.values > 0
        n = np.bincount(block.row, liked, minlength=block.n)
        x = np.where(liked, SHAVE / np.sqrt(np.maximum(n, 1))[block.row], 0.0)
        return lambda rows: per_item_total(block.indices, x, public.n_items, grid)[rows]


def main():
    ratings = discreet.load_dataset("cinema", scale=0.1)
    users = seal(ratings, Bounds(items=1, rating=2.25, center=2.75))
    plan = Plan.from_shares([Release("voices", shape=(ratings.n_items,))], Budget(1.0, 1e-6))
    session = Session(plan)
    voices = session.release("voices", users.sum(OneVoiceEach()))
    for at in np.argsort(-voices)[:5]:
        print(f"{voices[at]:8.1f}  {ratings.titles[at]}")
    print(session.finish())


if __name__ == "__main__":
    main()
