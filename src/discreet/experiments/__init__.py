"""Runs that measure: benchmarks, and later the papers' tables and figures."""
