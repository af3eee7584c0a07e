"""Ratings in an Apache Spark cluster (``pip install "discreet[spark]"``).

`fit` of a private model takes a `SparkRatings`. Users are sealed into blocks once, by hash of their
ids; every release is one job over the blocks, which returns exact integers; noise is drawn on the
driver.
"""

from __future__ import annotations

from discreet.engines.spark.ratings import SparkRatings

__all__ = ["SparkRatings"]
