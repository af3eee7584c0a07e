"""Two grades of noise against the exact laws. Secure draws have no seed: each test allows a
false alarm in 1e6.
"""

import copy
import math
import os
import pickle
from collections import Counter

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from discreet.errors import ConfigError, PrivacyError
from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace
from discreet.privacy.noise import sources as noise
from discreet.privacy.noise.sources import SecureNoise, SeededNoise, delta_of, grid_for

ALARM = 1e-6


def chi_square(draws, cdf):
    """p-value of integer draws against a real distribution rounded to the nearest integer."""
    low, high = int(draws.min()) - 1, int(draws.max()) + 1
    edges = np.arange(low, high + 2) - 0.5
    expected = np.diff(cdf(edges))
    expected[0] += cdf(edges[0])
    expected[-1] += 1 - cdf(edges[-1])
    observed = np.bincount(draws - low, minlength=high - low + 1)
    expected *= draws.size
    keep = expected > 20  # rare values are pooled
    observed = np.append(observed[keep], observed[~keep].sum())
    expected = np.append(expected[keep], expected[~keep].sum())
    keep = expected > 0
    return stats.chisquare(
        observed[keep], expected[keep] * observed[keep].sum() / expected[keep].sum()
    ).pvalue


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.7, 20.0])
def test_rounded_gaussian_has_the_exact_probabilities(sigma):
    assert chi_square(SecureNoise(1).gaussian(400_000, sigma), Gaussian(sigma).cdf) > ALARM


@pytest.mark.parametrize("scale", [0.3, 1.0, 9.0])
def test_rounded_laplace_has_the_exact_probabilities(scale):
    assert chi_square(SecureNoise(1).laplace(400_000, scale), Laplace(scale).cdf) > ALARM


@pytest.mark.parametrize("alpha", [0.2, 0.9, 2.5, 4.5])
@pytest.mark.parametrize("scale", [1.3, 8.0])
def test_rounded_huber_has_the_exact_probabilities(alpha, scale):
    assert chi_square(SecureNoise(1).huber(200_000, alpha, scale), Huber(alpha, scale).cdf) > ALARM


@pytest.mark.parametrize("sigma", [2.0**10, 2.0**30 * 1.1, 2.0**36])
def test_large_scales_follow_the_continuous_law(sigma):
    secure = SecureNoise(2)
    for draws, law in (
        (secure.gaussian(1_500_000, sigma), Gaussian(sigma)),
        (secure.laplace(300_000, sigma), Laplace(sigma)),
        (secure.huber(300_000, 1.1, sigma), Huber(1.1, sigma)),
    ):
        uniform = np.random.default_rng(0).random(draws.size) - 0.5  # undoes the rounding
        assert stats.kstest(draws + uniform, law.cdf).pvalue > ALARM
        assert draws.var() == pytest.approx(law.variance, rel=0.02)


def test_tails_have_their_weight():
    draws = np.abs(SecureNoise(2).gaussian(4_000_000, 2.0**30)) / 2.0**30
    for level in (3.0, 3.654, 4.0, 4.6):
        count = int((draws > level).sum())
        assert stats.binomtest(count, draws.size, 2 * stats.norm.sf(level)).pvalue > ALARM


@pytest.mark.parametrize("sigma", [2.0**12, 2.0**30, 2.0**41])
def test_low_bits_are_fair(sigma):
    """At σ = 2⁴¹ one draw in five hundred is finished by the specification."""
    draws = SecureNoise(2).gaussian(200_000, sigma)
    for modulus in (2, 3, 64):
        assert stats.chisquare(np.bincount(draws % modulus, minlength=modulus)).pvalue > ALARM
    assert stats.binomtest(int((draws > 0).sum()), int((draws != 0).sum())).pvalue > ALARM


def test_pending_draws_do_not_distort_the_law(monkeypatch):
    """With three digits of doubt in five, most draws go through the specification; the law
    stays.
    """
    from discreet.privacy.noise import gaussian_spec as exact
    from discreet.privacy.noise import sampler

    finished = Counter()
    original = exact.round_gaussian

    def counted(*arguments, **options):
        finished["draws"] += 1
        return original(*arguments, **options)

    monkeypatch.setattr(exact, "round_gaussian", counted)
    monkeypatch.setattr(sampler, "fraction_bits", lambda sigma: 11)
    draws = SecureNoise(1).gaussian(40_000, 3.0)
    assert finished["draws"] > 4_000
    assert chi_square(draws, Gaussian(3.0).cdf) > ALARM


def test_one_sigma_per_column_whatever_the_blocks():
    sigmas = np.array([1.0, 100.0, 1e4])
    # the second block begins inside a row
    draws = SecureNoise(2).gaussian((noise.BLOCK // 3 + 50_000, 3), sigmas)
    for rows in (draws[:50_000], draws[-50_000:]):
        assert rows.std(axis=0) == pytest.approx(np.sqrt(sigmas**2 + 1 / 12), rel=0.03)


def test_blocks_threads_and_objects_are_independent():
    parts = [SecureNoise(2).gaussian(2 * noise.BLOCK, 2.0**20) for _ in range(2)]
    blocks = np.concatenate(parts).reshape(4, -1)
    assert np.abs(np.corrcoef(blocks) - np.eye(4)).max() < 6 / math.sqrt(noise.BLOCK)
    lagged = np.corrcoef(blocks[0][:-1], blocks[0][1:])[0, 1]
    assert abs(lagged) < 6 / math.sqrt(noise.BLOCK)


def test_every_block_has_its_own_key(monkeypatch):
    keys = []
    real = os.urandom
    monkeypatch.setattr(noise.os, "urandom", lambda n: keys.append(real(n)) or keys[-1])
    SecureNoise(2).gaussian(3 * noise.BLOCK + 5, 1000.0)
    assert len(set(keys)) == len(keys) == 4
    assert {len(key) for key in keys} == {16}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_never_share_a_stream():
    secure = SecureNoise(1)
    secure.gaussian(10, 2.0**30)
    seen = [secure.gaussian(64, 2.0**30).tolist()]
    for _ in range(2):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, secure.gaussian(64, 2.0**30).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
        seen.append(np.frombuffer(os.read(read, 512), np.int64).tolist())
        os.close(read)
        os.close(write)
    for twin in (copy.deepcopy(secure), pickle.loads(pickle.dumps(secure)), secure):
        seen.append(twin.gaussian(64, 2.0**30).tolist())
    assert len({tuple(draws) for draws in seen}) == 6
    assert all(not set(a) & set(b) for i, a in enumerate(seen) for b in seen[:i])


def test_numpy_seed_has_no_influence():
    np.random.seed(1)  # noqa: NPY002
    first = SecureNoise().gaussian(8, 2.0**40)
    np.random.seed(1)  # noqa: NPY002
    assert not np.array_equal(first, SecureNoise().gaussian(8, 2.0**40))


def test_the_words_are_aes_128_in_counter_mode(monkeypatch):
    """Blocks 0, 1, 2, … under one key, in calls of any size; AES as in FIPS 197, appendix C.1."""
    key, block = bytes(range(16)), bytes.fromhex("00112233445566778899aabbccddeeff")
    aes = Cipher(algorithms.AES128(key), modes.ECB()).encryptor()
    assert aes.update(block).hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"
    monkeypatch.setattr(noise.os, "urandom", lambda n: key[:n])
    words = noise.fresh_words()
    stream = b"".join(words(count).tobytes() for count in (1, 5, 0, 2, 600))
    assert stream == aes.update(b"".join(number.to_bytes(16) for number in range(304)))


def test_every_draw_is_charged():
    secure = SecureNoise()
    secure.gaussian((3, 5), 10.0)
    secure.laplace(4, 2.0)
    secure.add(np.zeros((2, 2), np.int64), Huber(1.0), grid=2.0**-10)
    assert secure.draws == 23
    assert secure.delta == delta_of(23) > 0
    assert delta_of(200_000_000) < 1e-12


def test_add_returns_real_units():
    grid, weights = 2.0**-20, np.array([1.0, math.sqrt(2)])
    exact = np.tile(np.array([5, -7]) * 2**20, (600_000, 1))  # more than a block
    noisy = SecureNoise().add(exact, Gaussian(0.25), weights, grid)
    assert noisy.dtype == np.float64
    for part in (noisy[:60_000], noisy[-60_000:]):
        assert part.mean(axis=0) == pytest.approx([5, -7], abs=0.01)
        assert part.std(axis=0) == pytest.approx(0.25 / weights, rel=0.03)
        assert np.array_equal(part / grid, np.rint(part / grid))


def test_add_keeps_large_integers_exact():
    exact = np.full(1000, 2**60 + 1, np.int64)
    drawn = SecureNoise().add(exact, Laplace(4.0), grid=1.0)
    assert np.abs(drawn - 2.0**60).max() <= 1024  # float64 spacing there is 256


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint64, np.bool_, object])
def test_inexact_integers_are_refused_by_type_not_by_size(dtype):
    """A sum beyond 2⁵³ in float64 has lost somebody; whether it is, is nobody's business."""
    said = set()
    for value in (0, 0.5, 1, math.nan, 2**53, 2**60 + 2**9):
        with np.errstate(invalid="ignore"):
            values = np.full(3, value).astype(dtype)
        for mechanism in (Gaussian(4.0), Laplace(4.0), Huber(1.0, 4.0)):
            with pytest.raises(PrivacyError, match="int64, not to") as refused:
                SecureNoise().add(values.copy(), mechanism, grid=1.0)
            said.add(str(refused.value))
    assert len(said) == 1


def test_sums_that_wrap_around_are_still_integers_plus_noise():
    drawn = SecureNoise().add(np.full(4000, 2**63 - 1), Gaussian(2.0), grid=1.0)
    assert set(drawn.tolist()) == {2.0**63, -(2.0**63)}


def test_other_refusals():
    with pytest.raises(PrivacyError, match="power of two"):
        SecureNoise().add(np.zeros(3, np.int64), Gaussian())
    with pytest.raises(PrivacyError, match="power of two"):
        SecureNoise().add(np.zeros(3, np.int64), Gaussian(), grid=0.1)
    with pytest.raises(ConfigError, match="grid units"):
        SecureNoise().gaussian(3, 2.0**45)
    with pytest.raises(ConfigError, match="grid units"):
        SecureNoise().gaussian(3, 0.0)
    with pytest.raises(ConfigError, match="column"):
        SecureNoise().gaussian((4, 3), [1.0, 2.0])


def test_empty_and_scalar_shapes():
    assert SecureNoise().gaussian((0, 4), 5.0).shape == (0, 4)
    assert SecureNoise().gaussian((), 5.0).shape == ()


@pytest.mark.parametrize("mechanism", [Gaussian(2.0), Laplace(2.0), Huber(1.2, 2.0)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_seeded_noise_follows_the_law_and_the_seed(mechanism, dtype):
    def draw(seed, threads=1):
        source = SeededNoise(seed, threads)
        return np.stack(
            [source.add(np.zeros(noise.BLOCK + 1000, dtype), mechanism) for _ in range(2)]
        )

    first = draw(3)
    assert first.dtype == dtype
    assert np.array_equal(first, draw(3, threads=2))
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, draw(4))
    assert stats.kstest(first[0][-100_000:], mechanism.cdf).pvalue > ALARM


def test_seeded_noise_knows_weights_grids_and_seed_zero():
    weights = np.array([1.0, 4.0, 0.5])
    values = np.full((noise.BLOCK // 3 + 40_000, 3), 8, np.int64)
    noisy = SeededNoise(0).add(values, Gaussian(1.0), weights, grid=0.25)
    for rows in (noisy[:40_000], noisy[-40_000:]):
        assert rows.std(axis=0) == pytest.approx(1 / weights, rel=0.03)
        assert rows.mean(axis=0) == pytest.approx([2, 2, 2], abs=0.05)
    same, other = (SeededNoise(seed).add(np.zeros(4), Gaussian()) for seed in (0, None))
    assert np.array_equal(same, SeededNoise(0).add(np.zeros(4), Gaussian()))
    assert not np.array_equal(same, other)


@pytest.mark.parametrize("largest", [1e-6, 1.0, 5.0, 1e9])
@pytest.mark.parametrize("multiplier", [1e-3, 1.0, 300.0, 1e7])
def test_grid_is_a_power_of_four_and_fits(largest, multiplier):
    deviation = largest * multiplier
    grid = grid_for(largest, deviation)
    assert math.frexp(math.sqrt(grid))[0] == 0.5
    assert largest / grid <= 2.0**30
    assert deviation / grid <= 2.0**37
    assert largest / grid >= 2.0**28 or deviation / grid >= 2.0**34
