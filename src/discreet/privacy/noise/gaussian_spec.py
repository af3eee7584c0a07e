r"""Specification of the noise sampler: exact, slow draws with as many bits as a decision needs.

A draw is a function of infinitely many fair bits on real numbers; this file evaluates it with 1024
bits more than the 64 of a word and 110 decimal digits, and is what ``sampler`` must agree with
bit for bit. Three laws, all *rounded to the nearest integer*, because x + round(N) = round(x + N)
for an integer x: adding rounded noise to an integer statistic is post-processing of the ideal
mechanism, so it costs exactly what the ideal mechanism costs, for every ε and every composition.
(The discrete Gaussian, P(k) ∝ e^{−k²/2σ²}, is as easy to draw, but it is only *nearly*
Gaussian-private.)

Gaussian: Marsaglia & Tsang's ziggurat of 256 regions of equal area ``AREA`` under f(x) = e^{−x²/2},
x ≥ 0. With x₁ = ``TAIL`` and x₀ = AREA/f(x₁), region i ≥ 1 is [0, x_i] × [f(x_i), f(x_{i+1})],
where x_i (f(x_{i+1}) − f(x_i)) = AREA and x₂₅₆ = 0; region 0 is [0, x₁] × [0, f(x₁)] and the tail
beyond x₁.

1. word w: region i = w mod 256, sign = bit 8, U = the other 55 bits and all that follow; x = U·x_i
2. x < x_{i+1}: take x
3. i ≥ 1: take x if f(x_i) + V (f(x_{i+1}) − f(x_i)) < f(x), V from the next word; otherwise back to
   1
4. i = 0: x = x₁ − ln(V)/x₁, again and again until −2 ln(V') > (x − x₁)²      (V, V' from two words)

A point that is uniform in a set of regions of equal area is uniform under f, so x has density
√(2/π)·f, exactly.

Laplace: sign = bit 0 of the word, U = the rest, |x| = −ln U. Huber: with probability
``huber_tails`` ±(α + E/α) with E = −ln U, otherwise a Gaussian kept to |x| ≤ α.

*Theorem.* For scales from 1/8 to 2⁴⁴ grid units, the probability of every integer within R scales
of zero is within a factor 1 ± 2⁻¹⁸⁰ of its ideal value, with R = 30 for Gaussian and R = 500 for
Laplace noise (Huber: 500 tail lengths). All other integers together have probability below 2⁻⁶⁰⁰.

*Proof.* Let real and ideal draw use the same infinite bits. A uniform number with 1079 known bits,
of at least e⁻⁵⁰⁰ > 2⁻⁷²², is known to a relative 2⁻³⁵⁵, constants to 2⁻²⁵⁵, and every computed
quantity to a relative 2⁻²⁵⁰. The draws differ only if a quantity is that close to a decision
border.
(a) *Rounding.* σx is known to e = 2⁴⁴ · 500 · 2⁻²⁵⁰ < 2⁻¹⁹⁶. The chance to be within e of the
borders of k, relative to the probability of k, is at most 4e(1 + s), with s the steepest slope of
the log-density: s ≤ (30σ + 2)/σ² ≤ 368, or s ≤ 8·max(α, 1) for exponential tails. In all less than
2⁻¹⁸⁴.
(b) *Wedges.* At x < x₁ the accepted density is proportional to f(x) ≥ f(x₁) > 2⁻¹⁰, and exactly one
wedge is there; its comparison is wrong on a strip of height 2⁻²⁴⁹: relative to f(x), below 2⁻²³⁰.
(c) *Tail.* The point at distance d ≤ 27 is accepted when V' < e^(−d²/2); the acceptance probability
is right to a relative 2⁻²³⁹.
(d) *Huber.* The tail probability is a sum of positive terms, right to a relative 2⁻³⁵⁵.
(e) A wrong rejection restarts the draw, which changes all probabilities by one factor, below 1 +
2⁻²²⁸. The sum is below 2⁻¹⁸⁰. Beyond R scales the ideal mass is at most e⁻⁴⁵⁰ or e⁻⁵⁰⁰. ∎
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

#: Where the tail begins and the area of a region: the unique pair for which the 256 regions close
#: at x = 0.
TAIL = Decimal("3.654152885361008771645429720399515762974854599746273885968676283438536397747964")
AREA = Decimal("0.004928673233974655347361775402336028069135384702856501808589365467144655648795")
REGIONS = 256
#: Random bits that one decision takes beyond its word, before it is made with what is known.
EXTRA_BITS = 1024
#: The probability of every outcome within 30 (Gaussian) or 500 (Laplace, Huber) scales is within a
#: factor 1 ± RATIO of the ideal one, for scales from SMALLEST to LARGEST grid units; all others
#: have less than 2⁻⁶⁰⁰. Proof: above.
RATIO = 2.0**-180
SMALLEST = 2.0**-3
LARGEST = 2.0**44

Bits = Callable[[int], int]
_CONTEXT = Context(prec=110)
_FINE = 232  # fractional bits of tabulated edges


def edges() -> tuple[Decimal, ...]:
    """Return x₀ … x₂₅₆ to 75 digits, the precision of TAIL and AREA."""
    return _tables()[0]


def scale_edge(region: int, sigma: float, bits: int) -> int:
    """Return ⌊σ · x_region · 2^bits⌋, exactly."""
    numerator, denominator = sigma.as_integer_ratio()
    return (numerator * _tables()[1][region] << bits) // (denominator << _FINE)


def round_gaussian(
    sigma: float, words: Iterable[int], bits: Bits = secrets.randbits, limit: float = 0.0
) -> int:
    """Return round(σ·N) by the four steps, from ``words`` and then ``bits``, within |N| ≤ limit."""
    with localcontext(_CONTEXT):
        while True:
            source = _endless(words, bits)
            word = next(source)
            x = _attempt(word, source, bits)
            if x is not None and (not limit or x <= Decimal(limit)):
                return _signed(Decimal(sigma) * x, word >> 8)
            words = ()  # the given words belong to the first attempt only


def _attempt(word: int, source: Iterator[int], bits: Bits) -> Decimal | None:
    """Run steps 1 to 4 once; None restarts at step 1."""
    x_of = edges()
    i = word & 255
    x = _unit(word >> 9, 55, bits) * x_of[i]
    if x < x_of[i + 1]:
        return x
    if i == 0:
        return _tail(source, bits)
    low = _bell(x_of[i])
    high = _bell(x_of[i + 1])
    return x if low + _unit(next(source), 64, bits) * (high - low) < _bell(x) else None


def round_exponential(
    offset: Fraction, scale: Fraction, words: Iterable[int] = (), bits: Bits = secrets.randbits
) -> int:
    """Round ±(offset + scale·E), E exponential: Laplace noise, or a tail of Huber noise."""
    with localcontext(_CONTEXT):
        word = next(_endless(words, bits))
        value = _decimal(offset) - _decimal(scale) * _unit(word >> 1, 63, bits).ln()
        return _signed(value, word)


@lru_cache(maxsize=64)
def huber_tails(alpha: float) -> int:
    r"""Return ``⌊2¹⁰⁸⁸ · p⌋``, p = 1 − ``mechanisms.Huber.core`` being the mass of both tails.

    ``√(2π)(2Φ(α) − 1) = 2 e^{−α²/2} Σ_k α^{2k+1}/(2k+1)!!``, all terms positive.
    """
    with localcontext(_CONTEXT):
        a = Decimal(alpha)
        term = center = a
        k = 1
        while term > center * Decimal(10) ** -109:
            term = term * a * a / (2 * k + 1)
            center, k = center + term, k + 1
        # both masses share the factor 2 e^{−α²/2}
        return int(1 / (a * center + 1) * 2 ** (64 + EXTRA_BITS))


def in_tails(alpha: float, word: int, bits: Bits = secrets.randbits) -> bool:
    """Decide whether a uniform number that begins with this word is in a tail of Huber noise."""
    return (word << EXTRA_BITS | bits(EXTRA_BITS)) < huber_tails(alpha)


def _tail(source: Iterator[int], bits: Bits) -> Decimal:
    while True:
        beyond = -_unit(next(source), 64, bits).ln() / TAIL
        if -2 * _unit(next(source), 64, bits).ln() > beyond * beyond:
            return TAIL + beyond


def _signed(value: Decimal, sign: int) -> int:
    size = int(value + Decimal("0.5"))  # a half-integer has probability zero, so ties do not matter
    return -size if sign & 1 else size


def _unit(leading: int, length: int, bits: Bits) -> Decimal:
    """Return the number in (0, 1) with binary digits ``leading`` and fresh ones, mid-cell."""
    cell: int = 2 ** (length + EXTRA_BITS + 1)
    return Decimal(2 * (leading << EXTRA_BITS | bits(EXTRA_BITS)) + 1) / cell


def _endless(words: Iterable[int], bits: Bits) -> Iterator[int]:
    yield from (int(word) for word in words)
    while True:
        yield bits(64)


def _bell(x: Decimal) -> Decimal:
    return (-x * x / 2).exp()


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


@lru_cache(maxsize=1)
def _tables() -> tuple[tuple[Decimal, ...], tuple[int, ...]]:
    with localcontext(_CONTEXT):
        x = [AREA / _bell(TAIL), TAIL]
        while len(x) < REGIONS:
            x.append((-2 * (_bell(x[-1]) + AREA / x[-1]).ln()).sqrt())
        x.append(Decimal(0))
        return tuple(x), tuple(int(value * 2**_FINE) for value in x)
