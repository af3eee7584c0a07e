"""A private training refuses a user column that hardly identifies users, unless it is trusted
explicitly.
"""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from foreign_headers import HEADERS, make_frame

from discreet import ALS, DPMF, BlockRatings, Ratings
from discreet.data.user_column import MAX_MERGED, MIN_USERS
from discreet.errors import DataError

GERMAN = make_frame(HEADERS["German"]).rename(columns={"Artikel": "item"})


def fit(ratings, **parameters):
    return DPMF(2, epsilon=1, noise="seeded", random_state=0, **parameters).fit(
        ratings, progress=False
    )


def play_log(n_users, plays, n_items=3):
    """Each user rates each item, `plays` times."""
    user, item = np.divmod(np.arange(n_users * n_items), n_items)
    return pd.DataFrame({"user": np.tile(user, plays), "item": np.tile(item, plays)})


REFUSED = {
    "stars": (GERMAN.rename(columns={"Sterne": "user"}), {}, "fewer than 100 distinct values"),
    "days": (GERMAN.rename(columns={"Datum": "user", "Sterne": "rating"}), {}, "holds dates"),
    "no ratings left": (
        GERMAN.rename(columns={"Stammkunde": "user"}).drop(columns="Sterne"),
        {"rating_range": (1, 5)},
        "there is no rating column",
    ),
    "few users": (play_log(MIN_USERS - 1, 1), {}, "fewer than 100 distinct values"),
    "rows that merge": (
        play_log(MIN_USERS, round(1 / (1 - MAX_MERGED)) + 1),
        {},
        "nearly all rows repeat",
    ),
}


@pytest.mark.parametrize(("frame", "parameters", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_private_fit_refuses_what_hardly_identifies_users(tmp_path, frame, parameters, reason):
    frame.to_csv(tmp_path / "r.csv", index=False)
    for ratings in (frame, Ratings.from_frame(frame), Ratings.read(tmp_path / "r.csv")):
        with pytest.raises(DataError) as refused:
            fit(ratings, **parameters)
        message = str(refused.value)
        assert reason in message
        assert "trust_user_column=True" in message
        assert set(re.findall(r"\d+", message)) <= {str(MIN_USERS)}, "no number but public ones"


@pytest.mark.parametrize(("frame", "parameters", "reason"), REFUSED.values(), ids=REFUSED)
def test_an_explicit_override_trains(frame, parameters, reason):
    trusted = Ratings.from_frame(frame, trust_user_column=True)
    for given in (
        trusted,
        trusted.select_users(trusted.user_ids[:3].tolist()),
        pickle.loads(pickle.dumps(trusted)),
    ):
        assert fit(given, **parameters).privacy_.finite
    model = DPMF(2, epsilon=1, noise="seeded", random_state=0, **parameters)
    assert model.fit(frame, progress=False, trust_user_column=True).privacy_.finite


@pytest.mark.parametrize(("frame", "parameters", "reason"), REFUSED.values(), ids=REFUSED)
def test_blocks_are_refused_and_trusted_as_ratings_are(tmp_path, frame, parameters, reason):
    """Blocks hold hashes, not ids, so that the column is judged when they are written."""
    frame.to_csv(tmp_path / "r.csv", index=False)
    sources = {"frame": frame, "file": tmp_path / "r.csv", "ratings": Ratings.from_frame(frame)}
    for name, source in sources.items():
        BlockRatings.write(source, tmp_path / name, blocks=3)
        with pytest.raises(DataError, match=reason):
            DPMF(2, epsilon=1, **parameters).fit(BlockRatings(tmp_path / name), progress=False)
    trusted = BlockRatings.write(frame, tmp_path / "trusted", blocks=3, trust_user_column=True)
    for people in (trusted, BlockRatings(tmp_path / "frame", trust_user_column=True)):
        assert DPMF(2, epsilon=1, **parameters).fit(people, progress=False).privacy_.finite
    right = BlockRatings.write(play_log(MIN_USERS, 2), tmp_path / "right", blocks=3)
    assert right.user_problem == ""
    assert not right.rated


def test_refusals_come_before_any_release_and_after_any_choice():
    read = Ratings.from_frame(REFUSED["stars"][0])
    for ratings in (read, read.filter(min_user_ratings=2), pickle.loads(pickle.dumps(read))):
        model = DPMF(2, epsilon=1)
        with pytest.raises(DataError, match="fewer than 100"):
            model.fit(ratings)
        assert not hasattr(model, "privacy_")


def test_users_are_accepted_from_the_public_minimum_on():
    assert fit(play_log(MIN_USERS, 1)).privacy_.finite
    few = play_log(5, 1)
    assert fit(Ratings.from_arrays(few["user"], few["item"])).privacy_.finite
    assert fit(Ratings.from_arrays(few["user"], few["item"]), rating_range=(1, 5)).privacy_.finite
    assert fit(Ratings.from_arrays(few["user"], few["item"]).to_csr()).privacy_.finite


def test_models_without_privacy_learn_from_any_user_column():
    assert len(ALS(2, iterations=1, goal="ranking").fit(REFUSED["stars"][0]).item_ids_) == 80


def test_users_of_a_file_without_header_have_to_be_named(tmp_path):
    file = tmp_path / "r.csv"
    file.write_text("".join(f"{user},{item},4\n" for user in range(150) for item in range(5)))
    blocks = BlockRatings.write(file, tmp_path / "b", blocks=2)
    for ratings in (Ratings.read(file), blocks):
        with pytest.raises(DataError, match=r"first column was taken for users: pass user=0"):
            DPMF(2, epsilon=1).fit(ratings, progress=False)
    assert fit(Ratings.read(file, user=0)).privacy_.finite
    assert not BlockRatings.write(file, tmp_path / "c", blocks=2, user=0).user_problem
    ALS(2).fit(Ratings.read(file), progress=False)
