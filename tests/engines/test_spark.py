"""Spark: the same bits as in memory, whatever fails on the way, and nothing private in any
message or log.
"""

import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import discreet
from discreet.engines import RatingsSource, fingerprint
from discreet.engines.spark import jobs
from discreet.errors import ConfigError, DataError, EngineError
from discreet.evaluation.spark_scores import evaluate_frame
from support.engine_helpers import (
    MODELS,
    SCALE,
    Interrupted,
    files_with_traces,
    interrupt,
    modes_of,
    rows_of_recognizable_users,
    same_bits,
    silenced,
    some_ratings,
    trained,
)
from support.spark_helpers import SECRET, Trouble, Troubled, blocks_on_workers, session


@pytest.fixture(scope="module")
def ratings():
    return some_ratings()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("spark") / "log"


@pytest.fixture(scope="module")
def spark(log):
    """Tasks are tried four times; everything that Spark has to say goes to a file."""
    layout = log.with_name("log4j2.properties")
    layout.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.file.ref = file\nappender.file.type ="
        " File\nappender.file.name = file\nappender.file.fileName ="
        f" {log}\nappender.file.layout.type = PatternLayout\nappender.file.layout.pattern = %p %c:"
        " %m%n%ex\n"
    )
    options = f"-Dlog4j2.configurationFile={layout.as_uri()}"
    spark = session("local[2,4]", **{"spark.driver.extraJavaOptions": options})
    yield spark
    spark.stop()


@pytest.fixture
def silent(monkeypatch):
    return silenced(monkeypatch)


@pytest.fixture(scope="module")
def frame(spark, ratings):
    return spark.createDataFrame(ratings.to_frame("pyarrow"))


def people(frame, ratings, partitions=3, kind=discreet.SparkRatings, **more):
    return kind(frame, items=ratings.item_ids.tolist(), partitions=partitions, **more)


@pytest.fixture(scope="module")
def sealed(frame, ratings):
    """Sealed once for all models."""
    return {n: people(frame, ratings, n) for n in (1, 3, 7, 16)}


#: Exact sums do not depend on the model, so that models with many jobs are tried with fewer.
PARTITIONS = dict.fromkeys(MODELS, (1, 3, 7, 16)) | {
    "DPMF, ranking": (1, 7),
    "DPMF, profiles": (3,),
}


@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_partitions_gives_the_same_bits(ratings, sealed, silent, name):
    whole = trained(MODELS[name](), ratings, silent)
    for one in (sealed[n] for n in PARTITIONS[name]):
        assert isinstance(one, RatingsSource)
        found = trained(MODELS[name](), one, silent)
        same_bits(whole, found)
        (engine,) = [text.text for text in found[0].privacy_.assumptions if text.name == "engine"]
        assert engine == f"spark: users are in {one.parts} blocks on a Spark cluster"


@pytest.mark.parametrize("goal", ["ranking", "rating"])
def test_public_users_change_no_bit_and_are_left_out_on_the_workers(ratings, sealed, silent, goal):
    public = ratings.select_users(ratings.user_ids[::7], by="id")

    class WithPublic(discreet.DPMF):
        def fit(self, ratings, **options):
            return super().fit(ratings, public_ratings=public, **options)

    def model(kind=WithPublic):
        return kind(epsilon=8.0, rating_range=SCALE, goal=goal, random_state=1)

    whole = trained(model(), ratings, silent)
    same_bits(whole, trained(model(), sealed[3], silent))
    alone = trained(model(discreet.DPMF), sealed[3], silent)
    assert not np.array_equal(whole[1][0], alone[1][0])


@pytest.mark.parametrize(
    ("trouble", "name"),
    [("error", "DPMF, rating"), ("worker", "DPMF, rating"), ("worker", "DPMF, communities")],
)
def test_a_task_that_fails_is_tried_again_and_counts_once(
    ratings, frame, silent, tmp_path, log, trouble, name
):
    troubled = people(frame, ratings, 3, Troubled)
    troubled.step = Trouble(str(tmp_path / "marker"), trouble)
    whole = trained(MODELS[name](), ratings, silent)
    same_bits(whole, trained(MODELS[name](), troubled, silent))
    assert (tmp_path / "marker").exists(), "somebody made trouble"
    assert SECRET not in log.read_text()


def test_an_error_that_stays_says_its_type_and_nothing_else(ratings, frame, tmp_path, log, caplog):
    troubled = people(frame, ratings, 1, Troubled)
    troubled.step = Trouble(str(tmp_path / "marker"), "always")
    model = MODELS["DPMF, rating"]()
    with pytest.raises(EngineError) as caught:
        model.fit(troubled)
    assert str(caught.value).startswith("a job on the cluster failed (PrivacyError)")
    error = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__
    assert SECRET not in caplog.text
    text = log.read_text()
    assert "discreet-worker:PrivacyError" in text, "the log was written"
    assert SECRET not in text
    assert len(model.privacy_.ledger.entries) == 1, "what was charged stays charged"


def test_a_sealed_block_that_is_lost_is_sealed_again(ratings, frame, silent, tmp_path):
    folder = tmp_path / "sealed"
    one = people(frame, ratings, 3, folder=str(folder))
    one.ready()
    files = sorted(folder.glob("*.parquet"))
    assert len(files) == 3
    files[1].unlink()
    whole = trained(MODELS["DPALS"](), ratings, silent)
    same_bits(whole, trained(MODELS["DPALS"](), one, silent))


def test_sealed_files_hold_no_id_and_are_for_their_owner_alone(spark, tmp_path):
    frame = spark.createDataFrame(pa.table(rows_of_recognizable_users()))
    folder = tmp_path / "sealed"
    folder.mkdir(mode=0o755)
    given = {"items": list(range(5)), "partitions": 3, "folder": str(folder)}
    for _ in range(2):  # the second one replaces what the first one has written
        discreet.SparkRatings(frame, **given).ready()
        assert len(list(folder.glob("*.parquet"))) == 3
        assert files_with_traces(folder) == []
        assert modes_of(folder) == ({0o700}, {0o600})
    temporary = discreet.SparkRatings(frame, items=list(range(5)), partitions=2)
    temporary.ready()
    place = Path(temporary._sealed.path.removeprefix("file://"))
    assert files_with_traces(place) == []
    assert modes_of(place.parent) == ({0o700}, {0o600})
    (folder / "letters.txt").write_text("dear")
    with pytest.raises(
        ConfigError, match="holds other files than sealed blocks: choose another folder"
    ):
        discreet.SparkRatings(frame, **given).ready()
    assert (folder / "letters.txt").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_workers_drop_blocks_when_a_training_has_ended_or_failed(spark, sealed, monkeypatch, fails):
    during = []
    run = jobs.SparkEngine.run

    def counted(self, *given):
        found = run(self, *given)
        during.append(blocks_on_workers(spark))
        return found

    monkeypatch.setattr(jobs.SparkEngine, "run", counted)
    model = discreet.DPLMC(4, epsilon=8.0, rating_range=SCALE, random_state=1, iterations=2)
    if fails:
        interrupt(monkeypatch)
        with pytest.raises(Interrupted):
            model.fit(sealed[3])
    else:
        model.fit(sealed[3])
    assert max(during) > 0
    assert blocks_on_workers(spark) == 0


def test_spark_passes_blocks_and_sums_on_the_workers(ratings, frame, silent, monkeypatch):
    """As where blocks are in a store that only Spark can read, and where sums are too large for
    the driver.
    """
    one = people(frame, ratings, 3)
    one.ready()
    monkeypatch.setattr(one._sealed, "within_reach", False)
    monkeypatch.setattr(jobs, "LARGE_SUMS", 0)
    monkeypatch.setattr(jobs, "Pass", partial(jobs.Pass, chunk=1000))
    whole = trained(MODELS["DPALS"](), ratings, silent)
    same_bits(whole, trained(MODELS["DPALS"](), one, silent))


def test_machines_with_other_results_are_refused_before_any_charge(ratings, frame, monkeypatch):
    monkeypatch.setattr(fingerprint, "_fingerprint", lambda vector: "another machine")
    model = MODELS["DPMF, rating"]()
    with pytest.raises(EngineError, match="compute different bits"):
        model.fit(people(frame, ratings))
    assert not hasattr(model, "privacy_")


def test_lists_and_scores_are_those_of_one_machine(ratings, frame, spark):
    model = discreet.DPMF(epsilon=50.0, rating_range=SCALE, random_state=3).fit(ratings)
    lists = model.recommend_spark(frame, 5, partitions=3).collect()
    ids, scores = model.recommend_many(ratings, 5)
    found = {(row["user_id"], row["rank"]): (row["item_id"], row["score"]) for row in lists}
    assert len(found) == len(lists) == (scores > -np.inf).sum()
    for at, user in enumerate(ratings.user_ids.tolist()):
        for rank in range(5):
            assert found[user, rank + 1] == (ids[at, rank], scores[at, rank])
    split = discreet.data.splits.random_ratings(ratings, (0.8, 0.2), seed=1)
    known, held = (
        spark.createDataFrame(part.to_frame("pyarrow")) for part in (split.train, split.test.target)
    )
    there = evaluate_frame(model, known, held, ["recall@20", "rmse"], partitions=3)
    here = discreet.evaluate(model, split, ["recall@20", "rmse"])
    assert there["recall@20"] == pytest.approx(
        (here["recall@20"], here.stderr["recall@20"]), rel=1e-9
    )
    assert there["rmse"][0] == pytest.approx(here["rmse"], rel=1e-6)
    with pytest.raises(ConfigError, match="coverage"):
        evaluate_frame(model, known, held, "coverage@20")


# ------------------------------------------------------------------ reading


def rows_of(spark, **columns):
    return spark.createDataFrame(pa.table(columns))


def test_repeated_ratings_need_an_order(spark, silent):
    rng = np.random.default_rng(0)
    columns = {
        "user": rng.integers(0, 30, 400),
        "item": rng.integers(0, 9, 400),
        "rating": rng.integers(1, 6, 400).astype(np.float64),
    }
    bare = rows_of(spark, **columns)
    with pytest.raises(ConfigError, match='duplicates="last" needs to know which rating is newest'):
        discreet.SparkRatings(bare, items=list(range(9)), duplicates="last")
    when = rng.permutation(400)
    timed = rows_of(
        spark,
        **columns,
        timestamp=[datetime.datetime(2020, 1, 1, 0, int(t) // 60, int(t) % 60) for t in when],
    )
    whole = discreet.Ratings.from_arrays(
        columns["user"], columns["item"], columns["rating"], when, item_ids=list(range(9))
    )

    def model():
        return discreet.DPLMC(3, epsilon=8.0, rating_range=(1, 5), random_state=1, iterations=2)

    one = discreet.SparkRatings(timed, items=list(range(9)), partitions=2, rating_range=(1, 5))
    same_bits(trained(model(), whole, silent), trained(model(), one, silent))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"user": ["a", "b"], "rating": ["1", SECRET]},
            "a rating is missing, infinite or no number",
        ),
        ({"user": [SECRET, SECRET], "item": [1, 1], "rating": ["1", "2"]}, "rated an item twice"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_in_one_sentence(spark, log, columns, said):
    given = {"item": [1, 2]} | columns
    with pytest.raises(DataError, match=said) as caught:
        discreet.SparkRatings(rows_of(spark, **given), items=[1, 2, 3], partitions=2).ready()
    assert SECRET not in str(caught.value)
    assert SECRET not in log.read_text()


def test_a_person_is_one_however_its_id_is_written(spark, silent):
    """As text, with 7, 7.0 and 007 in it, of whom the last is somebody else; an item that
    nobody knows is left out.
    """
    frame = rows_of(
        spark,
        user=["7", "8", "7.0", "007", "ann", "bo"],
        item=["1", "1", "2.0", "2", "1", "unheard of"],
        rating=["5", "3", "4", "2", "1", "1"],
    )
    whole = discreet.Ratings.from_arrays(
        [7, 8, 7, "007", "ann", "bo"],
        [1, 1, 2, 2, 1, 3],
        [5.0, 3.0, 4.0, 2.0, 1.0, 1.0],
        item_ids=[1, 2],
        unknown_items="drop",
    )

    def model():
        return discreet.DPLMC(1, epsilon=8.0, rating_range=(1, 5), random_state=1, iterations=2)

    one = discreet.SparkRatings(frame, items=[1, 2], partitions=4, unknown_items="drop")
    same_bits(trained(model(), whole, silent), trained(model(), one, silent))


def test_what_is_read_from_the_data_is_said(spark, silent):
    frame = rows_of(spark, user=[1, 2, 2], item=["b", "a", "b"], rating=[1.0, 5.0, 3.0])
    one = discreet.SparkRatings(frame, partitions=2)
    assert one.item_ids.tolist() == ["a", "b"]
    assert one.rating_range() == (1.0, 5.0)
    model = discreet.DPLMC(1, epsilon=8.0, iterations=2).fit(one, trust_user_column=True)
    assert {a.name for a in model.privacy_.assumptions if a.inferred} == {"items", "ratings"}
    public = discreet.SparkRatings(frame, items=["a", "b"], rating_range=(1, 5), partitions=2)
    model = discreet.DPLMC(1, epsilon=8.0, iterations=2).fit(public, trust_user_column=True)
    assert not [a.name for a in model.privacy_.assumptions if a.inferred]


def test_a_user_column_that_hardly_identifies_users_is_refused(spark):
    at = np.arange(300)
    days = [f"2024-{1 + n % 12:02}-{1 + n % 28:02}" for n in at.tolist()]
    columns = {"grade": at % 5, "day": days, "who": at, "item": at % 7}
    frame = rows_of(spark, **columns)
    model = discreet.DPMF(2, epsilon=1.0)
    for user, reason in {"grade": "fewer than 100", "day": "holds dates"}.items():
        with pytest.raises(DataError, match=reason):
            model.fit(discreet.SparkRatings(frame, user=user, items=list(range(7))))
    right = discreet.SparkRatings(frame, user="who", items=list(range(7)))
    assert right.user_problem == ""
    assert discreet.SparkRatings(frame, user="day", trust_user_column=True).user_problem == ""
    with pytest.raises(DataError, match="there is no rating column"):
        discreet.DPMF(2, epsilon=1.0, rating_range=(1, 5)).fit(right)


def test_what_cannot_be_meant(spark, frame):
    with pytest.raises(ConfigError, match="partitions is 0"):
        discreet.SparkRatings(frame, partitions=0)
    with pytest.raises(DataError, match="SparkRatings needs a Spark DataFrame, not a Table"):
        discreet.SparkRatings(pa.table({"user": [1]}))
    with pytest.raises(DataError, match="recommend_spark needs a Spark DataFrame, not a Table"):
        MODELS["DPALS"]().fit(some_ratings()).recommend_spark(pa.table({"user": [1]}))
    seeded = discreet.DPALS(4, epsilon=8.0, rating_range=SCALE, noise="seeded", random_state=1)
    with pytest.raises(ConfigError, match="sums integers only"):
        seeded.fit(discreet.SparkRatings(frame, items=["x"], partitions=2))
