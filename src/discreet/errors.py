"""Every error that discreet raises on purpose.

The message of each says what was given, what is allowed and what to do; the command line prints it as one sentence and
exits with code 2. Errors raised from private data name the problem, never a user or a value.
"""


class DiscreetError(Exception):
    """Base of all errors raised on purpose."""


class DataError(DiscreetError, ValueError):
    """The ratings, or a file that should hold them, cannot be used as they are."""


class ConfigError(DiscreetError, ValueError):
    """A parameter or option has a value that is not allowed."""


class NotInstalled(ConfigError):
    """Something needs an optional dependency that is not there."""


class NotFittedError(DiscreetError, RuntimeError):
    """The model was asked for something that it learns in ``fit``."""


class PrivacyError(DiscreetError):
    """Private data would leave, or has left, without being paid for."""


class BudgetExceeded(PrivacyError):
    """The releases asked for cost more than the budget allows."""


class DamagedStore(PrivacyError):
    """A store of budgets was damaged, changed or rolled back, so that no balance in it can be believed."""


class PlanMismatch(PrivacyError):
    """A release was not in the plan, came once too often, or had another shape."""


class EngineError(DiscreetError):
    """An engine lost what it needs: a block, a worker, or the agreement of its machines."""
