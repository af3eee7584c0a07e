"""Workers without the right Python: a sentence instead of a traceback, and none on one machine."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from discreet.engines.spark.jobs import outcome, use_own_python
from discreet.errors import EngineError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "File \"worker.py\", line 7\nModuleNotFoundError: No module named 'discreet.engines'\n",
            "The Python of Spark's workers has no package 'discreet'. Install discreet there, or"
            " set PYSPARK_PYTHON to a Python that has it before Spark starts.",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in"
            " driver: 3.11, PySpark cannot run with different minor versions.",
            "Spark's workers run another version of Python than this process. Set PYSPARK_PYTHON"
            " to the same Python on all machines before Spark starts.",
        ),
        (
            'java.io.IOException: Cannot run program "/nope/python3": error=2, No such file',
            "Spark's workers cannot start the Python /nope/python3. Set PYSPARK_PYTHON to a Python"
            " that has discreet before Spark starts.",
        ),
        (
            "user 4711 rated item 12",
            "a job on the cluster failed (RuntimeError): see Spark's log, which may hold users'"
            " data",
        ),
    ],
)
def test_one_sentence_says_what_is_wrong_with_the_python_of_the_workers(text, expected):
    def job():
        raise RuntimeError(text)

    with pytest.raises(EngineError) as error:
        outcome(job)
    assert str(error.value) == expected
    assert error.value.__cause__ is None
    assert error.value.__context__ is None


def test_a_job_without_data_reports_the_first_lines_of_its_error():
    def job():
        raise RuntimeError("the cluster\n: has no room\n\tat line 7")

    with pytest.raises(EngineError) as error:
        outcome(job, holds_data=False)
    assert str(error.value).endswith("(RuntimeError): the cluster : has no room")


def fake_session(master, *settings):
    conf = SimpleNamespace(contains=lambda name: name in settings)
    context = SimpleNamespace(master=master, pythonExec="python3", getConf=lambda: conf)
    return SimpleNamespace(sparkContext=context)


@pytest.mark.parametrize(
    ("master", "settings", "variable", "expected"),
    [
        ("local[2]", (), None, sys.executable),
        ("local-cluster[2,1,900]", (), None, sys.executable),
        ("spark://driver:7077", (), None, "python3"),
        ("local[2]", ("spark.pyspark.python",), None, "python3"),
        ("local[2]", (), "/usr/bin/python3.9", "python3"),
    ],
)
def test_workers_on_this_machine_run_this_python(monkeypatch, master, settings, variable, expected):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    session = fake_session(master, *settings)
    use_own_python(session)
    assert session.sparkContext.pythonExec == expected


def test_a_session_without_context_is_left_alone():
    use_own_python(SimpleNamespace())
