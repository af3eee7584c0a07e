"""One table of formats: what arrow reads at once and in batches, and what Spark is asked for."""

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from discreet import BlockRatings, Ratings
from discreet.data.formats import FORMATS, find_format, find_spark_format
from discreet.errors import ConfigError

TABLE = pa.table({"user": [1, 1, 2], "item": [5, 6, 5], "rating": [3.0, 4.0, 1.0], "x": [1, 2, 3]})


def write_stream(table, file):
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


WRITERS = {"parquet": parquet.write_table, "feather": feather.write_feather, "stream": write_stream}


@pytest.mark.parametrize("name", [one.name for one in FORMATS])
def test_every_format_is_read_at_once_in_batches_and_by_both_readers(name, tmp_path):
    file = tmp_path / "ratings"
    WRITERS[name](TABLE, file)
    found = find_format(file)
    assert found.name == name
    assert found.names(file) == TABLE.column_names
    assert found.read(file).equals(TABLE)
    some = ["user", "item"]
    assert found.read(file, some).equals(TABLE.select(some))
    assert pa.Table.from_batches(found.batches(file, some, 2)).equals(TABLE.select(some))
    assert Ratings.read(file).n_ratings == 3
    assert BlockRatings.write(file, tmp_path / "blocks", blocks=1).n_items == 2


def test_text_has_no_format_of_tables(tmp_path):
    (tmp_path / "a.csv").write_text("user,item,rating\n1,2,3\n")
    assert find_format(tmp_path / "a.csv") is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.parquet", "b.pq"], "parquet"),
        (["a.ORC/"], "orc"),
        (["s3a://where/a.json"], "json"),
        (["a.csv", "b.txt", "c"], "csv"),
    ],
)
def test_spark_is_asked_for_the_format_that_names_say(names, expected):
    assert find_spark_format(names) == expected


def test_spark_formats_of_folders_are_those_of_their_files(tmp_path):
    (tmp_path / "part-0.parquet").touch()
    (tmp_path / "_SUCCESS").touch()
    assert find_spark_format([str(tmp_path)]) == "parquet"
    (tmp_path / "part-1.csv").touch()
    with pytest.raises(ConfigError, match=r"several formats \(csv, parquet\)"):
        find_spark_format([str(tmp_path)])


def test_spark_refuses_what_it_cannot_read():
    with pytest.raises(ConfigError, match=r"Spark cannot read feather files. Convert them"):
        find_spark_format(["a.feather"])
