"""White-box audit: draws of every mechanism on every statistic cost what is claimed, and faults
that cost more show.

Secure noise has no seed. Each audit of it may call a right release broken (or loose) with
probability 1e-9, and there are fewer than forty of them here: one false alarm in 25 million runs.
"""

import functools
import math

import numpy as np
import pytest
from test_statistics import ALL_HIGH, ELSEWHERE, HIGH, LOW, NOTHING, statistic_of

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, PrivacyError
from discreet.privacy.accounting.mechanisms import Laplace
from discreet.privacy.release.plan import Plan, Release
from discreet.privacy.release.session import Session
from discreet.privacy.release.unsafe import NoNoise
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import GlobalGram, ItemCounts, RatingSum
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import Choose, Solve
from support.fault_helpers import FAULTS, planted
from support.sealed_helpers import STATISTICS, make, quick
from support.statistic_audit import AuditResult, Copies, audit, audit_statistic

GRADES = [("secure", None), ("seeded", 20)]
OPPOSITE = {"item_sums": LOW, "gradient": LOW, "rating_sum": LOW, "rating_count": NOTHING}


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def one_entry(name, rating):
    """The statistic over one item and a vector along one axis: all that a user moves in ℓ₁ is
    in one entry.
    """
    bounds = Bounds(items=1, rating=1.5, norm=0.7, norm_l1=0.7)
    V = np.array([[1e-3, 0.0]], np.float32)
    users = seal(make([{0: 1.0}] + [{0: rating}] * (rating is not None), 1), bounds)
    users.apply(Choose())
    users.apply(Solve(V, 1e-9, bias=np.array([-1e9])))
    return STATISTICS[name](users, V)


@pytest.mark.parametrize("grade", GRADES, ids=["secure", "seeded"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("name", STATISTICS)
def test_gaussian_releases_cost_what_they_claim(name, relation, grade):
    other = None if relation == "add-remove" else OPPOSITE.get(name, ELSEWHERE)
    found = audit_statistic(
        statistic_of(name, HIGH),
        statistic_of(name, other),
        neighboring=relation,
        noise=grade[0],
        random_state=grade[1],
    )
    assert found.claimed == pytest.approx(4.0)
    assert found.verdict == "tight", str(found)
    assert found.high - found.low < 0.12 * found.claimed


@pytest.mark.parametrize("grade", GRADES, ids=["secure", "seeded"])
@pytest.mark.parametrize(
    ("mechanism", "alpha", "multiplier"), [("laplace", None, 0.7), ("huber", 0.5, 0.7)]
)
@pytest.mark.parametrize("name", STATISTICS)
def test_laplace_and_huber_releases_cost_what_they_claim(name, mechanism, alpha, multiplier, grade):
    kind = {"mechanism": mechanism, "alpha": alpha, "noise_multiplier": multiplier}
    found = audit_statistic(
        one_entry(name, 1e6),
        one_entry(name, None),
        **kind,
        noise=grade[0],
        random_state=grade[1],
        draws=60_000,
    )
    assert 1.5 < found.claimed < 3
    assert found.verdict == "tight", str(found)
    assert found.high - found.low < 0.4


@pytest.mark.parametrize("mechanism", ["laplace", "huber"])
def test_laplace_and_huber_when_a_user_is_replaced(mechanism):
    found = audit_statistic(
        one_entry("item_sums", 1e6),
        one_entry("item_sums", -1e6),
        mechanism=mechanism,
        alpha=0.5,
        noise_multiplier=0.7,
        neighboring="replace-one",
        draws=60_000,
    )
    assert found.verdict == "tight", str(found)


@pytest.mark.parametrize(("grade", "seed"), GRADES)
def test_a_thousand_releases_one_by_one(grade, seed):
    """The same through a thousand entries of a ledger instead of copies in one release."""
    present, absent = statistic_of("item_counts", HIGH), statistic_of("item_counts", None)
    session = Session(Plan.explicit([Release("counts", 2000, 0.25)], 1e-6), grade, seed)

    def release(there):
        return np.array(
            [session.release("counts", present if there else absent) for _ in range(1000)]
        )

    found = audit(release, 4.0, present.compute(KEY) - absent.compute(KEY))
    assert len(session.ledger.entries) == 2000
    assert found.verdict == "tight", str(found)


def steps(grade="secure", seed=None, draws=4000):
    """What a step of DPALS releases, all together, against the μ of the session's statement."""
    names = ("item_grams", "item_sums", "item_counts")
    plan = Plan.explicit(
        [Release(name, 1, weight) for name, weight in zip(names, (1.0, 0.5, 2.0), strict=True)],
        1e-6,
    )
    sides, claimed = {}, 0.0
    for there, history in ((True, HIGH), (False, None)):
        session = Session(plan, grade, seed)
        parts = [
            session.release(name, Copies(KEY, statistic_of(name, history, "ones"), draws))
            for name in names
        ]
        sides[there] = np.hstack([part.reshape(draws, -1) for part in parts])
        claimed = session.statement.mu
    moved, noise = [], []
    for name, weight in zip(names, (1.0, 0.5, 2.0), strict=True):
        present, absent = (statistic_of(name, history, "ones") for history in (HIGH, None))
        factor = present.weights("l2")
        moved.append((present.compute(KEY) - absent.compute(KEY)).ravel().astype(float))
        inverse = np.broadcast_to(1.0 if factor is None else factor, present.shape).ravel()
        noise.append(weight * present.sensitivity("add-remove", "l2") / inverse)
    return audit(sides.__getitem__, claimed, np.concatenate(moved) / np.concatenate(noise) ** 2)


@pytest.mark.parametrize(("grade", "seed"), GRADES)
def test_a_whole_step_costs_what_the_statement_says(grade, seed):
    found = steps(grade, seed)
    assert found.claimed == pytest.approx(math.sqrt(1 + 4 + 0.25))
    assert found.verdict == "tight", str(found)


# ---------------------------------------------------------------------- what an audit finds


def of(name, one=HIGH, other=None, along="axes", relation="add-remove", **further):
    """An audit of one statistic, to be repeated with a fault planted."""
    return lambda: audit_statistic(
        statistic_of(name, one, along, **further),
        statistic_of(name, other, along, **further),
        neighboring=relation,
        noise="seeded",
        random_state=5,
    )


def company(counts):
    """Twenty users of whom one may come first or not: their counts, or their sums of centered
    ratings.
    """
    made = []
    for first in ([{0: 1e6}], []):
        others = [{j: 1.0 + (i + j) % 5 for j in range(12)} for i in range(20)]
        ids = range(1 - len(first), 21)
        users = seal(make([*first, *others], 12, ids), Bounds(items=2, rating=1.0, center="user"))
        users.apply(Choose())
        made.append(users.sum(ItemCounts()) if counts else users.sum(RatingSum()))
    return audit_statistic(*made, noise="seeded", random_state=5)


def repeated(indptr, indices, ids):
    """Counts of somebody who comes twice; being refused is like not being there."""
    made = []
    for data in (
        (indptr, indices, np.ones(len(indices)), np.array(ids)),
        ([0], [], [], np.zeros(0, np.int64)),
    ):
        try:
            users = seal(Ratings.from_indices(*data, np.arange(3)), Bounds(items=2))
        except PrivacyError:
            users = seal(make([], 3), Bounds(items=2))
        users.apply(Choose())
        made.append(users.sum(ItemCounts()))
    return audit_statistic(*made, noise="seeded", random_state=5)


def present_or_not(make_users, ask):
    """An audit of the statistic `ask` of the users made with somebody and without."""
    return lambda: audit_statistic(
        *(make_users(there).sum(ask) for there in (True, False)), noise="seeded", random_state=5
    )


def with_intercept(there):
    users = seal(make([{0: 1e6}] * there, 1), Bounds(items=1, rating=1.0, norm=0.7))
    users.apply(Solve(np.full((1, 2), 1e-3), 1e-9, intercept=0.5))
    return users


def among_numbers(there):
    """Somebody called "x" among users with numbers for ids."""
    ids = [str(i) for i in range(20)] + ["x"] if there else list(range(20))
    users = seal(make([ALL_HIGH] * 20 + [{0: 1.0}] * there, 12, ids), Bounds(items=2))
    users.apply(Choose())
    return users


def beside_a_heavy_user(there):
    rows = [{0: 1.0}] * 20 + [dict.fromkeys(range(200), 0.0)] * there
    users = seal(make(rows, 200), Bounds(items=1, rating=1.0))
    users.apply(Solve(np.ones((200, 1)), 1.0, exponent=1.0))
    return users


def laplace():
    """Pure ε of Laplace noise on the counts of a user with four items: each entry may give away
    a fourth.
    """
    present, absent = (statistic_of("item_counts", history) for history in (HIGH, None))
    session = Session(Plan.explicit([Release("counts", 2, 0.7, "laplace")], 1e-6), "seeded", 5)
    drawn = {
        there: session.release("counts", Copies(KEY, statistic, 20_000)).reshape(20_000, -1)
        for there, statistic in ((True, present), (False, absent))
    }
    law = Laplace(session.ledger.entries[0].noise_multiplier / math.sqrt(2))
    return audit(
        drawn.__getitem__, law.epsilon(1.0) / len(HIGH), np.eye(12)[0], mechanism="laplace"
    )


#: What each fault makes of the cost of a release: a way to audit it that finds nothing as long as
#: the code is right.
AUDITED = {
    "vectors are not clipped": of("item_grams"),
    "vectors are clipped by max instead of min": of("global_gram", along="ones", norm=0.7),
    "√k is forgotten for Gram matrices": of("item_grams"),
    "√k is forgotten for right-hand sides": of("item_sums"),
    "the sum of ratings is charged with √k instead of k": of("rating_sum"),
    "repeated pairs are not refused": functools.partial(repeated, [0, 2], [1, 1], [0]),
    "repeated users are not refused": functools.partial(repeated, [0, 2, 4], [0, 1, 0, 1], [0, 0]),
    "one item more than k is contributed": of("rating_count", ALL_HIGH),
    "ratings are not clipped": of("item_sums"),
    "residuals on a descent are not clipped": of("gradient"),
    "covariance rows are not clipped": of("covariance"),
    "replacing a user is charged as removing one": of(
        "item_sums", HIGH, LOW, relation="replace-one"
    ),
    "off-diagonal noise is halved again": of("item_grams", along="ones"),
    "users are centered by the mean of all users": functools.partial(company, False),
    "choices depend on the row of a user": functools.partial(company, True),
    "the noise forgets the sensitivity": of("item_counts"),
    "Laplace noise is charged in the Euclidean norm": laplace,
    "only the first release is charged": steps,
    "an intercept is not taken from the norm": present_or_not(with_intercept, GlobalGram()),
    "choices depend on how a column of ids was read": present_or_not(among_numbers, ItemCounts()),
    "a user's ridge depends on all users' counts": present_or_not(
        beside_a_heavy_user, GlobalGram()
    ),
}


@pytest.mark.parametrize("fault", AUDITED)
def test_the_audit_flags_a_planted_fault_and_only_that(fault):
    assert AUDITED[fault]().verdict != "broken"
    with planted(fault):
        found = AUDITED[fault]()
    assert found.verdict == "broken", str(found)
    assert fault in FAULTS


def test_no_noise_at_all_is_infinitely_broken():
    found = audit_statistic(
        statistic_of("item_counts", HIGH), statistic_of("item_counts", None), noise=NoNoise()
    )
    assert found.verdict == "broken"
    assert found.low > 1e6


# ---------------------------------------------------------------------- the estimators themselves


def test_bounds_hold_as_often_as_they_say():
    """At error 0.2 instead of 1e-9, so that failures can be counted: in 400 audits at most 80
    and some more.
    """
    rng = np.random.default_rng(0)
    missed = {"gaussian": 0, "laplace": 0}
    for _ in range(400):
        gaussian = {True: rng.normal(1.5, size=300), False: rng.normal(0.0, size=300)}
        laplace = {True: rng.laplace(1.5, size=300), False: rng.laplace(0.0, size=300)}
        for kind, draws in (("gaussian", gaussian), ("laplace", laplace)):
            found = audit(draws.__getitem__, 1.5, np.float64(1.0), mechanism=kind, error=0.2)
            missed[kind] += not found.low <= 1.5 <= found.high
    assert missed["gaussian"] < 110
    assert missed["laplace"] < 110


def test_words_and_numbers_of_a_result():
    result = AuditResult("mu", 4.2, 4.1, 4.3, 4.0, 1000)
    assert result.verdict == "broken"
    assert result.mu == 4.2
    assert str(result) == "broken: μ = 4.2 in [4.1, 4.3] from 1,000 draws, 4 claimed"
    assert AuditResult("epsilon", 1.0, 0.8, 1.2, 1.1, 10).verdict == "tight"
    assert AuditResult("epsilon", 1.0, 0.8, 1.2, 1.1, 10).mu == pytest.approx(1.2320, abs=1e-4)
    assert AuditResult("epsilon", 1.0, 0.8, 1.2, 1.5, 10).verdict == "loose"


def test_copies_are_for_audits_only():
    """They state the sensitivity of one: nobody without the key can make them."""
    with pytest.raises(PrivacyError):
        Copies(None, statistic_of("item_counts", HIGH), 2)
    copies = Copies(KEY, statistic_of("item_grams", HIGH), 3)
    assert copies.shape == (36, 6)
    one = statistic_of("item_grams", HIGH).compute(KEY)
    assert np.array_equal(copies.compute(KEY, rows=slice(12, 24)), one)
    assert copies.compute(KEY).shape == copies.shape


def test_too_few_draws_and_another_shape_are_refused():
    with pytest.raises(ConfigError, match="hundred"):
        audit(lambda there: np.zeros((10, 3)), 1.0, np.ones(3))
    with pytest.raises(ConfigError, match="shape"):
        audit(lambda there: np.zeros((1000, 3, 2)), 1.0, np.ones(2))


def numbers():
    """The table of audits in docs/audits.md, from one run."""
    titles = [
        "statistic",
        "Gaussian, μ = 4",
        "replacing, μ = 4",
        "Laplace, ε = 2.02",
        "Huber, ε = 2.03",
    ]
    lines = [f"| {' | '.join(titles)} |", "|---|---|---|---|---|"]
    for name in STATISTICS:
        found = []
        for relation in ("add-remove", "replace-one"):
            other = None if relation == "add-remove" else OPPOSITE.get(name, ELSEWHERE)
            pair = statistic_of(name, HIGH), statistic_of(name, other)
            found.append(audit_statistic(*pair, neighboring=relation))
        for kind in ({"mechanism": "laplace"}, {"mechanism": "huber", "alpha": 0.5}):
            pair = one_entry(name, 1e6), one_entry(name, None)
            found.append(audit_statistic(*pair, noise_multiplier=0.7, draws=60_000, **kind))
        cells = [f"{one.estimate:.3f} in [{one.low:.2f}, {one.high:.2f}]" for one in found]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    with quick():
        print(numbers())
