"""The one door: plan what to release, release it (session), record it (ledger), say what that promises (statement).

`vault` holds the key to private data, and `unsafe` the one named way round, which makes ε infinite. Nothing here knows
a model; nothing outside `privacy` and `engines` may import `vault`.
"""

__all__ = ["ledger", "plan", "session", "statement", "unsafe", "vault"]
