"""``--public-ratings``, ``--text`` and ``--item-similarities`` on the command line."""

import discreet
from conftest import write_ratings

PRIVATE = ("--epsilon", 20, "--rating-range", "1,5")


def test_public_ratings_are_in_the_statement(run, tmp_path):
    ratings = write_ratings(tmp_path / "ratings.csv", n_users=300)
    public = write_ratings(tmp_path / "public.csv", n_users=30)
    result = run(
        "train",
        ratings,
        "--out",
        tmp_path / "model",
        *PRIVATE,
        "--public-ratings",
        public,
        "--public-confirmed-by",
        "A. Lee",
    )
    assert result.code == 0, result.err
    texts = [a.text for a in discreet.load(tmp_path / "model").privacy_.assumptions]
    assert any("the ratings of 30 users in public_ratings" in text for text in texts)
    assert any("confirmed by A. Lee" in text for text in texts)


def test_texts_and_similarities(run, tmp_path):
    ratings = write_ratings(tmp_path / "ratings.csv", n_users=300)
    items = tmp_path / "items.csv"
    lines = [f"{i},{'moon' if i % 2 else 'sun'} story {i}" for i in range(10, 45)]
    items.write_text("\n".join(["movieId,plot", *lines]) + "\n")
    near = tmp_path / "near.csv"
    near.write_text("item,other,weight\n" + "".join(f"{i},{i + 2},1\n" for i in range(10, 40)))
    result = run(
        "train",
        ratings,
        "--out",
        tmp_path / "model",
        *PRIVATE,
        "--item-features",
        items,
        "--text",
        "plot",
        "--item-similarities",
        near,
        "--json",
    )
    assert result.code == 0, result.err
    names = {a.name for a in discreet.load(tmp_path / "model").privacy_.assumptions}
    assert {"features", "similarities"} <= names


def test_mistakes_are_one_sentence(run, tmp_path):
    ratings = write_ratings(tmp_path / "ratings.csv", n_users=120)
    out = ("--out", tmp_path / "model")
    for wrong in (
        (*PRIVATE, "--public-confirmed-by", "A. Lee"),
        ("--not-private", "--public-ratings", ratings),
        (*PRIVATE, "--text", "plot"),
        (*PRIVATE, "--item-similarities", ratings.with_name("none.csv")),
    ):
        result = run("train", ratings, *out, *wrong)
        assert result.code == 2, wrong
        assert len(result.err.strip().splitlines()) == 1, result.err
