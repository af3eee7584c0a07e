"""The one release point: plan, release (session), record (ledger), state the guarantee (statement).

`unsafe` bypasses it and makes ε infinite. `budget_store` keeps one budget for all trainings on the
same users in a checked log (`budget_store_log`), in an SQLite file or in PostgreSQL. Nothing here
depends on a model.
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
