"""Check the signal-to-noise ratio of released counts."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import BudgetExceeded
from discreet.privacy.release.session import Session

logger = logging.getLogger("discreet")

LEAST = 0.1  # average signal over noise below which nothing can be learned


def check_signal(
    session: Session,
    counts: NDArray[Any],
    counting: float,
    noise: float,
    remedy: str | None,
    half_lost: str,
) -> dict[str, float]:
    """Return quantiles over the items of the largest possible signal over the noise.

    Parameters
    ----------
    counts : released, (n_items,)
    counting : deviation of the noise on a count
    noise : deviation of the noise on an item's sum, relative to what one rating can add
    remedy : what to do where too little can be learned; None where the caller goes on all the same
    half_lost : what happens to the items where noise is above signal, for a warning

    Raises
    ------
    BudgetExceeded
        The average item holds less signal than a tenth of the noise. What was released by then has
        been charged.
    """
    levels = [*np.quantile(counts / noise, [0.1, 0.5, 0.9]), counts.mean() / noise]
    signal = dict(zip(("10 %", "50 %", "90 %", "average"), map(float, levels), strict=True))
    shown = ", ".join(f"{name}: {value:.2g}" for name, value in signal.items())
    unsure = 2 * counting / math.sqrt(len(counts)) / noise
    if remedy is not None and signal["average"] < max(
        LEAST, unsure
    ):  # the average, because single counts drown in their own noise first
        raise BudgetExceeded(
            f"ε = {session.plan.budget.epsilon:g} is too little for so few users: the noise on an"
            " item's sum is larger than the sum can be (signal over noise by quantile of items,"
            f" {shown}). {remedy} (the counts that this follows from have been charged: privacy_"
            " says how much)."
        )
    if signal["50 %"] < 1:
        logger.warning(
            "half of the items hold less signal than noise at best (%s): %s", shown, half_lost
        )
    return signal
