"""``discreet export --onnx``: a history in, the best items out, as one ONNX graph for any runtime.

Inputs: ``items`` (int64, positions of a history's items in the catalog), ``ratings`` (float32, one
each) and ``n`` (int64, one number: how many to return). Outputs: ``best`` (int64, positions,
without those of the history) and ``scores`` (float32). The metadata of the file hold the ids and
titles in the order of the catalog, the usual rating, and the privacy statement.

The user's vector is computed in double precision as `discreet.models.fold_in` does, least squares
by Gauss-Jordan elimination in a loop (ONNX has no solver; the systems are positive definite, so no
pivoting is needed). Needs ``discreet[onnx]`` to write; to read, a runtime with opset 17.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ConfigError
from discreet.models.fold_in import (
    ALSFoldIn,
    CommunityFoldIn,
    CommunityPairsFoldIn,
    ConstantFoldIn,
    FoldIn,
    LeastSquaresFoldIn,
    PosteriorMeanFoldIn,
    UserMeanFoldIn,
)

if TYPE_CHECKING:
    from discreet.models.scorer import Scorer
    from discreet.models.storage.load_scorer import OpenedModel

OPSET = 17
IR_VERSION = 8  # of opset 17


class Graph:
    """Builder of a graph: nodes and constants in order; values are names."""

    def __init__(self, prefix: str = "") -> None:
        try:
            from onnx import helper, numpy_helper
        except ImportError as error:
            raise ConfigError(
                "Writing ONNX needs the package onnx. Install it: pip install 'discreet[onnx]'."
            ) from error
        self.helper = helper
        self.numpy_helper = numpy_helper
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def __call__(self, operator: str, *inputs: str | float, **attributes: Any) -> str:
        """Add a node and return its output; numbers among the inputs are constants."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        output = f"{self.prefix}x{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, names, [output], **attributes))
        return output

    def double(self, x: str) -> str:
        return self("Cast", x, to=self.helper.np_dtype_to_tensor_dtype(np.dtype(np.float64)))

    def single(self, x: str) -> str:
        return self("Cast", x, to=self.helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)))

    def total(self, x: str) -> str:
        return self("ReduceSum", x, keepdims=0)


def write_onnx(opened: OpenedModel, file: Path) -> dict[str, Any]:
    """Write the graph of a saved model, completely or not at all, and describe it."""
    from discreet.data.atomic_files import atomic_write

    content = _make_model(opened).SerializeToString()
    with atomic_write(file) as aside:
        aside.write_bytes(content)
    return {"items": len(opened.scorer), "bytes": len(content)}


def _make_model(opened: OpenedModel) -> Any:
    g = Graph()
    scorer = opened.scorer
    helper = g.helper
    vector, offset = _fold(g, scorer)
    factors = scorer.fold_in_rule.score_factors(scorer.factors)
    scores = g.constant(scorer.biases, np.float32)
    if factors.shape[1]:
        product = g("MatMul", g.constant(factors, np.float32), g.single(vector))
        scores = g("Add", product, scores)
    nothing = g("Expand", g.constant(-np.inf, np.float32), g("Shape", "items"))
    unseen = g("ScatterElements", scores, "items", nothing, axis=0)
    left = g("Sub", g.constant(len(scorer), np.int64), g("Size", "items"))
    count = g("Reshape", g("Min", "n", left), g.constant([1], np.int64))
    g.nodes.append(helper.make_node("TopK", [unseen, count], ["raw", "best"]))
    clipped = g("Add", "raw", g.single(offset))
    if scorer.rating_range is not None:
        clipped = g("Clip", clipped, *(g.constant(x, np.float32) for x in scorer.rating_range))
    g.nodes.append(helper.make_node("Identity", [clipped], ["scores"]))
    whole, real = (helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in ("i8", "f4"))
    graph = helper.make_graph(
        g.nodes,
        "discreet",
        [
            helper.make_tensor_value_info("items", whole, ["length"]),
            helper.make_tensor_value_info("ratings", real, ["length"]),
            helper.make_tensor_value_info("n", whole, [1]),
        ],
        [
            helper.make_tensor_value_info("best", whole, ["found"]),
            helper.make_tensor_value_info("scores", real, ["found"]),
        ],
        g.constants,
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
    titles = None if scorer.titles is None else scorer.titles.tolist()
    about = {"item_ids": scorer.item_ids.tolist(), "titles": titles}
    about |= {"default_rating": scorer.default_rating, "privacy": opened.statement}
    helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    return model


def _fold(g: Graph, scorer: Scorer) -> tuple[str, str]:
    """Emit the user's vector and offset, in double precision."""
    rule = scorer.fold_in_rule
    folds: dict[type[FoldIn], Callable[[Graph, Any, Scorer], tuple[str, str]]] = {
        ConstantFoldIn: lambda g, rule, scorer: (_zeros(g, scorer), g.constant(0.0)),
        UserMeanFoldIn: _fold_user_mean,
        PosteriorMeanFoldIn: _fold_posterior_mean,
        CommunityFoldIn: _fold_communities,
        CommunityPairsFoldIn: _fold_communities_and_pairs,
        LeastSquaresFoldIn: _fold_least_squares,
        ALSFoldIn: _fold_als,
    }
    if type(rule) not in folds or (isinstance(rule, ALSFoldIn) and rule.transition):
        raise ConfigError(
            f"Histories of this model are read by {rule.kind!r}, which has no ONNX graph. Export"
            " --web, or serve it."
        )
    return folds[type(rule)](g, rule, scorer)


def _zeros(g: Graph, scorer: Scorer) -> str:
    return g.constant(np.zeros(scorer.factors.shape[1]))


def _fold_user_mean(g: Graph, rule: UserMeanFoldIn, scorer: Scorer) -> tuple[str, str]:
    if not rule.personal:
        return _zeros(g, scorer), g.constant(rule.mean)
    left = g("Sub", g("Sub", g.double("ratings"), rule.mean), _biases(g, scorer))
    count = g("Max", g("Add", _count(g), rule.damping), 1e-9)
    return _zeros(g, scorer), g("Add", rule.mean, g("Div", g.total(left), count))


def _fold_posterior_mean(g: Graph, rule: PosteriorMeanFoldIn, scorer: Scorer) -> tuple[str, str]:
    place = g("Gather", g.constant(rule.place, np.int64), "items")
    known = g.double(g("GreaterOrEqual", place, g.constant(0, np.int64)))
    likes = _likes(g, rule)
    x = g("Mul", likes, known)
    length = g("Sqrt", g.total(g("Mul", x, x)))
    gain = g("Gather", g.constant(rule.gain), g("Max", place, g.constant(0, np.int64)))
    total = g("MatMul", x, gain)
    some = g("Greater", length, 0.0)
    vector = g("Add", g.constant(rule.base), g("Div", total, g("Where", some, length, 1.0)))
    prior = g.constant(rule.prior)
    if rule.levels:
        liked = rule.high if rule.like_threshold is None else rule.like_threshold
        best = g("ReduceMax", g("Concat", x, g.constant([0.0]), axis=0), keepdims=0)
        scale = (rule.high - rule.low) / max(liked - rule.low, 1e-9)
        kappa = g("Min", g("Mul", best, scale), 1.0)
        vector = g("Add", prior, g("Mul", kappa, g("Sub", vector, prior)))
    return g("Where", some, vector, prior), g.constant(0.0)


def _likes(g: Graph, rule: PosteriorMeanFoldIn | CommunityFoldIn) -> str:
    """Return how much each item of the history is liked, from 0 to 1."""
    y = g.double("ratings")
    if rule.levels:
        share = g("Div", g("Sub", y, rule.low), rule.high - rule.low)
        return g("Div", g("Round", g("Mul", rule.levels, _cut(g, share))), rule.levels)
    if rule.like_threshold is None:
        return g("Add", g("Mul", y, 0.0), 1.0)
    return g.double(g("GreaterOrEqual", y, rule.like_threshold))


def _fold_communities_and_pairs(
    g: Graph, rule: CommunityPairsFoldIn, scorer: Scorer
) -> tuple[str, str]:
    theta, offset = _fold_communities(g, rule, scorer)
    return g("Add", theta, _fold_posterior_mean(g, rule, scorer)[0]), offset


def _fold_communities(
    g: Graph, rule: CommunityFoldIn | CommunityPairsFoldIn, scorer: Scorer
) -> tuple[str, str]:
    """Emit the steps of expectation maximization one after the other: there are few."""
    x = _likes(g, rule)
    column = g("Reshape", x, g.constant([-1, 1], np.int64))
    P = g.double(g("Gather", g.constant(scorer.factors, np.float32), "items"))
    start = g.constant(rule.shares)
    first = g.constant([0], np.int64)
    theta = start
    for _ in range(rule.steps):
        part = g("Mul", P, theta)
        total = g("ReduceSum", part, g.constant([1], np.int64), keepdims=1)
        own = g("ReduceSum", g("Mul", g("Div", part, total), column), first, keepdims=0)
        new = g("Add", g("Mul", start, rule.strength), own)
        theta = g("Div", new, g.total(new))
    liked = g("Greater", g.total(x), 0.0)
    return g("Where", liked, theta, start), g.constant(0.0)


def _fold_least_squares(g: Graph, rule: LeastSquaresFoldIn, scorer: Scorer) -> tuple[str, str]:
    y = g.double("ratings")
    known = (
        None
        if rule.known is None
        else g.double(g("Gather", g.constant(rule.known, np.int64), "items"))
    )
    offset = g.constant(0.0)
    target = y
    if rule.centering == "liked":
        target = g("Add", g("Mul", y, 0.0), 1.0)
    elif rule.centering == "own deviation":
        left = g("Sub", g("Sub", y, rule.center), _biases(g, scorer))
        own = g("Div", g.total(left), g("Add", _count(g), rule.prior_count))
        offset = g("Add", own, rule.center)
        target = g("Sub", left, own)
    elif rule.centering != "none":
        if rule.centering == "own mean":
            total = g("Add", g.total(y), rule.center * rule.prior_count)
            offset = g("Div", total, g("Add", _count(g), rule.prior_count))
        else:
            offset = g.constant(rule.center)
        target = g("Sub", g("Sub", y, offset), _biases(g, scorer))
    if rule.masked:
        assert known is not None
        target = g("Mul", target, known)
    counted = _count(g)
    if rule.counted == "known":
        assert known is not None
        counted = g.total(known)
    ridge = g("Mul", rule.ridge, g("Pow", g("Max", counted, 1.0), rule.exponent))
    if rule.intercept:
        target = g("Sub", target, rule.second_center)
    vector, own = _solve(g, scorer, target, ridge, rule.intercept, rule.shared)
    if rule.intercept:
        offset = g("Add", offset, g("Add", own, rule.second_center))
    if rule.tail:
        mean = g("Div", g.total(y), g("Max", _count(g), 1.0))
        mean = g("Where", g("Greater", _count(g), 0.0), mean, offset)
        last = g("Reshape", g("Sub", mean, offset), g.constant([1], np.int64))
        vector = g("Concat", vector, last, axis=0)
    return vector, offset


def _fold_als(g: Graph, rule: ALSFoldIn, scorer: Scorer) -> tuple[str, str]:
    ridge = g("Mul", rule.ridge, g("Pow", g("Max", _count(g), 1.0), rule.exponent))
    y = g.double("ratings")
    if rule.explicit:
        target = g("Sub", g("Sub", y, rule.mean), _biases(g, scorer))
    else:
        target = g("Add", g("Mul", y, 0.0), 1.0)
    intercept = rule.intercept if rule.explicit else 0.0
    vector, own = _solve(g, scorer, target, ridge, intercept, rule.shared)
    return vector, g("Add", own, rule.mean)


def _solve(
    g: Graph, scorer: Scorer, target: str, ridge: str, intercept: float, shared: Any
) -> tuple[str, str]:
    """Emit ridge regression of `target` on the factors of the history's items.

    With an `intercept` there is one more coordinate of that value. Returns the vector, and the
    intercept times its coefficient.
    """
    V = np.asarray(scorer.factors, np.float64)
    r = V.shape[1]
    size = r + bool(intercept)
    if not size:
        return g.constant(np.zeros(0)), g.constant(0.0)
    S = np.zeros((size, size))
    S[:r, :r] = 0.0 if shared is None else shared
    Y = g("Gather", g.constant(V if not intercept else np.insert(V, r, intercept, 1)), "items")
    gram = g("MatMul", g("Transpose", Y, perm=[1, 0]), Y)
    eye = g.constant(np.eye(size))
    A = g("Add", g("Add", gram, g.constant(S)), g("Mul", ridge, eye))
    # not Yᵀ target: onnxruntime 1.31 fuses the transposition into a product with a vector, wrongly
    b = g("Reshape", g("MatMul", target, Y), g.constant([size, 1], np.int64))
    x = _eliminate(g, g("Concat", A, b, axis=1), eye, size)
    if not intercept:
        return x, g.constant(0.0)
    own = g("Mul", g("Gather", x, g.constant(r, np.int64)), intercept)
    return g("Slice", x, g.constant([0], np.int64), g.constant([r], np.int64)), own


def _eliminate(g: Graph, system: str, eye: str, size: int) -> str:
    """Emit Gauss-Jordan elimination of [A | b]: what remains of its last column is A⁻¹ b.

    Step k takes c · (row k / pivot) from all rows, where c is column k less 1 in row k: that makes
    the column a unit vector.
    """
    body = Graph("step_")
    helper = g.helper
    row = body("Gather", "system", "k", axis=0)
    unit = body("Div", row, body("Gather", row, "k", axis=0))
    column = body("Sub", body("Gather", "system", "k", axis=1), body("Gather", eye, "k", axis=0))
    shape = [body.constant(ends, np.int64) for ends in ([size, 1], [1, size + 1])]
    outer = body("Mul", body("Reshape", column, shape[0]), body("Reshape", unit, shape[1]))
    body.nodes.append(helper.make_node("Sub", ["system", outer], ["next"]))
    body.nodes.append(helper.make_node("Identity", ["going"], ["go"]))
    whole, real, truth = (
        helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in ("i8", "f8", "?")
    )
    wide = [size, size + 1]
    step = helper.make_graph(
        body.nodes,
        "step",
        [
            helper.make_tensor_value_info("k", whole, []),
            helper.make_tensor_value_info("going", truth, []),
            helper.make_tensor_value_info("system", real, wide),
        ],
        [
            helper.make_tensor_value_info("go", truth, []),
            helper.make_tensor_value_info("next", real, wide),
        ],
        body.constants,
    )
    done = g("Loop", g.constant(size, np.int64), g.constant(True, np.bool_), system, body=step)
    return g("Gather", done, g.constant(size, np.int64), axis=1)


def _biases(g: Graph, scorer: Scorer) -> str:
    return g("Gather", g.constant(scorer.biases), "items")


def _count(g: Graph) -> str:
    return g.double(g("Size", "items"))


def _cut(g: Graph, x: str) -> str:
    return g("Min", g("Max", x, 0.0), 1.0)
