"""Cinema, the embedded data set: 800 invented films and about 20,000 simulated users.

    (1)  taste of user i for film j      a_ij = ⟨g_i, G_j⟩ + ⟨p_i, f_j⟩ + e_i·year_j
         G_j marks the film's genres, g_i is a mixture of a few kinds of film-goers plus individual
         deviations, f_j and p_i are the style of a film and the user's preference for it, and
         e_i is the preference for new films over old;
    (2)  watched films: n_i without replacement, with weights exp(popularity_j + 1.75·a_ij);
    (3)  ratings: 2½ + b_i + b_j + 0.75·a_ij + noise, rounded to half stars from 0.5 to 5.

A user who rates space films highly should be recommended more of them, which a reader can check.
The same seed gives the same ratings on every machine (a test holds the checksums): all numbers are
on a power-of-two grid, where sums are exact, and random bits come from a generator with a stable
stream. Only the tables of logarithms and quantiles are computed in floating point, and they are
rounded to the grid.
"""

from __future__ import annotations

import functools
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError

N_USERS = 20_000
_WORDS: dict[str, Any] = tomllib.loads(
    resources.files("discreet.data").joinpath("cinema.toml").read_text("utf-8")
)
GENRES = tuple(_WORDS["genres"])
YEARS = (1934, 2020)
_STYLES = 6  # dimensions of taste that the genres do not explain
_FIRST_DAY = 18_628  # ratings are from 2021 to 2024, in days since 1970
_LAST_DAY = 20_088
_FINE = 4096  # grid of scores, per unit
_COARSE = 128  # grid of factors, per unit
_USERS_AT_A_TIME = 256  # whose scores for all films stay in the cache


@dataclass(frozen=True)
class Film:
    """One invented film.

    Attributes
    ----------
    id : str
        A readable key, such as ``"the-copper-lighthouse"``.
    title : str
    year : int
    genres : tuple of str
        One to three, the most fitting first.
    """

    id: str
    title: str
    year: int
    genres: tuple[str, ...]

    @property
    def label(self) -> str:
        """Display name: ``The Binary Colony (1981) · Sci-Fi, Adventure``."""
        return f"{self.title} ({self.year}) · {', '.join(self.genres)}"


@functools.cache
def films() -> tuple[Film, ...]:
    """Return the 800 films in the order of the item ids; they are the same for every seed."""
    bits = _Bits(key=1)
    first_genres = [name for name, own in _WORDS["genres"].items() for _ in range(own["films"])]
    decks: dict[tuple[str, str], _Deck] = {}
    made: list[Film] = []
    taken: set[str] = set()
    for genre in first_genres:
        title, key = _new_title(genre, decks, bits, taken)
        made.append(Film(key, title, _year(genre, bits), _genres(genre, bits)))
    return tuple(made[i] for i in bits.shuffle(len(made)))


@functools.cache
def genre_matrix() -> NDArray[np.float32]:
    """Return genres, (800, 16): 1 for a film's first genre, ¾ and ½ for the next, else 0."""
    matrix = np.zeros((len(films()), len(GENRES)), np.float32)
    for row, film in enumerate(films()):
        for weight, genre in zip((1.0, 0.75, 0.5), film.genres, strict=False):
            matrix[row, GENRES.index(genre)] = weight
    return matrix


def make_cinema(seed: int = 0, scale: float = 1.0) -> Ratings:
    """Generate the ratings, with titles and timestamps: about 1.2 million in about two seconds.

    Parameters
    ----------
    seed : int
        Another seed gives other users; the films stay the same.
    scale : float
        Fraction of the 20,000 users.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed must be an integer ≥ 0, not {seed!r}")
    if not 0 < scale <= 1:
        raise ConfigError(f"scale is {scale:g}, but must be above 0 and at most 1")
    n = max(int(N_USERS * scale), 1)
    bits = _Bits(key=1000 + int(seed))
    count, indices, taste = _choose_films(_user_factors(n, bits), bits)
    indptr = np.concatenate([[0], np.cumsum(count)])
    values = _stars(taste, indptr, indices, bits)
    item_ids = np.array([film.id for film in films()], dtype=object)
    titles = np.array([film.label for film in films()], dtype=object)
    return Ratings.from_indices(
        indptr,
        indices,
        values,
        np.arange(1, n + 1),
        item_ids,
        _timestamps(indptr, bits),
        titles,
        catalog=True,
    )


def example_history(*genres: str, n: int = 6) -> dict[str, float]:
    """Return the short history of a user who likes these genres: popular films, rated highly.

    Parameters
    ----------
    genres : str
        Any of :data:`GENRES`; Sci-Fi and Adventure by default.
    n : int
        Number of films; one more popular film, of none of these genres, is rated low.
    """
    liked = genres or ("Sci-Fi", "Adventure")
    unknown = [genre for genre in liked if genre not in GENRES]
    if unknown:
        raise ConfigError(f"unknown genre {unknown[0]!r}: choose among {', '.join(GENRES)}")
    popularity, _ = _film_qualities()
    known_first = [films()[j] for j in np.argsort(-popularity, kind="stable")]
    fitting = [film for film in known_first if film.genres[0] in liked]
    # the sort is stable, so popular films stay first
    fans = sorted(fitting, key=lambda film: -len(set(film.genres) & set(liked)))[:n]
    other = next(film for film in known_first if not set(film.genres) & set(liked))
    return {film.id: 5.0 - 0.5 * (place % 2) for place, film in enumerate(fans)} | {other.id: 1.5}


# -------------------------------------------------------------------- users and films


def _user_factors(n: int, bits: _Bits) -> NDArray[np.float32]:
    """Draw (n, 16 + styles + 1): tastes in genres, tastes in styles, preference for new films."""
    kinds = np.array(
        [[kind.get(genre, 0.0) for genre in GENRES] for kind in _WORDS["kinds"]], np.float32
    )
    first, second = bits.integers(n, len(kinds)), bits.integers(n, len(kinds))
    # between ½ and 15/16 of the first kind
    share = np.float32(1 / 16) * (8 + bits.integers(n, 8))[:, None].astype(np.float32)
    whims = bits.normals((n, len(GENRES)), 0.35)
    genre = _on_grid(share * kinds[first] + (1 - share) * kinds[second]) + whims
    return np.concatenate(
        [genre, bits.normals((n, _STYLES), 0.3), bits.normals((n, 1), 0.25)], axis=1
    )


@functools.cache
def _item_factors() -> NDArray[np.float32]:
    """Return (800, 16 + styles + 1): genres, styles, newness from -1½ to 1½."""
    years = np.array([film.year for film in films()], np.float64)
    newness = _on_grid((years - 1990) / 20)[:, None].clip(-1.5, 1.5)
    return np.concatenate(
        [genre_matrix(), _Bits(key=2).normals((len(films()), _STYLES), 1.0), newness], axis=1
    )


@functools.cache
def _film_qualities() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return log popularity and quality, in 1/4096: good films are seen more, with exceptions."""
    bits = _Bits(key=3)
    quality = _fine(bits.normals(len(films()), 0.4))
    newness = _fine(_item_factors()[:, -1])
    popularity = _fine(bits.normals(len(films()), 1.4)) + quality + newness // 4
    return popularity.astype(np.int32), quality


def _choose_films(
    users: NDArray[np.float32], bits: _Bits
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Do steps (1) and (2): each user watches the n_i films with the largest score (Gumbel trick).

    Return n_i, the films of each user in ascending order, and the user's taste for them.
    """
    every_taste = users @ _item_factors().T  # exact: see the module's docstring
    n, m = every_taste.shape
    quantile = (np.arange(1 << 16) + 0.5) / (1 << 16)
    gumbel = _round_to_int(-np.log(-np.log(quantile)) * _FINE)
    # log-normal: at least 15 films, median about 40, mean about 60
    activity = _round_to_int(np.minimum(15 + 27 * np.exp(0.95 * ndtri(quantile)), 450))
    count = activity[bits.halfwords(n)].astype(np.int64)
    popularity, _ = _film_qualities()
    drawn = bits.halfwords(n * m)
    begin = np.concatenate([[0], np.cumsum(count)])
    indices = np.empty(begin[-1], np.int32)
    tastes = np.empty(begin[-1], np.float32)

    def choose(start: int) -> None:
        stop = min(start + _USERS_AT_A_TIME, n)
        taste = every_taste[start:stop]
        score = _fine(taste * np.float32(1.75)) + popularity
        score += gumbel.take(drawn[start * m : stop * m]).reshape(stop - start, m)
        # one integer per pair with the film in its low bits: no ties, so one order everywhere
        ranked = np.sort(np.arange(m, dtype=np.int32) - score * np.int32(1024), axis=1) & 1023
        kept = np.arange(m) < count[start:stop, None]
        own = np.arange(stop - start, dtype=np.int32)[:, None] * np.int32(m)
        watched = np.sort((ranked + own)[kept])
        indices[begin[start] : begin[stop]] = watched % m
        tastes[begin[start] : begin[stop]] = taste.ravel()[watched]

    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        list(pool.map(choose, range(0, n, _USERS_AT_A_TIME)))
    return count, indices, tastes


def _stars(
    taste: NDArray[np.float32], indptr: NDArray[np.int64], indices: NDArray[np.int32], bits: _Bits
) -> NDArray[np.float32]:
    """Do step (3), in integers of 1/4096 star."""
    n = len(indptr) - 1
    _, quality = _film_qualities()
    mood = _fine(bits.normals(n, 0.35))
    score = np.repeat(mood, np.diff(indptr)) + quality[indices] + _fine(taste * np.float32(0.75))
    score += _fine(bits.normals(len(indices), 0.65)) + round(2.5 * _FINE)
    return np.clip((score + _FINE // 4) // (_FINE // 2), 1, 10).astype(np.float32) / np.float32(2)


def _timestamps(indptr: NDArray[np.int64], bits: _Bits) -> NDArray[np.int64]:
    """Draw seconds since 1970: every user joins on a random day and rates for up to a year."""
    n = len(indptr) - 1
    counts = np.diff(indptr)
    joined = _FIRST_DAY + bits.integers(n, _LAST_DAY - _FIRST_DAY - 30)
    stays = 1 + bits.integers(n, 365)
    day = np.repeat(joined, counts) + bits.integers(int(indptr[-1]), 1 << 16) * np.repeat(
        stays, counts
    ) // (1 << 16)
    return np.minimum(day, _LAST_DAY) * 86_400 + bits.integers(len(day), 86_400)


def _year(genre: str, bits: _Bits) -> int:
    """Draw a year: most films are recent, and westerns, war films and musicals are older."""
    u = (bits.one(1 << 16) + 0.5) / (1 << 16)
    age = u**1.6 if genre not in ("Western", "War", "Musical") else u**0.9
    return int(YEARS[1] - round((YEARS[1] - YEARS[0]) * age))


def _genres(first: str, bits: _Bits) -> tuple[str, ...]:
    companions = _WORDS["genres"][first]["companions"]
    wanted = (0, 1, 1, 1, 1, 2, 2)[bits.one(7)]
    rest: list[str] = []
    while len(rest) < wanted:
        genre = companions[(0, 0, 0, 0, 1, 1, 1, 2, 2, 3)[bits.one(10)]]
        if genre not in rest:
            rest.append(genre)
    return (first, *rest)


# -------------------------------------------------------------------- titles


def _new_title(
    genre: str, decks: dict[tuple[str, str], _Deck], bits: _Bits, taken: set[str]
) -> tuple[str, str]:
    """Make a title that no other film has, and its key."""
    own = _WORDS["genres"][genre]
    patterns = (*own["patterns"], *own["patterns"], *_WORDS["patterns"])
    while True:
        pattern = decks.setdefault((genre, "patterns"), _Deck(patterns, bits)).draw()
        drawn = {}
        for slot in re.findall(r"{(\w+)}", pattern):
            kind = {"person2": "person", "family": "surname"}.get(slot, slot)
            scope, text = (genre, own[kind]) if kind in own else ("", _WORDS["words"][kind])
            deck = decks.setdefault((scope, kind), _Deck(tuple(text.split()), bits))
            word = deck.draw().replace("_", " ")
            plural = "es" if word[-1] in "sxz" else "s"
            drawn[slot] = word + plural if slot == "family" else word
        title = re.sub(r"\b([Aa]) (?=[AEIOU])", r"\1n ", pattern.format(**drawn))
        key = re.sub(r"[^a-z0-9]+", "-", title.lower().replace("é", "e").replace("'", "")).strip(
            "-"
        )
        stems = [word[:4] for word in re.findall(r"\w{4,}", title.lower())]
        if key not in taken and len(set(stems)) == len(stems):
            taken.add(key)
            return title, key


class _Deck:
    """Words drawn one after another in random order, and shuffled again when all have been used."""

    def __init__(self, cards: tuple[str, ...], bits: _Bits) -> None:
        self._cards = cards
        self._bits = bits
        self._order = list[int]()

    def draw(self) -> str:
        if not self._order:
            self._order = self._bits.shuffle(len(self._cards)).tolist()
        return self._cards[self._order.pop()]


# -------------------------------------------------------------------- exact random numbers


class _Bits:
    """Random numbers from raw 64-bit words of Philox: the same in every version of numpy."""

    def __init__(self, key: int) -> None:
        self._raw = np.random.Philox(key=key, counter=0)

    def halfwords(self, n: int) -> NDArray[np.uint16]:
        """Draw n uniform integers below 65,536."""
        raw = np.asarray(self._raw.random_raw((n + 3) // 4), dtype="<u8")
        return raw.view("<u2")[:n]

    def integers(self, n: int, below: int) -> NDArray[np.int64]:
        """Draw n integers in 0 … below - 1; the bias is negligible for ``below`` far under 2⁶³."""
        raw = np.asarray(self._raw.random_raw(n), np.uint64)
        word = raw >> np.uint64(1)
        # numpy divides by one number several times as fast as it computes remainders
        return (word - word // np.uint64(below) * np.uint64(below)).astype(np.int64)

    def one(self, below: int) -> int:
        return int(self.integers(1, below)[0])

    def shuffle(self, n: int) -> NDArray[np.intp]:
        return np.argsort(np.asarray(self._raw.random_raw(n), np.uint64), kind="stable")

    def normals(self, shape: int | tuple[int, ...], deviation: float) -> NDArray[np.float32]:
        """Draw normal numbers with this standard deviation, rounded to multiples of 1/128."""
        table = _on_grid(deviation * ndtri((np.arange(1 << 16) + 0.5) / (1 << 16)))
        return table[self.halfwords(int(np.prod(shape)))].reshape(shape)


def _on_grid(x: NDArray[np.floating]) -> NDArray[np.float32]:
    return (np.rint(np.asarray(x, np.float64) * _COARSE) / _COARSE).astype(np.float32)


def _fine(x: NDArray[np.float32]) -> NDArray[np.int32]:
    """Round down to multiples of 1/4096; exact input gives the same integer everywhere."""
    return np.floor(x * np.float32(_FINE)).astype(np.int32)


def _round_to_int(x: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.rint(x).astype(np.int32)
