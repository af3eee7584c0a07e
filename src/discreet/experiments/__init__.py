"""Runs that measure: benchmarks, comparisons over splits, and the papers' tables and figures.

`reproduce` runs the entries that `configs/` describes, one TOML file each; `entry` and `sources` read them, and the
files named after a paper say how its rows are made. `bench` and its parts measure speed. `papers` prices the papers'
settings.
"""
