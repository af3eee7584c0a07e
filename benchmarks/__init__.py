"""Speed on this machine, as ratios to other libraries in the same run. Not part of the wheel.

`bench` measures the sections of docs/benchmarks.md, one file each (`bench_als` …); `reference` and
`readme` write docs/results/reference.md and the scores of the README; `store_stress` kills
processes that spend from one budget account.
"""

import research  # noqa: F401  (its simulated data sets are what most sections measure on)
