"""Spark with executors of their own: one is killed, and a slow task is run twice; the bits stay
the same.
"""

import pytest

from support.engine_helpers import MODELS, same_bits, silenced, some_ratings, trained
from support.spark_helpers import Trouble, Troubled, session


@pytest.fixture(scope="module")
def spark():
    """Two executors of one core each; whoever is slower than the others is run again beside
    itself.
    """
    spark = session(
        "local-cluster[2,1,900]",
        **{
            "spark.executor.memory": "700m",
            "spark.speculation": "true",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.1",
            "spark.speculation.interval": "50ms",
            "spark.speculation.minTaskRuntime": "100ms",
            "spark.task.maxFailures": "6",
            "spark.python.worker.reuse": "true",
        },
    )
    yield spark
    spark.stop()


@pytest.mark.parametrize(
    ("trouble", "name"),
    [("executor", "DPALS"), ("slow", "DPALS"), ("executor", "DPMF, communities")],
)
def test_an_executor_that_dies_and_a_task_that_runs_twice_change_no_bit(
    spark, tmp_path, monkeypatch, trouble, name
):
    seen = silenced(monkeypatch)
    ratings = some_ratings()
    frame = spark.createDataFrame(ratings.to_frame("pyarrow"))
    people = Troubled(
        frame, items=ratings.item_ids.tolist(), partitions=4, folder=str(tmp_path / "sealed")
    )
    people.step = Trouble(str(tmp_path / "marker"), trouble)
    whole = trained(MODELS[name](), ratings, seen)
    same_bits(whole, trained(MODELS[name](), people, seen))
    assert (tmp_path / "marker").exists(), "somebody made trouble"
