"""A Spark session for tests, and people who make trouble on its workers."""

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from discreet.engines.spark import SparkRatings
from discreet.privacy.users.steps import UserStep
from support import java

SECRET = "somebody-called-4711"


def session(master, **settings):
    """A small, quiet Spark; skipped where there is no Java, which is an error with CI=true."""
    if java.find() is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("there is no Java 17: make java installs it")
        pytest.skip("there is no Java 17: make java installs it")
    sql = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    here = str(Path(__file__).parent)
    # the workers find these steps here
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([here, *sys.path]))
    builder = sql.SparkSession.builder.master(master).appName("tests")
    usual = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in (usual | settings).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def blocks_on_workers(spark, tasks=4):
    """How many blocks the workers keep at this moment, by as many tasks as all of them can take
    at once and more.
    """

    def count(batches):
        import os
        import time

        import pyarrow

        from discreet.engines.spark import worker

        for _ in batches:
            pass
        time.sleep(0.3)
        own = {"pid": [os.getpid()], "kept": [sum(map(len, worker._kept.values()))]}
        yield pyarrow.RecordBatch.from_pydict(own)

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(count, "pid long, kept long").collect()
    return sum({row["pid"]: row["kept"] for row in rows}.values())


class Troubled(SparkRatings):
    """People who take one more step right after they are sealed."""

    step: UserStep

    def seal(self, bounds, *, seed=0):
        users = super().seal(bounds, seed=seed)
        users.apply(self.step)
        return users


@dataclass(frozen=True)
class Trouble(UserStep):
    """The worker that is first in a block makes trouble, once; the next one finds the marker
    and goes on.
    """

    marker: str
    kind: str

    what = "trouble"

    def check(self, public):
        return public

    def run(self, block, public):
        if block.n and self._first():
            if self.kind == "error":
                raise ValueError(f"{SECRET} rated {block.values[0]}")
            if self.kind == "worker":
                os._exit(9)
            if self.kind == "executor":
                os.kill(_executor(), 9)
                time.sleep(30)
            if self.kind == "slow":
                time.sleep(8)
            if self.kind == "always":
                os.unlink(self.marker)
                raise KeyError(SECRET)
        # a new history, so that no pass goes without this step
        return replace(block, mean=block.mean.copy())

    def _first(self):
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def _executor():
    """The Java process that this worker belongs to."""
    pid = os.getpid()
    while True:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if "java" in Path(f"/proc/{pid}/comm").read_text():
            return pid
        pid = int(status[1])
        assert pid > 1, "no Java above this process"
