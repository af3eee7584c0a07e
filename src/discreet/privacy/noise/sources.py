r"""Where noise comes from: two grades.

``SecureNoise`` (the default of every private model) works on integers. A statistic on a grid is a
whole number of grid units per entry, exact in any order of summation; to it is added an ideal real
noise *rounded to the nearest integer*. For an integer x, x + round(N) = round(x + N): the result is
a function of x + N, the ideal mechanism, and costs what that costs. No float noise is added to a
float, so there is nothing to learn from the low bits.

What remains is the distance between the numbers drawn here and ideal ones. It has two parts, proved
in docs/noise.md and `gaussian_spec`:

1. Uniform bits. Every block of at most 2²⁰ draws has its own AES-128 key from the operating system
   and reads AES in counter mode, at most 2²⁰ cipher blocks. That AES cannot be distinguished from a
   random permutation is assumed, here as everywhere; a permutation never repeats a block where
   truly random bits might, an advantage of at most (2²⁰)²/2¹²⁹ per key, below ``DRAW_DISTANCE`` =
   2⁻¹⁰⁰ per draw. ``delta_of(n)`` charges it to δ: 2·10⁸ draws cost 1.6·10⁻²².
2. From bits to noise. ``gaussian_spec`` draws from the rounded Gaussian, Laplace or Huber law by a
   procedure on real numbers; ``sampler`` takes the same decisions by interval arithmetic and hands
   over whatever 64 bits do not decide. The probability of every outcome is within a factor 1 ±
   2⁻¹⁸⁰ of the ideal one, so n draws add n·2⁻¹⁷⁹ to ε: less than the upward rounding of every ε
   that is stated.

No key, seed or generator outlives a call, so a fork, a copy or a pickle of this object cannot
repeat a stream, and nothing about the noise can be stored. Timing is not hidden: this is not a
defense against someone on the same machine.

``SeededNoise`` is float noise from a seed, for research: anyone who knows the seed can subtract it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.errors import ConfigError, PrivacyError
from discreet.kernels.threads import available_cores
from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace, Mechanism

#: Total-variation distance of one secure draw from the ideal rounded noise.
DRAW_DISTANCE = 2.0**-100
#: The sampling of one Poisson batch is charged as so many draws, whatever its size: enough for 2³³
#: users, docs/noise.md.
BATCH_DRAWS = 1 << 22
BLOCK = 1 << 20
_IN_CACHE = 1 << 14  # numbers that are turned into real units at a time
_WORDS = 1 << 15
#: Standard deviations are rounded up by this factor, so that no division below falls short of what
#: was priced.
_UP = 1 + 2.0**-50


class NoiseSource(Protocol):
    """What a Session needs of noise."""

    grade: ClassVar[str]

    @property
    def delta(self) -> float:
        """What the draws made so far add to δ."""

    def add(
        self,
        values: NDArray[Any],
        mechanism: Mechanism,
        weights: ArrayLike | None = None,
        grid: float | None = None,
    ) -> NDArray[Any]:
        """Return ``values`` (in units of ``grid``, if one is given) plus noise of ``mechanism``
        divided by ``weights``.
        """


def delta_of(draws: int) -> float:
    """Return what that many secure draws add to δ."""
    return draws * DRAW_DISTANCE


class SecureNoise:
    """Rounded noise on integers from the operating system's entropy.

    Parameters
    ----------
    threads : int, optional
        How many threads draw; by default as many as the process may use.
    """

    grade: ClassVar[str] = "secure"

    def __init__(self, threads: int | None = None):
        self.threads = threads or available_cores()
        self.draws = 0

    @property
    def delta(self) -> float:
        return delta_of(self.draws)

    def gaussian(self, shape: int | tuple[int, ...], sigma: ArrayLike) -> NDArray[np.int64]:
        """Draw integers round(σ·N); ``sigma`` is a number, or one per column."""
        return self._draw(shape, Gaussian(), sigma)

    def laplace(self, shape: int | tuple[int, ...], scale: ArrayLike) -> NDArray[np.int64]:
        """Draw integers round(scale·L) with L of density e^{−|t|}/2."""
        return self._draw(shape, Laplace(), scale)

    def huber(
        self, shape: int | tuple[int, ...], alpha: float, scale: ArrayLike
    ) -> NDArray[np.int64]:
        """Draw integers round(scale·H) with H the paper's noise of unit scale."""
        return self._draw(shape, Huber(alpha), scale)

    def add(
        self,
        values: NDArray[Any],
        mechanism: Mechanism,
        weights: ArrayLike | None = None,
        grid: float | None = None,
    ) -> NDArray[Any]:
        """Add rounded noise to whole numbers of grid units and return real units, as float64.

        Privacy: ``values`` are int64, whatever their size; any other type is refused, because the
        proof begins with exact integers. The array is overwritten.
        """
        if grid is None or math.frexp(grid)[0] != 0.5:
            raise PrivacyError("secure noise needs a grid that is a power of two")
        if values.dtype != np.int64:
            raise PrivacyError(
                f"secure noise is added to exact sums, which are int64, not to {values.dtype}"
            )
        scale = (
            mechanism.scale
            / grid
            / np.atleast_1d(np.asarray(1.0 if weights is None else weights, float))
        )
        out = np.ascontiguousarray(values)
        real = out.view(np.float64)  # the same memory, for what is released may be large
        units, scaled = out.reshape(-1), real.reshape(-1)

        def to_real(begin: int) -> None:
            for at in range(begin, min(begin + BLOCK, out.size), _IN_CACHE):
                part = slice(at, at + _IN_CACHE)
                scaled[part] = units[part] * grid

        self._fill(out, mechanism, scale * _UP, to_real)
        return real

    def _draw(
        self, shape: int | tuple[int, ...], mechanism: Mechanism, scale: ArrayLike
    ) -> NDArray[np.int64]:
        out = np.zeros(shape, np.int64)
        self._fill(out, mechanism, np.atleast_1d(np.asarray(scale, float)))
        return out

    def _fill(
        self,
        out: NDArray[np.int64],
        mechanism: Mechanism,
        scale: NDArray[np.float64],
        then: Callable[[int], None] = lambda begin: None,
    ) -> None:
        """Add noise block by block; `then` gets the start of a block while it is still in
        the cache.
        """
        from discreet.privacy.noise import gaussian_spec as exact

        distinct, inverse = np.unique(scale, return_inverse=True)
        kinds = inverse.astype(np.uint8)
        width = kinds.size
        if (
            scale.ndim != 1
            or len(distinct) > 256
            or (width > 1 and (out.ndim == 0 or out.shape[-1] != width))
        ):
            raise ConfigError(
                f"one scale, or one per column with few distinct ones: got {scale.shape} for"
                f" {out.shape}"
            )
        if not exact.SMALLEST <= distinct[0] <= distinct[-1] <= exact.LARGEST:
            allowed = f"between {exact.SMALLEST:.3g} and {exact.LARGEST:.3g}"
            raise ConfigError(
                f"noise of {distinct[0]:.3g} to {distinct[-1]:.3g} grid units: it must lie"
                f" {allowed}"
            )
        draw = _block_sampler(mechanism, distinct)
        flat = out.reshape(-1)
        self.draws += flat.size

        def job(begin: int) -> None:
            draw(flat[begin : begin + BLOCK], _cycle_columns(kinds, begin, width))
            then(begin)

        _in_threads(job, range(0, flat.size, BLOCK), self.threads)


class SeededNoise:
    """Float noise from a seed (SFC64): fast and reproducible, for research only.

    The numbers depend on the seed and on the order of calls, not on the number of threads.
    """

    grade: ClassVar[str] = "seeded"
    delta: float = 0.0

    def __init__(self, seed: int | None = None, threads: int | None = None):
        self.threads = threads or available_cores()
        self._entropy = np.random.SeedSequence(seed).entropy
        self._calls = 0

    def add(
        self,
        values: NDArray[Any],
        mechanism: Mechanism,
        weights: ArrayLike | None = None,
        grid: float | None = None,
    ) -> NDArray[Any]:
        """Add float noise and return real units; a floating array is overwritten."""
        floating = values if values.dtype.kind == "f" else values.astype(np.float64)
        out = np.ascontiguousarray(floating)
        if grid is not None:
            out *= grid
        flat = out.reshape(-1)
        inverse = (
            None
            if weights is None
            else (1.0 / np.asarray(weights, float)).astype(out.dtype).reshape(-1)
        )
        call, self._calls = self._calls, self._calls + 1

        def job(begin: int) -> None:
            seed = np.random.SeedSequence(self._entropy, spawn_key=(call, begin))
            block = flat[begin : begin + BLOCK]
            noise = _float_noise(
                mechanism, block.size, np.random.Generator(np.random.SFC64(seed)), block.dtype
            )
            if inverse is not None:
                noise *= _cycle_columns(inverse, begin, block.size)
            block += noise

        _in_threads(job, range(0, flat.size, BLOCK), self.threads)
        return out


def grid_for(largest: float, deviation: float) -> float:
    """Return the grid of a statistic, from public values only.

    It is a power of four, so that its root is a power of two.

    Parameters
    ----------
    largest : float
        The most that one user contributes to one entry.
    deviation : float
        Standard deviation of the noise.

    Returns
    -------
    float
        Fine enough for 28 bits below ``largest``, unless the noise is so large that 36 bits below
        it are enough. So a contribution has at most 2³⁰ units: int64 sums are exact for 2³³ users
        (``integer_sums``).
    """
    fine = 4.0 ** math.floor(math.log(largest * 2.0**-28, 4))
    enough = 4.0 ** math.floor(math.log(deviation * 2.0**-34, 4))
    return max(fine, enough)


def _block_sampler(mechanism: Mechanism, scales: NDArray[np.float64]) -> Callable[[Any, Any], None]:
    """Return a function (block, kinds) that adds noise to a block."""
    from discreet.privacy.noise import gaussian_spec as exact
    from discreet.privacy.noise import sampler

    def gaussian(limit: float = 0.0) -> Callable[..., None]:
        multiples, limits, q = sampler.gaussian_tables(scales, limit)
        arguments = (multiples, limits, q, scales, *sampler.TABLES)
        return lambda block, kinds: _run(
            block,
            kinds,
            sampler.gaussian,
            arguments,
            lambda kind, words: exact.round_gaussian(float(scales[kind]), words, limit=limit),
        )

    def exponential(offset: Fraction, slope: Fraction) -> Callable[..., None]:
        pairs = [(offset * Fraction(scale), slope * Fraction(scale)) for scale in scales.tolist()]
        arguments = tuple(np.array([float(pair[side]) for pair in pairs]) for side in (0, 1))
        return lambda block, kinds: _run(
            block,
            kinds,
            sampler.exponential,
            arguments,
            lambda kind, words: exact.round_exponential(*pairs[kind], words),
        )

    if isinstance(mechanism, Gaussian):
        return gaussian()
    if isinstance(mechanism, Laplace):
        return exponential(Fraction(0), Fraction(1))
    assert isinstance(mechanism, Huber)
    alpha = mechanism.alpha
    center = gaussian(alpha)
    tail = exponential(Fraction(alpha), 1 / Fraction(alpha))
    threshold = exact.huber_tails(alpha) >> exact.EXTRA_BITS

    def huber(block: NDArray[np.int64], kinds: NDArray[np.uint8]) -> None:
        words = fresh_words()(block.size)
        outside = words < threshold
        for index in np.flatnonzero(words == threshold):
            outside[index] = exact.in_tails(alpha, int(words[index]))
        each = _cycle_columns(kinds, 0, block.size)
        for part, sampled in ((outside, tail), (~outside, center)):
            chosen = block[part]
            if chosen.size:
                sampled(chosen, each[part])
                block[part] = chosen

    return huber


def _run(
    block: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    kernel: Callable[..., Any],
    arguments: tuple[Any, ...],
    finish: Callable[[int, list[int]], int],
) -> None:
    """Drive a kernel over a block with fresh words; what it leaves pending is finished by the
    specification.
    """
    from discreet.privacy.noise import sampler

    words = fresh_words()
    done = 0
    pending = np.empty((256, sampler.PENDING_COLUMNS), np.uint64)
    while done < block.size:
        buffer = words(min(_WORDS, block.size - done + 64))
        done, count = kernel(buffer, block, done, kinds, *arguments, pending)
        for index, known, *used in pending[:count].tolist():
            block[index] += finish(int(kinds[index % len(kinds)]), used[:known])


def fresh_words() -> Callable[[int], NDArray[np.uint64]]:
    """Return a stream of 64-bit words: AES-128 in counter mode, with a fresh key of the system."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = algorithms.AES128(os.urandom(16))
    encryptor = Cipher(key, modes.CTR(bytes(16))).encryptor()  # what encrypts zeros is the stream

    def words(count: int) -> NDArray[np.uint64]:
        out = np.empty(count, np.uint64)
        encryptor.update_into(bytes(out.nbytes), out.view(np.uint8).data)
        return out

    return words


def _float_noise(
    mechanism: Mechanism, size: int, rng: np.random.Generator, dtype: Any
) -> NDArray[Any]:
    if isinstance(mechanism, Gaussian) and dtype in (np.float32, np.float64):
        noise = rng.standard_normal(size, dtype=dtype)
        noise *= mechanism.scale
        return noise
    return mechanism.sample(size, rng).astype(dtype)


def _cycle_columns(columns: NDArray[Any], begin: int, size: int) -> NDArray[Any]:
    """Return the part for entries from ``begin`` on, if ``columns`` repeats along the rows."""
    start = begin % columns.size
    return np.tile(columns, -(-(start + size) // columns.size))[start : start + size]


def _in_threads(job: Callable[[int], Any], begins: Iterable[int], threads: int) -> list[Any]:
    begins = list(begins)
    if threads < 2 or len(begins) < 2:
        return [job(begin) for begin in begins]
    with ThreadPoolExecutor(min(threads, len(begins))) as pool:
        return list(pool.map(job, begins))
