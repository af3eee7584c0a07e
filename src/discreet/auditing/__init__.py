"""Audits: five ways to refute what a private model claims, without trusting its proofs.

`audit` runs them and returns an `Audit`. Modules: `neighboring_runs` (two trainings with the same
public past), `canaries` (users to add), `transcript`, `noise_distribution`, `one_run` and `scores`
(the levels), `one_run_bounds` (lower bounds on ε from guesses), `correlation` and `frozen` (whether
noise is independent of other noise, of clocks and of processes).
"""

from discreet.auditing.result import Audit, Claim, Level
from discreet.auditing.run_audit import LEVELS, audit

__all__ = ["LEVELS", "Audit", "Claim", "Level", "audit"]
