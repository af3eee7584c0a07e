"""The compiled sampler takes the decisions of the exact one, whatever the bits that neither has
seen yet.
"""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from discreet.privacy.noise import gaussian_spec as exact
from discreet.privacy.noise import sampler

ONE_KIND = np.zeros(1, np.uint8)


class Rejected(Exception):
    pass


def continued(ones):
    """Random bits that continue every number with zeros, or with ones; asking for a whole new
    word means rejection.
    """

    def bits(count):
        if count == 64:
            raise Rejected
        return (1 << count) - 1 if ones else 0

    return bits


def specification(sigma, words, limit=0.0):
    """What the exact draw says for both extreme continuations; None where they disagree,
    "again" for a rejection.
    """
    outcomes = set()
    for ones in (False, True):
        try:
            outcomes.add(exact.round_gaussian(sigma, words, continued(ones), limit))
        except Rejected:
            outcomes.add("again")
    return outcomes.pop() if len(outcomes) == 1 else None


def compiled(sigma, words, limit=0.0):
    multiples, limits, q = sampler.gaussian_tables([sigma], limit)
    out, pending = np.zeros(1, np.int64), np.zeros((1, sampler.PENDING_COLUMNS), np.uint64)
    arguments = (multiples, limits, q, np.array([sigma]), *sampler.TABLES)
    n, count = sampler.gaussian(np.array(words, np.uint64), out, 0, ONE_KIND, *arguments, pending)
    if count:
        index, known, *used = pending[0].tolist()
        assert index == 0
        assert used[:known] == list(words[:known])
        return ("pending", known)
    return int(out[0]) if n == 1 else "again"


def interesting_words(rng):
    """Cells next to every edge of every region, the extremes, and random ones."""
    for region in range(exact.REGIONS):
        edge = int(sampler.TABLES[0][region])
        for j in {0, 1, edge - 1, edge, edge + 1, edge + 2, (edge + 2**55) // 2, 2**55 - 1}:
            if 0 <= j < 2**55:
                yield j << 9 | int(rng.integers(2)) << 8 | region
    yield from rng.integers(0, 2**64, 1500, dtype=np.uint64).tolist()


@pytest.mark.parametrize("sigma", [0.31, 1000.7, 2.0**30, 2.0**36 * 1.37, 2.0**43.9])
def test_gaussian_decisions_are_the_exact_ones(sigma):
    rng = np.random.default_rng(7)
    decided = 0
    for word in interesting_words(rng):
        words = [word, *rng.integers(0, 2**64, 2, dtype=np.uint64).tolist()]
        fast = compiled(sigma, words)
        if isinstance(fast, tuple):
            continue
        exactly = specification(sigma, words)
        assert exactly == fast
        decided += 1
    assert decided > 2500


@pytest.mark.parametrize(("sigma", "limit"), [(40.5, 0.7), (2.0**33, 1.3), (2.0**33, 4.2)])
def test_decisions_within_a_limit_are_the_exact_ones(sigma, limit):
    rng = np.random.default_rng(8)
    seen = set()
    for word in interesting_words(rng):
        words = [word, *rng.integers(0, 2**64, 2, dtype=np.uint64).tolist()]
        fast = compiled(sigma, words, limit)
        if isinstance(fast, tuple):
            continue
        seen.add(fast == "again")
        assert specification(sigma, words, limit) == fast
    assert seen == {True, False}


def test_near_ties_in_wedges_and_tails_follow_the_specification():
    rng = np.random.default_rng(9)
    accept, edges, bells = sampler.TABLES
    left = 0
    for region in range(1, 250, 7):
        j = (int(accept[region]) + 2**55) // 2
        x = (j + 0.5) * 2.0**-55 * edges[region]
        share = (np.exp(-x * x / 2) - bells[region]) / (bells[region + 1] - bells[region])
        for nudge in (-(2.0**-30), -(2.0**-45), 0.0, 2.0**-45, 2.0**-30):
            words = [j << 9 | region, int((share + nudge) * 2**64), int(rng.integers(2**62))]
            fast = compiled(5.0, words)
            if isinstance(fast, tuple):
                left += 1
                assert fast == ("pending", 2)
            else:
                assert specification(5.0, words) == fast
    assert left >= 100


def test_a_rejected_tail_begins_again_and_an_open_one_goes_on():
    first = (2**55 - 1) << 9
    # −2 ln(1⁻) is about 0: rejected
    assert compiled(1000.0, [first, 2**63, 2**64 - 1]) == ("pending", 1)
    # too few leading bits to know −ln V
    assert compiled(1000.0, [first, 5, 2**60]) == ("pending", 3)
    assert compiled(1000.0, [first, 2**63, 2**60]) == specification(1000.0, [first, 2**63, 2**60])


@pytest.mark.parametrize("scale", [0.2, 77.7, 2.0**32])
@pytest.mark.parametrize("offset", [0.0, 3.5])
def test_exponential_decisions_are_the_exact_ones(scale, offset):
    rng = np.random.default_rng(10)
    structured = [2**k for k in range(64)] + [2**64 - 2**k for k in range(64)]
    words = np.array(rng.integers(0, 2**64, 800, dtype=np.uint64).tolist() + structured, np.uint64)
    pending = np.zeros((len(words), sampler.PENDING_COLUMNS), np.uint64)
    levels, slopes = np.array([offset * scale]), np.array([scale])
    out = np.zeros(len(words), np.int64)
    n, count = sampler.exponential(words, out, 0, ONE_KIND, levels, slopes, pending)
    assert n == len(words)
    assert count < 60
    held = set(pending[:count, 0].tolist())
    for index, word in enumerate(words.tolist()):
        both = {
            exact.round_exponential(Fraction(offset * scale), Fraction(scale), [word], continued(o))
            for o in (0, 1)
        }
        if index not in held:
            assert both == {int(out[index])}


def test_table_constants_to_seventy_digits():
    with mp.workdps(90):
        tail, area = mp.mpf(str(exact.TAIL)), mp.mpf(str(exact.AREA))
        beyond = mp.sqrt(mp.pi / 2) * mp.erfc(tail / mp.sqrt(2))
        assert abs((tail * mp.exp(-tail * tail / 2) + beyond) / area - 1) < mp.mpf(10) ** -70
        x = [mp.mpf(str(value)) for value in exact.edges()]
        for i in range(1, exact.REGIONS):
            strip = x[i] * (mp.exp(-(x[i + 1] ** 2) / 2) - mp.exp(-(x[i] ** 2) / 2))
            assert abs(strip / area - 1) < mp.mpf(10) ** -68


@pytest.mark.parametrize("alpha", [1e-3, 0.3, 1.0, 2.5, 8.0, 20.0])
def test_probability_of_hubers_tails_to_ninety_digits(alpha):
    with mp.workdps(150):
        a = mp.mpf(alpha)
        center = mp.sqrt(2 * mp.pi) * mp.erf(a / mp.sqrt(2))
        outside = 2 / a * mp.exp(-a * a / 2)
        exactly = outside / (center + outside)
        assert (
            abs(mp.mpf(exact.huber_tails(alpha)) / 2 ** (64 + exact.EXTRA_BITS) / exactly - 1)
            < mp.mpf(10) ** -90
        )


def test_the_error_budget_of_the_intervals():
    """The bound h + 260 of the docstring, on the largest multiples that occur."""
    for sigma in (1e-3, 1.0, 2.0**20 - 1e-6, 2.0**20, 2.0**20 + 1e-6, exact.LARGEST):
        multiples, _, q = sampler.gaussian_tables([sigma])
        assert 1 <= q <= 61
        largest = int(multiples.max())
        assert largest < 2**63 - 1000
        assert (largest + 2**55 + 1) / 2**55 + 1 < int(sampler.SLACK)
