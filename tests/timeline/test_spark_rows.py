"""Rows from Spark: the same sums and the same table of entries as in memory."""

import numpy as np
import pytest

import discreet
from discreet.auditing.conformance.recorder import Recorder
from discreet.errors import DataError
from discreet.timeline import entries
from discreet.timeline.entries import EntryTable
from discreet.timeline.public_state import Records
from support.spark_helpers import session
from timeline.test_timeline import make_ratings, open_timeline


@pytest.fixture(scope="module")
def spark():
    spark = session("local[2]")
    yield spark
    spark.stop()


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv(entries.VARIABLE, "ab" * 32)


def with_text_ids(ratings):
    names = np.array([f"user {number}" for number in ratings.user_ids])
    return ratings.to_frame("pyarrow").set_column(
        0, "user", [names[np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))]]
    )


def on_spark(spark, table, partitions=3):
    frame = spark.createDataFrame(table)
    return discreet.SparkRatings(frame, items=list(range(30)), partitions=partitions)


@pytest.mark.parametrize("form", [lambda r: r.to_frame("pyarrow"), with_text_ids])
def test_spark_gives_the_same_sums_and_entries(spark, tmp_path, form):
    table = form(make_ratings(300))
    # one user with two ratings does not enter, wherever it is
    few = table.slice(0, 2)
    first = discreet.Ratings.from_frame(table, items=list(range(30)))
    sources = (first, on_spark(spark, table))
    found = []
    for number, source in enumerate(sources):
        line = open_timeline(tmp_path / str(number), epsilon=40.0)
        with Recorder(replay=found[0][0] if found else None) as seen:
            line.add(first)
            line.add(source)
            if number:
                line.add(on_spark(spark, few, 1))
            else:
                line.add(discreet.Ratings.from_frame(few, items=list(range(30))))
        found.append((seen, EntryTable.read(line.secret_path)))
    (memory, table_of_memory), (cluster, table_of_cluster) = found
    assert any(len(row.exact.shape) > 1 and row.exact.size > 30 for row in memory.releases)
    for one, other in zip(memory.releases, cluster.releases, strict=True):
        np.testing.assert_array_equal(one.exact, other.exact)
    np.testing.assert_array_equal(table_of_memory.hashes, table_of_cluster.hashes)
    np.testing.assert_array_equal(table_of_memory.entry, table_of_cluster.entry)


def test_entries_of_spark_are_its_users(spark, tmp_path):
    ratings = make_ratings(200)
    line = open_timeline(tmp_path)
    line.add(on_spark(spark, ratings.to_frame("pyarrow")))
    enough = np.diff(ratings.indptr) >= 3
    assert len(EntryTable.read(line.secret_path).hashes) == enough.sum()


def test_a_bad_row_is_refused_before_the_row_is_begun(spark, tmp_path):
    line = open_timeline(tmp_path)
    frame = spark.createDataFrame(make_ratings(100).to_frame("pyarrow"))
    with pytest.raises(DataError, match="not in the catalog"):
        line.add(discreet.SparkRatings(frame, items=list(range(29)), partitions=2))
    assert not Records.read(line.path).of_kind("begun")
