"""The private algorithms, each a frozen value in a file of its own that reads like its paper.

`algorithm` says what an algorithm is. A model (`discreet.models`) is a thin shell around one of these; ``method=`` of
the shell takes any value of the right kind, with every knob. `ALGORITHMS` says which file holds which, by the name
under which a saved model keeps it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from discreet.errors import DataError
from discreet.models.algorithms.algorithm import Algorithm, Learnt, field_names
from discreet.models.read_outs import HistoryRows

__all__ = ["ALGORITHMS", "Algorithm", "Learnt", "HistoryRows", "algorithm_class", "algorithm_from", "field_names"]

ALGORITHMS = {
    "pair ranking": ("discreet.models.algorithms.pair_ranking", "PairRanking"),
    "residual gradient": ("discreet.models.algorithms.residual_gradient", "ResidualGradient"),
    "noisy solve": ("discreet.models.algorithms.noisy_solve", "NoisySolve"),
    "projected gradient": ("discreet.models.algorithms.projected_gradient", "ProjectedGradient"),
    "robust solve": ("discreet.models.algorithms.robust_solve", "RobustSolve"),
    "Frank–Wolfe": ("discreet.models.algorithms.frank_wolfe", "FrankWolfe"),
    "covariance SVD": ("discreet.models.algorithms.covariance", "CovarianceSVD"),
    "Langevin": ("discreet.models.algorithms.langevin", "Langevin"),
    "Poisson descent": ("discreet.models.algorithms.poisson_descent", "PoissonDescent"),
}


def algorithm_from(document: Mapping[str, Any]) -> Algorithm:
    """The algorithm that ``to_dict`` described."""
    return algorithm_class(document.get("name")).from_dict(document)


def algorithm_class(name: str | None) -> type[Algorithm]:
    """The class of the algorithm of that name, imported on first use."""
    if name not in ALGORITHMS:
        raise DataError(f"there is no algorithm {name!r} in this version of discreet")
    module, cls = ALGORITHMS[name]
    found: type[Algorithm] = getattr(importlib.import_module(module), cls)
    return found
