"""The Huber paper to the letter: it computes what the paper says, breaks the rules of the kit,
and says so itself.
"""

import math

import numpy as np
import pytest

import discreet
from discreet.errors import DataError
from discreet.kernels import threads
from discreet.testing import ConformanceError, check_private_model, rule_names
from research.huber_as_printed import HuberALSAsPrinted, HuberAsPrinted
from research.huber_printed import printed
from support.baseline_twins import dense


@pytest.fixture(autouse=True)
def _small():
    threads.set_threads(1)
    yield
    threads.set_threads(None)


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((200, 30)) < 0.4)
    taste = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 30))
    stars = np.clip(np.round(3 + taste[user, item]), 1, 5)
    return discreet.Ratings.from_arrays(user, item, stars, item_ids=range(30))


def model(noise="seeded", random_state=0, **knobs):
    return HuberALSAsPrinted(
        epsilon=1.0,
        rating_range=(1, 5),
        noise=noise,
        random_state=random_state,
        algorithm=HuberAsPrinted(**knobs),
    )


@pytest.mark.parametrize("solver", ["als", "irls"])
def test_as_printed_it_breaks_them(solver):
    with pytest.raises(ConformanceError) as caught:
        check_private_model(
            model(factors=3, solver=solver, iterations=2, inner_iterations=2), people=4, draws=200
        )
    broken = caught.value.report.broken
    assert {"plan", "one access", "statement", "post-processing"} <= set(broken)
    assert set(broken) <= set(rule_names())


def test_as_printed_it_says_so(ratings, tmp_path):
    fitted = model("secure", None, factors=3, iterations=2).fit(ratings)
    assert fitted.privacy_.epsilon == math.inf
    assert not fitted.privacy_.private
    assert str(fitted.privacy_).startswith(
        "NOT PRIVATE: ε is infinite, because as printed the Gram matrices leave"
    )
    assert "entropy" not in str(fitted.privacy_)
    fitted.save(tmp_path / "m")
    assert (
        (tmp_path / "m" / "README.md")
        .read_text(encoding="utf-8")
        .split("---\n")[-1]
        .lstrip()
        .startswith("# NOT PRIVATE")
    )
    # the package does not know what is research only
    with pytest.raises(DataError, match="does not have"):
        discreet.load(tmp_path / "m")


def test_irls_with_a_huge_transition_is_als(ratings):
    """Starting afresh does not matter when all weights are 1."""
    same = dict(factors=3, iterations=3, variance=0.0)
    als = model(solver="als", **same).fit(ratings)
    irls = model(solver="irls", transition=1e9, inner_iterations=3, **same).fit(ratings)
    np.testing.assert_allclose(irls.item_factors_, als.item_factors_, rtol=1e-5)


def test_one_irls_iteration_is_one_weighted_solve(ratings):
    """As printed and without noise, from Algorithm 3's own start."""
    fitted = model(
        factors=2, solver="irls", iterations=1, inner_iterations=1, transition=0.5, variance=0.0
    )
    fitted.fit(ratings)
    X, M = dense(ratings)
    V = np.array(fitted.details_["previous_factors"])
    U = np.linalg.solve(np.einsum("ij,ja,jb->iab", M, V, V) + 0.5 * np.eye(2), (X @ V)[..., None])[
        ..., 0
    ]
    theta = np.random.default_rng(0).standard_normal((30, 2))
    W = M * np.minimum(1, 0.5 / np.abs(X - U @ theta.T))
    for j in range(30):
        expected = np.linalg.solve(
            U.T @ (W[:, j, None] * U) + 0.5 * np.eye(2), U.T @ (W[:, j] * X[:, j])
        )
        np.testing.assert_allclose(fitted.item_factors_[j], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("inner", "solver"), [(0, "als"), (3, "irls")])
def test_the_short_form_of_the_tables_is_the_printed_model(ratings, inner, solver):
    fitted = model(
        random_state=5,
        factors=2,
        solver=solver,
        iterations=4,
        inner_iterations=3,
        transition=0.8,
        variance=0.0,
    ).fit(ratings)
    start = np.random.default_rng(5).standard_normal((30, 2))
    _, V = printed(
        ratings, 2, None, np.random.default_rng(5), steps=4, inner=inner, alpha=0.8, V=start
    )
    np.testing.assert_allclose(fitted.item_factors_, V, rtol=1e-3, atol=1e-4)
