"""``--public-ratings``, ``--text`` and ``--item-similarities`` on the command line."""

import discreet
from conftest import write_ratings
from discreet.cli.data_options import DataOptions

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


def test_public_ratings_are_read_and_filtered_by_the_same_options(tmp_path):
    """Else ids that ``--normalize-ids`` merges would be in both parts."""
    file = tmp_path / "public.csv"
    file.write_text("U1 ;10;5\nu1;11;1\nu2;10;\nU2;12;4\n")
    source = DataOptions(
        user="0",
        item="1",
        rating="2",
        header=False,
        separator=";",
        missing="drop",
        normalize_ids=True,
        min_rating=4.0,
        min_user_ratings=50,  # decides who is in DATA, not who is public
    )
    found = source.read_public(str(file))
    assert found.user_ids.tolist() == ["u1", "u2"]
    assert found.values.tolist() == [5.0, 4.0]


def test_weights_that_are_no_numbers_are_one_sentence(run, tmp_path):
    ratings = write_ratings(tmp_path / "ratings.csv", n_users=120)
    near = tmp_path / "near.csv"
    near.write_text("item,other,weight\n10,11,much\n")
    result = run(
        "train", ratings, "--out", tmp_path / "model", *PRIVATE, "--item-similarities", near
    )
    assert result.code == 2
    assert "weights that are no numbers" in result.err
    assert len(result.err.strip().splitlines()) == 1, result.err


def test_a_public_file_may_have_columns_of_its_own(run, tmp_path):
    ratings = tmp_path / "ratings.csv"
    lines = write_ratings(tmp_path / "plain.csv", n_users=120).read_text().splitlines()
    ratings.write_text("\n".join(["kd,ding,wert,zeit", *lines[1:]]) + "\n")
    named = ("--user", "kd", "--item", "ding", "--rating", "wert")
    given = (*PRIVATE, "--out", tmp_path / "model", *named, "--public-ratings")
    public = tmp_path / "public.csv"
    rows = ["900,10,5", "900,11,4", "901,10,1"]
    public.write_text("\n".join(["user_id,item_id,rating", *rows]) + "\n")
    found = DataOptions(user="kd", item="ding", rating="wert").read_public(str(public))
    assert found.values.tolist() == [5.0, 4.0, 1.0]
    result = run("train", ratings, *given, public)
    assert result.code == 0, result.err
    assert "its columns are recognized by their own names" in result.err
    public.write_text("\n".join(["a,b,c", *rows]) + "\n")
    result = run("train", ratings, *given, public, "--replace")
    assert result.code == 2
    assert "--public-ratings: " in result.err
    assert "has no column 'kd'" in result.err
    public.write_text("user_id,item_id,rating\n900,10,\n")
    result = run("train", ratings, *given, public, "--replace")
    assert "--public-ratings: " in result.err
    assert "line 2: the rating is missing" in result.err


def test_messages_name_the_options_of_the_command_line(run, tmp_path):
    ratings = write_ratings(tmp_path / "ratings.csv", n_users=120)
    out = ("--out", tmp_path / "model")
    empty = tmp_path / "empty.csv"
    empty.touch()
    itself = tmp_path / "itself.csv"
    itself.write_text("a,b,w\n10,10,1\n11,11,1\n")
    items = tmp_path / "items.csv"
    lines = [f"{i},{'ab'[i % 2]},{1990 + i}" for i in range(10, 45)]
    items.write_text("\n".join(["movieId,kind,year", *lines]) + "\n")
    for wrong, message in (
        (("--text", "plot"), "--text names columns of item features: pass --item-features FILE"),
        (("--item-similarities", "emb.npy"), "--item-similarities is emb.npy, an array"),
        (("--item-similarities", empty), "which is empty, but must have a line"),
        (("--item-similarities", itself), "--item-similarities has no two different items"),
        (
            ("--goal", "rating", "--item-features", items, "--features", "kind"),
            "discreet: --features is for --goal ranking",
        ),
        (("--item-features", items, "--text", "year"), "in --text holds numbers instead of text"),
        (
            ("--public-ratings", ratings, "--public-confirmed-by", "A\n# B"),
            "--public-confirmed-by has line breaks",
        ),
        (
            ("--public-ratings", ratings, "--public-confirmed-by", " "),
            "--public-confirmed-by is blank",
        ),
    ):
        result = run("train", ratings, *out, *PRIVATE, *wrong)
        assert result.code == 2, wrong
        assert message in result.err
        assert len(result.err.strip().splitlines()) == 1, result.err
