"""The sound HuberALS at equal (ε, δ), and density and cost of the three kinds of noise."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from discreet.data.splits import Split
from discreet.evaluation.evaluator import evaluate
from discreet.models import model_class
from discreet.models.bias import Bias
from discreet.models.huber_als import HuberALS
from discreet.privacy.accounting.pricing import Event, calibrate
from research.entry import Record, Settings
from research.huber_printed import of_variance
from research.sources import Sources
from research.synthetic import huber_task

DELTA = 1e-5


def run(settings: Settings, sources: Sources) -> Record:
    """Test RMSE of one model; ``budget`` is "(ε, 1e-5)" or "pure ε"."""
    split = _split(settings, sources)
    scale = {"sweetrs": (1.0, 5.0), "ml-100k": (1.0, 5.0), "cinema": (0.5, 5.0)}
    rating_range = scale.get(settings["data"], (0.0, float(settings.get("rank", 5)) / 2))
    name = settings["model"]
    if name == "user's mean":
        model: Any = Bias(3.0, items=False)
    elif name in ("ALS", "IRLS"):
        model = model_class(name)(settings["factors"], random_state=settings["seed"])
    else:
        pure = settings["budget"] == "pure"
        solver, _, inner = settings["solver"].partition("-")  # "irls-3" has K = 3
        model = HuberALS.configure(
            factors=settings["factors"],
            mechanism=settings["mechanism"],
            solver=solver,
            inner_iterations=int(inner) if inner else 1,
            epsilon=settings["epsilon"],
            delta=0.0 if pure else DELTA,
            rating_range=rating_range,
            noise="seeded",
            random_state=settings["seed"],
        )
    result = evaluate(model.fit(split.train), split, ["rmse"], slices=None)
    found = {"rmse": float(result["rmse"])}
    if hasattr(model, "privacy_"):
        assert model.privacy_.epsilon <= settings["epsilon"] * (1 + 1e-9)
        deviation = {row["name"]: row["deviation"] for row in model.price_list(split.train.n_items)}
        found |= {"noise on sums": deviation["sum"], "stated ε": model.privacy_.epsilon}
    return found


def _split(settings: Settings, sources: Sources) -> Split:
    if settings["data"] == "synthetic":
        return _synthetic(settings["seed"])
    return sources.random(
        settings["data"], (0.8, 0.2), seed=settings["seed"], scale=settings.get("scale", 1.0)
    )


@lru_cache(maxsize=4)
def _synthetic(seed: int) -> Split:
    return huber_task(100, 500, 5, observed=0.15, seed=seed).split


# ------------------------------------------------------------------ the mechanisms by themselves


def curves(settings: Settings, sources: Sources) -> list[Record]:
    """Densities of noise of variance 2; ε over variance for a sensitivity of 1; variance over
    the number of them.
    """
    noise, what = settings["noise"], settings["what"]
    if what == "density":
        made = of_variance(noise, 2.0)
        return [{"t": float(t), "density": float(made.density(t))} for t in np.linspace(-6, 6, 121)]
    if what == "price":
        variances = np.geomspace(1.05, 50, 40)
        return [
            {
                "variance": float(v),
                "pure ε": _pure(noise, float(v)),
                "ε at 1e-5": _at_delta(noise, float(v)),
            }
            for v in variances
        ]
    counts = [2**k for k in range(9) if 2**k <= settings["most"]]
    return [{"releases": n, "variance needed": _needed(noise, n)} for n in counts]


def _pure(noise: str, variance: float) -> float:
    return of_variance(noise, variance).epsilon(1.0)


def _at_delta(noise: str, variance: float) -> float:
    return of_variance(noise, variance).epsilon(1.0, DELTA)


def _needed(noise: str, releases: int) -> float:
    """The least variance with which that many releases of sensitivity 1 cost (1, 1e-5), by the
    best accountant.
    """
    best = math.inf
    for alpha in (0.25, 0.5, 1.0, 2.0, 4.0) if noise == "huber" else (None,):
        for accountant in ("gdp",) if noise == "gaussian" else ("gdp", "pld"):
            best = min(
                best, calibrate([Event(noise, 1.0, releases, alpha)], 1.0, DELTA, accountant) ** 2
            )
    return best
