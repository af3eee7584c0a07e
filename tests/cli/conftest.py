"""The command line in this process, and small things to give it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import discreet


def write_ratings(
    file: Path, n_users: int = 60, n_items: int = 40, seed: int = 0, first_user: int = 1
) -> Path:
    """A csv of ratings that have a structure to learn: everybody likes either the even or the
    odd items.
    """
    rng = np.random.default_rng(seed)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(first_user, first_user + n_users):
        for item in np.sort(rng.choice(n_items, 12, replace=False)):
            stars = np.clip(round(4.2 - 2.4 * ((item + user) % 2) + rng.normal(0, 0.5)), 1, 5)
            lines.append(f"{user},{10 + item},{stars:.1f},{1000 + len(lines)}")
    file.write_text("\n".join(lines) + "\n")
    return file


def write_catalog(file: Path, n_items: int = 40) -> Path:
    lines = [
        f'{10 + item},"Film {item}, the {item % 2} one ({1950 + item})"' for item in range(n_items)
    ]
    file.write_text("\n".join(["movieId,title", *lines]) + "\n")
    return file


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ratings.csv, films.csv, and two saved models: ``model`` (ALS) and
    ``popular``. Do not change it.
    """
    folder = tmp_path_factory.mktemp("shelf")
    ratings = write_ratings(folder / "ratings.csv")
    films = write_catalog(folder / "films.csv")
    data = discreet.Ratings.read(ratings, items=films)
    discreet.ALS(4, iterations=3, regularization=1.0).fit(data).save(folder / "model")
    discreet.Popularity().fit(data).save(folder / "popular")
    write_ratings(folder / "known.csv", n_users=8, seed=1, first_user=500)
    write_ratings(folder / "target.csv", n_users=8, seed=2, first_user=500)
    return folder


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ratings.csv, films.csv and ``model``, a private one. Do not change it."""
    folder = tmp_path_factory.mktemp("private")
    data = discreet.Ratings.read(
        write_ratings(folder / "ratings.csv", n_users=400),
        items=write_catalog(folder / "films.csv"),
    )
    discreet.DPMF(3, epsilon=5, rating_range=(1, 5), random_state=4711).fit(data).save(
        folder / "model"
    )
    return folder
