"""Figure 1 of the DPALS paper: a training as messages between a server and its users, and how many
bytes they are.

People are invented (the cinema), because the size of a user's messages depends on its ratings.
"""

from __future__ import annotations

import numpy as np

from discreet.models import model_class
from research.devices import Devices
from research.entry import Record, Settings
from research.sources import Sources

STARS = (0.5, 5.0)
DELTA = 1e-5


def run(settings: Settings, sources: Sources) -> Record:
    """``model``, ``epsilon``, ``parameters``, ``scale`` (share of the users), ``processes``; bytes
    per user and round.
    """
    ratings = sources.ratings("cinema", scale=settings["scale"])
    model = model_class(settings["model"]).configure(
        epsilon=settings["epsilon"],
        delta=DELTA,
        rating_range=STARS,
        random_state=0,
        **settings.get("parameters", {}),
    )
    with Devices(ratings, settings["processes"]) as devices:
        model.fit(devices)
        rounds = devices.traffic
    up = np.array([one.up for one in rounds], np.float64)  # round by user
    return {
        "rounds": len(rounds),
        "down": float(np.mean([one.down for one in rounds])),
        "up": float(up.mean()),
        "most_up": float(up.max()),
        "kilobytes_down": sum(one.down for one in rounds) / 1e3,
        "kilobytes_up": float(up.sum(axis=0).mean()) / 1e3,
        "kilobytes_of_history": 8 * ratings.n_ratings / ratings.n_users / 1e3,
    }
