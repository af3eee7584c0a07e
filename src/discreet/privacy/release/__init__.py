"""The one release point: plan what to release, release it (session), record it (ledger), state what
that guarantees.

`unsafe` is the one named way round, which makes ε infinite. `budget_store` keeps one budget for all
trainings on the same users in a checked log (`budget_store_log`), which is in an SQLite file or in
PostgreSQL. Nothing here knows a model.
"""

__all__ = [
    "budget_store",
    "budget_store_log",
    "budget_store_postgres",
    "budget_store_sqlite",
    "hash_chain",
    "ledger",
    "plan",
    "session",
    "statement",
    "unsafe",
]
