"""Adversaries: five ways to refute what a private model claims, without trusting its proofs.

`audit` runs them; `Audit` is what they found. Modules: `neighboring_runs` (two trainings that share
a public past), `canaries` (who is added), `transcript`, `noise_distribution`, `one_run` and
`scores` (the levels), `one_run_bounds` (what guesses say about ε), `correlation` and `frozen`
(whether noise is independent of other noise, of clocks and of processes).
"""

from discreet.auditing.result import Audit, Claim, Level
from discreet.auditing.run_audit import LEVELS, audit

__all__ = ["LEVELS", "Audit", "Claim", "Level", "audit"]
