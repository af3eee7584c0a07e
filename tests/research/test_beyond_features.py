"""Genres for `beyond-features`: from a folder, from an archive, and a sentence where there are
none.
"""

import zipfile

import pytest

from discreet.errors import DataError
from research import beyond
from research.sources import Sources

MOVIES = "1::Toy (1995)::Comedy|War\n2::Heat (1995)::War\n3::Sabrina (1996)::Comedy\n"


@pytest.mark.parametrize("kind", ["folder", "archive", "archive in a folder"])
def test_genres_are_found_where_a_data_set_lies(tmp_path, kind):
    if kind == "folder":
        (tmp_path / "movies.dat").write_text(MOVIES)
    else:
        with zipfile.ZipFile(tmp_path / "ml-1m.zip", "w") as archive:
            archive.writestr("ml-1m/movies.dat", MOVIES)
    place = tmp_path / "ml-1m.zip" if kind == "archive" else tmp_path
    found = beyond.genres_and_years("ml-1m", Sources({"ml-1m": str(place)}))
    assert found.names == ("year", "column 2: Comedy", "column 2: War")


def test_none_at_hand_is_said(tmp_path):
    with pytest.raises(DataError, match="no genres of ml-1m are at hand"):
        beyond.genres_and_years("ml-1m", Sources({"ml-1m": str(tmp_path)}))


def test_cinema_has_its_own():
    found = beyond.genres_and_years("cinema", Sources())
    assert len(found) == 800
    assert {len(row) for row in found.values()} == {17}
