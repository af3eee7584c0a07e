"""A private fit that does not come to its end: what it released is in a ledger, and nothing that it learnt is left."""

import pickle

import numpy as np
import pytest

import discreet
from discreet.errors import NotFittedError
from discreet.models.algorithms.huber_as_printed import HuberAsPrinted
from discreet.privacy.ledger import Ledger

MODELS = {
    "DPMF": lambda: discreet.DPMF(3, epsilon=50.0, goal="rating"),
    "DPMF, features": lambda: discreet.DPMF(
        3, epsilon=50.0, item_features=np.arange(24.0).reshape(12, 2), goal="rating"
    ),
    "DPALS": lambda: discreet.DPALS(3, epsilon=50.0),
    "DPALS, implicit": lambda: discreet.DPALS(3, epsilon=50.0, feedback="implicit"),
    "DPLMC": lambda: discreet.DPLMC(3, epsilon=50.0),
    "HuberALS": lambda: discreet.HuberALS(3, epsilon=50.0, iterations=2),
    "HuberALS, as printed": lambda: discreet.HuberALS(epsilon=50.0, method=HuberAsPrinted(factors=3, iterations=2)),
    "DPFrankWolfe": lambda: discreet.DPFrankWolfe(3, epsilon=50.0),
    "DPSVD": lambda: discreet.DPSVD(3, epsilon=50.0),
    "DPSGLD": lambda: discreet.DPSGLD(3, epsilon=50.0, iterations=4),
    "DPSGD": lambda: discreet.DPSGD(3, epsilon=50.0, iterations=4, accountant="gdp"),
}


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((150, 12)) < 0.5)
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


def learnt(model):
    """Names of what is held beside parameters."""
    return sorted(set(vars(model)) - set(model.parameter_names()))


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("problem", [KeyboardInterrupt(), RuntimeError("broken")], ids=["Ctrl-C", "error"])
@pytest.mark.parametrize("fitted", [False, True])
def test_an_unfinished_fit_leaves_its_ledger_and_nothing_else(make, problem, fitted, ratings, monkeypatch):
    model = make()
    full = make().fit(ratings).privacy_.ledger
    before = model.fit(ratings).privacy_ if fitted else None
    for stop in (0, 1, len(full.entries) - 1):
        with monkeypatch.context() as patch:
            made = stopped_after(patch, stop, problem)
            with pytest.raises(type(problem)):
                model.fit(ratings)
        ledger = model.privacy_.ledger
        assert [entry.name for entry in ledger.entries] == made == [entry.name for entry in full.entries[:stop]]
        assert [a.text for a in ledger.assumptions] == [a.text for a in full.assumptions]
        if full.private:
            assert model.privacy_.epsilon <= 50.0
            assert (model.privacy_.epsilon > 0) == (stop > 0)
        assert set(learnt(model)) <= {"privacy_", "earlier_ledgers_"}
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
    assert learnt(model) == ["privacy_"]


def test_a_fit_that_cannot_begin_changes_nothing(ratings):
    model = discreet.DPALS(3, epsilon=50.0).fit(ratings)
    before, statement = model.item_factors_, model.privacy_
    with pytest.raises(discreet.errors.DataError):
        model.fit("ratings.csv")
    assert model.item_factors_ is before
    assert model.privacy_ is statement


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
            discreet.errors.ConfigError, match="noise='seeded' needs a seed: give one with random_state="
        ):
            use()
    assert learnt(model) == []
    model.set_params(random_state=0).fit(ratings).save(tmp_path / "m")
    loaded = discreet.load(tmp_path / "m")
    assert loaded.random_state is None
    with pytest.raises(discreet.errors.ConfigError, match="needs a seed"):
        loaded.fit(ratings)
