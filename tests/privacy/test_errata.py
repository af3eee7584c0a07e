"""The papers' errata (docs/errata.md): a test for each. 1, 3, 7, 8, 13 and 14 are in test_papers
too.
"""

import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import discreet
from discreet.kernels import solve_psd
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.accounting.mechanisms import Gaussian, Huber, Laplace
from discreet.privacy.release import unsafe
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.base import isometry, pack, unpack
from discreet.privacy.statistics.bounds import SHAVE, Bounds, clip_rows
from discreet.privacy.statistics.contributions import GlobalGram, ItemGrams, ItemSums
from discreet.privacy.statistics.gradients import WeightedResidualGradient
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import Choose, ComputeResiduals, Solve
from support.sealed_helpers import block, distance, exact, make, quick
from support.statistic_audit import Copies


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def test_erratum_02_clipping_takes_the_minimum():
    """clip(u, c) is printed with max(1, c/‖u‖), which lengthens short vectors and leaves long
    ones as they are.
    """
    U = np.array([[0.3, 0.4], [30.0, 40.0], [0.0, 0.0]])
    norms = np.linalg.norm(clip_rows(U, Bounds(items=1, norm=2.0)), axis=1)
    assert norms == pytest.approx([0.5, 2.0, 0.0], rel=2e-6)
    printed = [np.linalg.norm(u * max(1, 2.0 / np.linalg.norm(u))) for u in U[:2]]
    assert printed == pytest.approx([2.0, 50.0])


def test_erratum_04_a_users_vector_depends_on_nobody_else():
    """With weights c_i^ν / Z, Z a public number and not the mean over users, the vector stays
    when others come.
    """
    rng = np.random.default_rng(0)
    V = rng.normal(size=(30, 3)).astype(np.float32)
    own = {3: 1.0, 7: -0.5, 20: 0.9}
    heavy = [dict.fromkeys(range(30), 1.0)] * 20
    vectors = []
    for company in ([], heavy[:1], heavy):
        users = seal(make([own, *company], 30), Bounds(items=5, rating=1.0))
        users.apply(Solve(V, 0.5, exponent=0.7, scale=10.0**-0.7))
        vectors.append(block(users)["vectors"][0])
    assert np.array_equal(vectors[0], vectors[1])
    assert np.array_equal(vectors[0], vectors[2])
    A = V[[3, 7, 20]].T @ V[[3, 7, 20]] + 0.5 * (3 / 10) ** 0.7 * np.eye(3)
    u = np.linalg.solve(A, V[[3, 7, 20]].T @ [1.0, -0.5, 0.9])
    assert vectors[0] == pytest.approx(u * min(1, 1 / np.linalg.norm(u)), rel=1e-4)


def test_erratum_05_the_packing_is_isometric():
    """(diagonal, √2 × off-diagonal) of u uᵀ has norm ‖u‖², so that off-diagonal noise σ/√2
    costs the same.
    """
    u = np.random.default_rng(0).normal(size=(50, 6))
    packed = pack(u[:, :, None] * u[:, None, :]) * isometry(6)
    assert np.linalg.norm(packed, axis=1) == pytest.approx((u**2).sum(axis=1), rel=1e-13)


@pytest.mark.parametrize("grade", ["secure", "seeded"])
def test_erratum_05_off_diagonal_noise_is_smaller_by_the_root_of_two(grade):
    """Chi-square on either part, false alarm below 1e-9 each."""
    users = seal(make([], 3), Bounds(items=1, norm=1.5))
    users.apply(Solve(np.ones((3, 4), np.float32), 1.0))
    session = Session(Plan.explicit([Release("global", 1, 2.0)], 1e-6), grade)
    noise = unpack(session.release("global", Copies(KEY, users.sum(GlobalGram()), 5000)), 4)
    sigma = 2.0 * 1.5**2
    diagonal = noise[:, range(4), range(4)] / sigma
    above = noise[:, *np.triu_indices(4, 1)] / (sigma / math.sqrt(2))
    for part in (diagonal, above):
        assert abs(stats.norm.isf(stats.chi2.sf((part**2).sum(), part.size))) < 6.2
    assert np.array_equal(noise, noise.transpose(0, 2, 1))


def test_erratum_06_the_ridge_comes_after_the_projection():
    """Printed is Π(G̃ + λI), whose smallest eigenvalue may be 0; Π(G̃) + λI has at least λ, so
    ‖x‖ ≤ ‖b‖ / λ.
    """
    rng = np.random.default_rng(1)
    A = rng.normal(size=(40, 5, 5)) * 10
    A += A.transpose(0, 2, 1)
    b, ridge = rng.normal(size=(40, 5)), np.full(40, 0.7)
    x = solve_psd(A.copy(), b, ridge)
    assert (np.linalg.norm(x, axis=1) <= np.linalg.norm(b, axis=1) / 0.7 * (1 + 1e-9)).all()
    values = np.linalg.eigvalsh(A + 0.7 * np.eye(5))
    # the printed order projects these to 0, and the pseudo-inverse drops their direction
    assert (values < -0.7).any()
    assert (np.maximum(np.linalg.eigvalsh(A), 0) + 0.7 >= 0.7).all()


def test_erratum_07_noisy_counts_decide_which_items_are_frequent(monkeypatch):
    """With much noise on the counts, the frequent items are those of the released counts, not
    of the data.
    """
    seen, release = {}, Session.release
    monkeypatch.setattr(
        Session,
        "release",
        lambda self, name, *rest: seen.setdefault(name, release(self, name, *rest)),
    )
    rng = np.random.default_rng(0)
    rows = [
        {int(j): float(rng.integers(1, 6)) for j in range(40) if rng.random() < 0.9 - j / 50}
        for _ in range(400)
    ]
    model = discreet.DPALS.configure(
        factors=2,
        epsilon=1e6,
        max_items=20,
        item_fraction=0.5,
        rating_range=(1, 5),
        iterations=1,
        noise="seeded",
        random_state=3,
        sigmas={"counts": 400.0, "recounts": 1.0, "gram": 1.0, "sum": 1.0},
        delta=1e-6,
    ).fit(make(rows, 40))
    released = model.details_["frequent"]
    assert released == np.sort(np.argsort(-seen["counts"])[:20]).tolist()
    assert released != list(range(20))  # which is what the data would say
    names = [entry.name for entry in model.privacy_.ledger.entries]
    assert names.count("counts") == names.count("recounts") == 1


def dplmc(rows, G=1.3, alpha=0.7, n_items=6, steer=-1e9):
    """R and the gradient of DPLMC for users whose vectors a public bias turns along the factors
    of their items.
    """
    V = np.repeat(np.eye(2), n_items // 2, axis=0).astype(np.float32) * 1e-3
    users = seal(make(rows, n_items), Bounds(items=n_items, rating=5.0, norm=alpha))
    users.apply(Solve(V, 1e-9, bias=np.full(n_items, steer)))
    users.apply(ComputeResiduals(V, G))
    return users.sum(GlobalGram()), users.sum(WeightedResidualGradient())


def test_erratum_09_the_constants_of_dplmc():
    """Worst pairs reach √2 α₁² and 2 G α₁. The proof says 2 α₁² and 4 G α₁, and the theorem
    prices √8 G α₁.
    """
    G, alpha, others = 1.3, 0.7, [{1: 3.0, 4: 2.0}]
    high, low, elsewhere = {0: 1e6, 1: 1e6}, {0: -1e6, 1: -1e6}, {4: 1e6}
    stated = dplmc(others)
    wanted = {
        "add-remove": (alpha**2, G * alpha, [high], []),
        "replace-one": (math.sqrt(2) * alpha**2, 2 * G * alpha, [high], None),
    }
    for relation, (gram, gradient, one, other) in wanted.items():
        assert stated[0].sensitivity(relation, "l2") == pytest.approx(gram, rel=1e-12)
        assert stated[1].sensitivity(relation, "l2") == pytest.approx(gradient, rel=1e-12)
        for index, most in ((0, gram), (1, gradient)):
            against = other if other is not None else [[elsewhere], [low]][index]
            a, b = (dplmc(others + rows)[index] for rows in (one, against))
            assert 0.999 * most <= distance(exact(a), exact(b), a, "l2") <= most
    # ρ = Δ²/2 per unit of γ/ν²
    theorem = [math.sqrt(2 * rho) for rho in (2 * alpha**4, 4 * G**2 * alpha**2)]
    assert theorem == pytest.approx([2 * alpha**2, math.sqrt(8) * G * alpha])
    assert theorem[0] > wanted["replace-one"][0]
    assert wanted["replace-one"][1] < theorem[1] < 4 * G * alpha


def test_erratum_10_residuals_and_vectors_are_cut_from_the_first_step_on():
    """No first step goes free: whatever the ratings, the first gradient of a user has norm G α₁
    at most.
    """
    for history in ({0: 1e30}, dict.fromkeys(range(6), -1e30), {0: math.inf, 3: 5.0}):
        gram, gradient = (exact(statistic) for statistic in dplmc([history], steer=0.0))
        assert np.linalg.norm(gradient) <= 1.3 * 0.7
        assert np.linalg.norm(gram * isometry(2)) <= 0.7**2


def test_erratum_10_no_number_of_ratings_divides_the_gradient():
    """p = |Ω|/(mn) would make everybody's share depend on everybody: two groups add up, to the
    last bit, instead.
    """
    one, two = [{0: 5.0, 1: 1.0}, {2: 3.0}], [dict.fromkeys(range(6), 4.0)] * 3
    for part in (0, 1):
        together, first, second = (
            exact(dplmc(rows, steer=0.0)[part]) for rows in (one + two, one, two)
        )
        assert np.array_equal(together, first + second)


@pytest.mark.parametrize("noise", [Huber(1.5, 1.0), Laplace(1.0), Gaussian(1.0)], ids=repr)
def test_erratum_12_the_log_ratio_of_a_printed_item_vector_has_no_bound(noise):
    """v = (A + λI)⁻¹ (b + t) has the density |det(A + λI)| f((A + λI) v − b). If one user's entry
    changes A, log p(v) − log p'(v) grows with ‖v‖, in proportion or faster: no ε bounds it.
    """
    rng = np.random.default_rng(0)
    others = rng.uniform(-1, 1, (20, 3))
    own = np.array([0.5, 0.5, 0.5])  # data are bounded: all vectors and ratings are at most 1
    direction = np.ones(3) / math.sqrt(3)

    def log_density(vectors, length):
        A = vectors.T @ vectors + 0.5 * np.eye(3)
        left = A @ (length * direction) - vectors.sum(axis=0)
        # the tail is compared in units in which no density is 0
        return np.linalg.slogdet(A)[1] + log_tail(noise, left)

    def log_tail(noise, t):
        size = np.abs(t) / noise.scale
        if isinstance(noise, Gaussian):
            return -(size**2 / 2).sum()
        if isinstance(noise, Laplace):
            return -size.sum()
        a = noise.alpha
        return -np.where(size <= a, size**2 / 2, a * size - a**2 / 2).sum()

    for t in (0.3, 2.0, 5.0):  # the formulas are those of the library's densities
        known = np.log(noise.density(t) / noise.density(0.0))
        assert log_tail(noise, np.array([t])) == pytest.approx(known)
    ratios = [
        log_density(others, length) - log_density(np.vstack([others, own]), length)
        for length in 10.0 ** np.arange(2, 9)
    ]
    assert ratios[0] > 10
    assert all(after > 9 * before for before, after in pairwise(ratios))


def test_erratum_12_the_printed_huber_release_has_no_finite_epsilon():
    """What a session states of it: the right-hand side costs what its noise costs, and the Gram
    matrices, which leave without noise, make ε infinite.
    """
    users = seal(make([{0: 5.0, 1: 2.0}, {1: 4.0}], 3), Bounds(items=3, rating=5.0, norm=10.0))
    users.apply(Choose())
    users.apply(Solve(np.ones((3, 2)), 1.0))
    plan = Plan.calibrate([Release("sum", mechanism="huber", alpha=1.0)], Budget(5.0, 0.0))
    session = Session(plan)
    session.release("sum", users.sum(ItemSums()))
    assert session.statement.epsilon == pytest.approx(5.0)
    gram = unsafe.reveal(session, "gram", users.sum(ItemGrams()))
    U = block(users)["vectors"]
    assert gram[0, 0] == pytest.approx(SHAVE * U[0, 0] ** 2)
    assert session.statement.epsilon == math.inf
    assert str(session.statement).startswith("NOT PRIVATE: gram")


def test_every_erratum_has_its_test():
    text = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py")
    )
    found = sorted({int(number) for number in re.findall(r"def test_erratum_(\d\d)_", text)})
    assert found == list(range(1, 15))
