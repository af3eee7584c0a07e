"""Cinema: readable, the same everywhere, and with reasons for what people like."""

import re
import zlib

import numpy as np
import pytest

from discreet.data import cinema, splits
from discreet.errors import ConfigError


@pytest.fixture(scope="module")
def ratings():
    return cinema.make_cinema()


def test_films_are_readable_and_unique():
    films = cinema.films()
    assert (
        len(films) == len({film.id for film in films}) == len({film.title for film in films}) == 800
    )
    for film in films:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", film.id), film
        assert cinema.YEARS[0] <= film.year <= cinema.YEARS[1]
        assert 1 <= len(film.genres) == len(set(film.genres)) <= 3
        assert set(film.genres) <= set(cinema.GENRES)
        assert not re.search(r"[{}_]|\bA [AEIOU]|\ba [AEIOU]|  ", film.title), film.title
        assert film.label == f"{film.title} ({film.year}) · {', '.join(film.genres)}"
    assert len({film.genres[0] for film in films}) == 16


def test_shape(ratings):
    assert (ratings.n_users, ratings.n_items) == (20_000, 800)
    assert 1_000_000 < ratings.n_ratings < 1_500_000
    assert set(np.unique(ratings.values)) == set(np.arange(1, 11) / 2)
    assert ratings.catalog
    assert ratings.titles[0] == cinema.films()[0].label
    assert ratings.item_ids[0] == cinema.films()[0].id
    rows = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
    assert (np.diff(rows * 800 + ratings.indices) > 0).all()


def test_activity_and_popularity_have_long_tails(ratings):
    per_user, per_item = np.diff(ratings.indptr), np.bincount(ratings.indices, minlength=800)
    assert per_user.min() == 15
    assert 35 < np.median(per_user) < 50 < per_user.mean() < 65
    assert per_user.max() > 400
    assert per_item.max() > 10 * np.median(per_item)
    assert np.sort(per_item)[-80:].sum() > 0.3 * per_item.sum()
    assert per_item.min() >= 1


def test_the_same_on_every_machine(ratings):
    arrays = (ratings.indptr, ratings.indices, ratings.values, ratings.timestamps)
    sums = [
        zlib.crc32(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
        for array in arrays
    ]
    titles = zlib.crc32("\n".join(ratings.titles).encode())
    assert [*sums, titles] == EXPECTED


def test_the_seed_changes_people_and_not_films():
    one, again, two = (cinema.make_cinema(seed=seed, scale=0.01) for seed in (1, 1, 2))
    assert one == again
    assert one != two
    assert np.array_equal(one.item_ids, two.item_ids)
    assert one.n_users == 200


def test_a_smaller_scale_has_the_same_kind_of_people(ratings):
    small = cinema.make_cinema(scale=0.05)
    assert np.diff(small.indptr).mean() == pytest.approx(np.diff(ratings.indptr).mean(), rel=0.1)
    assert small.values.mean() == pytest.approx(ratings.values.mean(), abs=0.05)


def test_people_rate_films_of_their_favorite_genre_higher(ratings):
    """Split everybody's films of a genre in two: who likes the one half should like the other."""
    first = np.array([film.genres[0] for film in cinema.films()])
    means = ratings.values.mean()
    rows = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
    for genre in ("Horror", "Romance", "Sci-Fi"):
        of_genre = np.flatnonzero(first == genre)
        halves = []
        for half in (of_genre[::2], of_genre[1::2]):
            hit = np.isin(ratings.indices, half)
            count = np.bincount(rows[hit], minlength=ratings.n_users)
            halves.append(
                (np.bincount(rows[hit], ratings.values[hit] - means, ratings.n_users), count)
            )
        both = (halves[0][1] >= 3) & (halves[1][1] >= 3)
        likes = [total[both] / count[both] for total, count in halves]
        assert np.corrcoef(*likes)[0, 1] > 0.3
        # and they watch more of it
        assert np.corrcoef(halves[0][1], halves[1][1])[0, 1] > 0.5


def test_timestamps_allow_every_split(ratings):
    split = splits.by_time(ratings, 0.1)
    assert split.train.timestamps.max() < split.test.target.timestamps.min()
    assert ratings.timestamps.min() >= 1_609_459_200  # 2021


def test_example_history_has_films_of_the_genres_asked_for():
    known = {film.id: film for film in cinema.films()}
    history = cinema.example_history("Romance", "Musical", n=5)
    assert len(history) == 6
    liked = [known[key] for key, rating in history.items() if rating > 4]
    assert len(liked) == 5
    assert all(film.genres[0] in ("Romance", "Musical") for film in liked)
    assert cinema.example_history()
    with pytest.raises(ConfigError, match="unknown genre 'Noir'"):
        cinema.example_history("Noir")


def test_wrong_arguments_are_answered_with_a_sentence():
    for arguments in ({"seed": -1}, {"seed": 0.5}, {"scale": 0}, {"scale": 2}):
        with pytest.raises(ConfigError):
            cinema.make_cinema(**arguments)


# A change of any of these is a change of the data set: results that were published on it would no
# longer hold.
EXPECTED = [3630144781, 2090262906, 224597174, 2707630545, 1613002104]
