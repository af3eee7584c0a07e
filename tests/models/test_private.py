"""What private models share: the ledger of a fit that does not come to its end, and crowds of
any size, also none.
"""

import pickle

import numpy as np
import pytest

import discreet
from discreet.errors import BudgetExceeded, ConfigError, DataError, NotFittedError
from discreet.privacy.release.ledger import Ledger

MODELS = {
    "DPMF": lambda: discreet.DPMF(3, epsilon=50.0, goal="rating"),
    "DPMF, features": lambda: discreet.DPMF(
        3, epsilon=50.0, item_features=np.arange(24.0).reshape(12, 2), goal="rating"
    ),
    "DPALS": lambda: discreet.DPALS(3, epsilon=50.0),
    "DPALS, implicit": lambda: discreet.DPALS(3, epsilon=50.0, goal="ranking"),
    "DPLMC": lambda: discreet.DPLMC(3, epsilon=50.0),
    "HuberALS": lambda: discreet.HuberALS(3, epsilon=50.0, iterations=2),
    "DPFrankWolfe": lambda: discreet.DPFrankWolfe(3, epsilon=50.0),
    "DPSVD": lambda: discreet.DPSVD(3, epsilon=50.0),
    "DPSGLD": lambda: discreet.DPSGLD(3, epsilon=50.0, iterations=4),
    "DPSGD": lambda: discreet.DPSGD(3, epsilon=50.0, iterations=4, accountant="gdp"),
}

PRIVATE = ["DPMF", "DPALS", "DPLMC", "HuberALS", "DPFrankWolfe", "DPSVD", "DPSGLD", "DPSGD"]


@pytest.fixture(scope="module")
def ratings():
    """150 people with nine or ten of twelve items each: far above every gate, so that noise
    cannot change the route.
    """
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((150, 12)) < 0.8)
    taste = rng.normal(size=(150, 2)) @ rng.normal(size=(2, 12))
    stars = np.clip(np.round(3 + taste[user, item]), 1, 5)
    return discreet.Ratings.from_arrays(user, item, stars, item_ids=range(12))


def stopped_after(monkeypatch, releases, problem):
    """Sessions that make so many releases and then raise."""
    record, made = Ledger.record, []

    def record_some(ledger, name, **rest):
        if len(made) == releases:
            raise problem
        made.append(name)
        return record(ledger, name, **rest)

    monkeypatch.setattr(Ledger, "record", record_some)
    return made


def fix_route(model):
    """Seed the noise of DPMF, whose releases depend on earlier ones, so that all fits agree."""
    seeded = {"noise": "seeded", "random_state": 1}
    return model.set_params(**seeded) if isinstance(model, discreet.DPMF) else model


def learned(model):
    """Names of what is held beside parameters."""
    return sorted(set(vars(model)) - set(model.parameter_names()))


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    "problem", [KeyboardInterrupt(), RuntimeError("broken")], ids=["Ctrl-C", "error"]
)
@pytest.mark.parametrize("fitted", [False, True])
def test_an_unfinished_fit_leaves_its_ledger_and_nothing_else(
    make, problem, fitted, ratings, monkeypatch
):
    model = fix_route(make())
    full = fix_route(make()).fit(ratings).privacy_.ledger
    before = model.fit(ratings).privacy_ if fitted else None
    for stop in (0, 1, len(full.entries) - 1):
        with monkeypatch.context() as patch:
            made = stopped_after(patch, stop, problem)
            with pytest.raises(type(problem)):
                model.fit(ratings)
        ledger = model.privacy_.ledger
        assert (
            [entry.name for entry in ledger.entries]
            == made
            == [entry.name for entry in full.entries[:stop]]
        )
        assert [a.text for a in ledger.assumptions] == [a.text for a in full.assumptions]
        if full.private:
            assert model.privacy_.epsilon <= 50.0
            assert (model.privacy_.epsilon > 0) == (stop > 0)
        assert set(learned(model)) <= {"privacy_", "earlier_ledgers_"}
        with pytest.raises(NotFittedError):
            model.recommend([0])
        with pytest.raises(NotFittedError):
            model.save("nowhere")
    if before is not None:
        assert model.earlier_ledgers_[0] is before.ledger


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_an_interrupt_between_releases_counts_as_well(make, ratings):
    def stop(done, total, what):
        raise KeyboardInterrupt

    model = make()
    with pytest.raises(KeyboardInterrupt):
        model.fit(ratings, progress=stop)
    assert model.privacy_.ledger.entries
    assert learned(model) == ["privacy_"]


def test_a_fit_that_cannot_begin_changes_nothing(ratings):
    model = discreet.DPALS(3, epsilon=50.0).fit(ratings)
    before, statement = model.item_factors_, model.privacy_
    with pytest.raises(discreet.errors.DataError):
        model.fit("ratings.csv")
    for wrong in ({"epsilon": -1.0}, {"noise": "seeded"}, {"accountant": "pure"}):
        kept = {name: getattr(model, name) for name in wrong}
        with pytest.raises(discreet.errors.DiscreetError):
            model.set_params(**wrong).fit(ratings)
        model.set_params(**kept)
    assert model.item_factors_ is before
    assert model.privacy_ is statement
    assert model.earlier_ledgers_ == ()


@pytest.mark.parametrize("where", ["restore_items", "_keep"])
def test_an_interrupt_after_the_last_release_counts_as_well(where, ratings, monkeypatch):
    """All was released, and nothing is kept of it but the ledger."""

    def stop(*args, **options):
        raise KeyboardInterrupt

    full = discreet.DPALS(3, epsilon=50.0).fit(ratings).privacy_
    model = discreet.DPALS(3, epsilon=50.0)
    monkeypatch.setattr(discreet.DPALS, where, stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(ratings)
    assert model.privacy_.epsilon == full.epsilon
    assert learned(model) == ["privacy_"]


def test_earlier_fits_of_one_model_are_not_forgotten(ratings, tmp_path):
    model = discreet.DPALS(3, epsilon=50.0).fit(ratings)
    first = model.privacy_.ledger
    assert model.earlier_ledgers_ == ()
    model.fit(ratings)
    assert model.earlier_ledgers_ == (first,)
    model.save(tmp_path / "model")
    (earlier,) = (tmp_path / "model").glob("earlier-ledger-*.json")
    assert type(first).load(earlier).to_dict() == first.to_dict()
    assert earlier.name in (tmp_path / "model" / "README.md").read_text()


def test_a_fitted_model_can_be_copied(ratings):
    """The session, which cannot, is no part of it."""
    model = discreet.DPALS(3, epsilon=50.0).fit(ratings)
    assert pickle.loads(pickle.dumps(model)).privacy_ == model.privacy_


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_seeded_noise_needs_a_seed(make, ratings, tmp_path):
    """A seed that everybody knows by default hides nothing; 0 is a seed where it is given."""
    model = make().set_params(noise="seeded")
    for use in (model.check, lambda: model.fit(ratings)):
        with pytest.raises(
            discreet.errors.ConfigError,
            match="noise='seeded' needs a seed",
        ):
            use()
    assert learned(model) == []
    model.set_params(random_state=0).fit(ratings).save(tmp_path / "m")
    loaded = discreet.load(tmp_path / "m")
    assert loaded.random_state is None
    with pytest.raises(discreet.errors.ConfigError, match="needs a seed"):
        loaded.fit(ratings)


# ------------------------------------------------------------ crowds


def crowd(people, silent):
    """So many people, of whom each has rated one item, or nothing."""
    items = np.zeros(0 if silent else people, np.int32)
    indptr = np.zeros(people + 1, np.int64) if silent else np.arange(people + 1)
    return discreet.Ratings.from_indices(
        indptr, items, items + 3.0, np.arange(people), np.arange(12), catalog=True
    )


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(("people", "silent"), [(0, True), (3, True), (1, False)])
@pytest.mark.parametrize("noise", ["secure", "seeded"])
def test_no_exact_number_of_people_is_too_small(make, people, silent, noise):
    """Nobody at all is a crowd like any other: an error would tell that the last person has
    left.
    """
    model = make().set_params(noise=noise, rating_range=(1, 5), random_state=0)
    try:
        model.fit(crowd(people, silent))
    except BudgetExceeded:  # judged by noisy numbers, which say little about one person
        assert model.privacy_.ledger.entries
    else:
        assert np.isfinite(model.item_factors_).all()


def test_models_without_a_promise_still_say_that_there_is_nothing():
    with pytest.raises(DataError, match="no ratings to learn from"):
        discreet.ALS().fit(crowd(0, True))


# ------------------------------------------------------------ numbers that cannot be meant


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: discreet.DPMF(epsilon=1, goal="rating", iterations=10**9),
            "iterations is 1000000000, but must be a whole",
        ),
        (
            lambda: discreet.DPMF.configure(epsilon=1, goal="rating", bias_iterations=10**9),
            "bias_iterations is 1000000000",
        ),
        (lambda: discreet.DPALS(epsilon=1, iterations=10**9), "iterations is 1000000000"),
        (lambda: discreet.DPLMC(epsilon=1, iterations=10**9), "iterations is 1000000000"),
        (lambda: discreet.DPSGLD(epsilon=1, iterations=10**9), "iterations is 1000000000"),
        (lambda: discreet.DPSGD(epsilon=1, iterations=10**9), "iterations is 1000000000"),
        (lambda: discreet.HuberALS(epsilon=1, iterations=10**9), "iterations is 1000000000"),
        (
            lambda: discreet.HuberALS.configure(epsilon=1, solver="irls", inner_iterations=10**9),
            "inner_iterations is 1000000000",
        ),
        (
            lambda: discreet.HuberALS.configure(epsilon=1, alpha=1e9),
            "alpha is 1000000000.0, which is Gaussian noise",
        ),
        (
            lambda: discreet.HuberALS.configure(epsilon=1, alpha=1e-9),
            "alpha is 1e-09, which is Laplace noise",
        ),
        (
            lambda: discreet.DPSGD(epsilon=1, batch_rate=1e-9),
            "batch_rate is 1e-09, but must lie between 0.001 and 1",
        ),
        (
            lambda: discreet.DPSGD(epsilon=1, delta=1e-13),
            "delta=1e-13 is too small for accountant='pld'",
        ),
        (
            lambda: discreet.DPSGD(epsilon=1e8),
            "batches cannot be priced for epsilon=1e+08 at delta=1e-06",
        ),
        (
            lambda: discreet.DPALS.configure(epsilon=1, growth=0.01, iterations=900),
            "leaves nothing of the budget",
        ),
        *(
            (
                lambda name=name: getattr(discreet, name)(epsilon=1, delta=1e-300),
                "delta=1e-300 is below 1e-15",
            )
            for name in PRIVATE
        ),
        *(
            (
                lambda name=name: getattr(discreet, name)(epsilon=1, delta=0.01),
                "allow_large_delta=True",
            )
            for name in PRIVATE
        ),
    ],
)
def test_numbers_that_cannot_be_meant_are_answered_with_a_sentence(make, why, ratings):
    """No hang, no traceback, no memory that ends; and before anything is released."""
    model = make()
    with pytest.raises(ConfigError) as refused:
        model.plan(12)
    assert why in str(refused.value)
    with pytest.raises(ConfigError):
        model.fit(ratings)
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize("name", PRIVATE)
def test_a_large_delta_can_be_allowed_and_is_written_down(name, ratings, tmp_path):
    model = getattr(discreet, name)(2, epsilon=50.0, delta=0.01, allow_large_delta=True).fit(
        ratings
    )
    assert "a δ above 0.001 was allowed explicitly" in model.privacy_.cautions
    assert model.privacy_.ledger.to_dict()["plan"]["budget"]["allow_large_delta"] is True
    model.save(tmp_path / "model")
    assert discreet.load(tmp_path / "model").privacy_.epsilon == model.privacy_.epsilon


@pytest.mark.parametrize("name", ["DPMF", "DPLMC", "DPFrankWolfe"])
def test_a_delta_is_held_against_the_released_number_of_people(name, caplog):
    """These release about how many people there are; 1e-3 is too much for three thousand, and
    not for three hundred.
    """
    for people, warned in ((3000, True), (300, False)):
        caplog.clear()
        goal = {"goal": "rating"} if name == "DPMF" else {}
        model = getattr(discreet, name)(2, epsilon=50.0, delta=1e-3, rating_range=(1, 5), **goal)
        model.fit(crowd(people, False))
        assert ("above one over the number of users" in str(model.privacy_)) is warned
        assert ("above one over the number of users" in caplog.text) is warned
