"""The privacy core: one release point, three owners.

A *statistic* owns its sensitivity, a *plan* the noise multiplier, a *session* the ledger. Layers,
from below: `accounting`, `noise`, `statistics` (sums that know how far one user moves them),
`users` (sealed users, and what they compute by themselves), `release` (plan, session, ledger,
statement). The names below are public, and imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.privacy.accounting.budget import Budget
    from discreet.privacy.release.budget_store import Account, BudgetStore
    from discreet.privacy.release.ledger import Ledger
    from discreet.privacy.release.plan import Plan, Release
    from discreet.privacy.release.session import Session
    from discreet.privacy.release.statement import PrivacyStatement
    from discreet.privacy.statistics.bounds import Bounds
    from discreet.privacy.users.sealed_users import Users, seal

__all__ = [
    "Account",
    "Bounds",
    "Budget",
    "BudgetStore",
    "Ledger",
    "Plan",
    "PrivacyStatement",
    "Release",
    "Session",
    "Users",
    "seal",
]

_HOME = {
    "Account": "release.budget_store",
    "Bounds": "statistics.bounds",
    "Budget": "accounting.budget",
    "BudgetStore": "release.budget_store",
    "Ledger": "release.ledger",
    "Plan": "release.plan",
    "PrivacyStatement": "release.statement",
    "Release": "release.plan",
    "Session": "release.session",
    "Users": "users.sealed_users",
    "seal": "users.sealed_users",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'discreet.privacy' has no attribute {name!r}")
    return getattr(importlib.import_module(f"discreet.privacy.{_HOME[name]}"), name)
