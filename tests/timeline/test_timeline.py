"""Timelines on disk: settings, rows, crashes at every step, two processes, lost and old state."""

import json
import math
import multiprocessing
import stat

import numpy as np
import pandas as pd
import pytest

import discreet
from discreet.auditing.conformance.recorder import Recorder
from discreet.engines.ages import hash_ids
from discreet.errors import BudgetExceeded, ConfigError, DamagedStore
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.age_weights import ONE, AgeWeights
from discreet.timeline import Timeline, entries, public_state, timeline
from discreet.timeline.entries import EntryTable
from discreet.timeline.public_state import RECORDS, Records

ITEMS = 30


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv(entries.VARIABLE, "ab" * 32)


def open_timeline(path, **options):
    settings = {"epsilon": 8.0, "rating_range": (1, 5)} | options
    return Timeline(path / "x.timeline", **settings)


def make_ratings(n=400, m=ITEMS, seed=0, first=0):
    rng = np.random.default_rng(seed)
    taste = rng.integers(0, 2, n)
    chance = np.where(taste[:, None] == np.arange(m) % 2, 0.5, 0.08)
    user, item = np.nonzero(rng.random((n, m)) < chance)
    stars = rng.integers(3, 6, len(user)).astype(float)
    return discreet.Ratings.from_arrays(user + first, item, stars, item_ids=np.arange(m))


def entry_rows(line, users):
    hashes = hash_ids(np.asarray(users), line._secret())
    return EntryTable.read(line.secret_path).entry_of(hashes).tolist()


# ------------------------------------------------------------------ weights


@pytest.mark.parametrize(("memory", "delta"), [(12, 2.50), (13, 2.60), (52, 5.12), (365, 13.5)])
def test_noise_multipliers_of_the_table(memory, delta):
    assert math.sqrt(AgeWeights(memory).total) == pytest.approx(delta, abs=0.02)


def test_weights_are_rounded_down_exactly():
    ages = AgeWeights(26)
    for k in (0, 1, 7, 100, 353):
        exact = ONE * 25**k // 26**k
        assert ages.at(np.array([k]))[0] == exact
    assert ages.at(np.array([-1, 354, 10_000])).tolist() == [0, 0, 0]
    assert len(AgeWeights(13).units) == 174


def test_renewal_and_retention():
    renewed = AgeWeights(13, renew=52)
    assert renewed.at(np.array([52]))[0] == ONE
    cut = AgeWeights(13, retention=10)
    assert cut.at(np.array([9, 10])).tolist()[1] == 0
    assert cut.total < AgeWeights(13).total
    with pytest.raises(ConfigError, match="not both"):
        AgeWeights(13, 10, 52)


@pytest.mark.parametrize("rows", [52, 365])
def test_an_independent_accountant_agrees(rows):
    accounting = pytest.importorskip("dp_accounting")
    epsilon, delta = 1.0, 1e-6
    ages = AgeWeights(13)
    lifetime = 1 / gdp.mu(epsilon, delta)
    multipliers = ages.multipliers(lifetime, [0.25, 0.02, 0.73])
    accountant = accounting.rdp.RdpAccountant()
    total = 0.0
    for weight in ages.units[:rows]:
        for multiplier in multipliers:
            noise = multiplier * ONE / weight
            total += noise**-2
            accountant.compose(accounting.GaussianDpEvent(noise))
    together = accounting.GaussianDpEvent(total**-0.5)
    exact = accounting.pld.PLDAccountant().compose(together).get_epsilon(delta)
    assert exact <= epsilon * (1 + 1e-3)
    assert accountant.get_epsilon(delta) == pytest.approx(
        accounting.rdp.RdpAccountant().compose(together).get_epsilon(delta), rel=1e-6
    )


def test_the_cost_of_a_thousand_rows_is_added_exactly_and_rounded_once():
    ages = AgeWeights(13)
    multipliers = ages.multipliers(4.2, [0.25, 0.02, 0.73])
    spent = ages.add_costs([(row, multipliers) for row in range(0, 1000)])
    assert float(spent) <= 4.2**-2
    assert float(spent) > 0.999999 * 4.2**-2
    more = ages.multipliers(4.2, [0.25, 0.02, 0.83])  # 1.1 in one row
    rows = [(row, more if row == 5 else multipliers) for row in range(200)]
    assert float(ages.add_costs(rows)) > 4.2**-2


# ------------------------------------------------------------------ rows


def test_rows_make_a_model_that_follows_taste(tmp_path):
    line = open_timeline(tmp_path)
    for row in range(3):
        line.add(make_ratings(600 + 50 * row))
    model = line.model()
    assert "3 rows so far" in model.summary_
    liked = model.recommend([0, 2, 4], n=6).ids
    assert np.mean(liked % 2 == 0) > 0.8
    model.save(tmp_path / "model")
    line.add(make_ratings(800))
    line.model().save(tmp_path / "model", replace=True)
    assert not list((tmp_path / "model").glob("earlier*"))  # one ledger for all rows
    loaded = discreet.load(tmp_path / "model")
    assert loaded.details_["timeline"]["rows"] == 4
    line.verify(loaded.details_["timeline"]["head"])


def test_forgetting_is_chosen_or_given(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings(600))
    line.add(make_ratings(600, seed=1))
    for wrong in (0, 1.5, "all"):
        with pytest.raises(ConfigError, match="forgetting is"):
            line.model(forgetting=wrong)
    last, both = (line.model(forgetting=weight) for weight in (0.1, 1.0))
    assert not np.array_equal(last.item_factors_, both.item_factors_)
    again = line.model(forgetting=1.0)
    np.testing.assert_array_equal(again.item_factors_, both.item_factors_)


def test_a_frame_needs_a_catalog(tmp_path):
    ratings = make_ratings()
    user = np.repeat(ratings.user_ids, np.diff(ratings.indptr))
    frame = pd.DataFrame({"user": user, "item": ratings.indices, "rating": ratings.values})
    line = open_timeline(tmp_path)
    with pytest.raises(ConfigError, match="Pass items"):
        line.add(frame)
    line.add(frame, items=np.arange(ITEMS + 5))
    assert line.rows_[0]["items"] == ITEMS + 5


def test_the_statement_is_the_same_for_any_number_of_rows(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings())
    before = line.statement_
    line.add(make_ratings())
    after = line.statement_
    assert (before.epsilon, before.delta) == (after.epsilon, after.delta)
    assert after.epsilon == pytest.approx(8.0)
    assert "2 rows so far; ε is the same for any number of rows" in str(after)
    assert all(row["size"] != 400 for row in line.rows_)  # no exact number of users


def test_the_account_is_charged_once(tmp_path):
    store = discreet.BudgetStore(tmp_path / "b.sqlite")
    store.open("customers", epsilon=8, delta=1e-6)
    line = open_timeline(tmp_path, account=store["customers"])
    for _ in range(2):
        line.add(make_ratings())
    balance = store["customers"].balance
    assert balance.left < 1e-6
    assert store["customers"].has_ledger(line.model().privacy_.ledger)
    store.verify()
    with pytest.raises(BudgetExceeded):
        open_timeline(tmp_path / "other", account=store["customers"])
    assert not (tmp_path / "other" / "x.timeline").exists()


def test_renewal_charges_every_period_and_states_the_total(tmp_path):
    store = discreet.BudgetStore(tmp_path / "b.sqlite")
    store.open("customers", epsilon=14, delta=1e-6)
    line = open_timeline(tmp_path, account=store["customers"], renew=2)
    for _ in range(3):
        line.add(make_ratings())
    assert store["customers"].balance.trainings == 2
    model = line.model()
    assert model.privacy_.epsilon == pytest.approx(line.epsilon_after(2), rel=1e-6)
    assert "any 2 consecutive rows" in str(line.statement_)
    model.save(tmp_path / "model")
    discreet.load(tmp_path / "model")


def test_new_items_join_by_the_catalog(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings(m=20))
    line.add(make_ratings(m=26))
    assert len(line.model().item_ids_) == 26


def test_users_keep_their_age(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings(200))
    line.add(make_ratings(200, first=1000))
    line.add(make_ratings(200))
    assert set(entry_rows(line, range(100))) == {0}
    assert set(entry_rows(line, range(1000, 1100))) == {1}


def test_a_user_does_not_decide_how_old_another_is(tmp_path):
    """'7' has been there from row 0; '007' and '7.5' are other users, who enter in row 1."""
    line = open_timeline(tmp_path)
    item = np.arange(5)
    others = [f"u{i}" for i in range(200)]

    def with_users(*names):
        names = [*others, *names]
        item_ids = np.arange(ITEMS)
        user = np.repeat(names, len(item)).tolist()
        items = np.tile(item, len(names))
        return discreet.Ratings.from_arrays(user, items, np.ones(len(user)), item_ids=item_ids)

    line.add(with_users("7"))
    line.add(with_users("7", "007", "+7", "7.5"))
    assert entry_rows(line, ["7", "007", "+7", "7.5"]) == [0, 1, 1, 1]
    line.forget(["7"])
    assert EntryTable.read(line.secret_path).erased.sum() == 1
    line.verify()


def test_erased_users_contribute_no_more_and_keep_their_entry(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings(200))
    before = [p.read_bytes() for p in sorted(line.path.glob("*")) if p.is_file()]
    line.forget([1, 2, 5000])
    after = [p.read_bytes() for p in sorted(line.path.glob("*")) if p.is_file()]
    assert before == after  # nothing public shows it
    line.add(make_ratings(200))
    table = EntryTable.read(line.secret_path)
    assert table.erased.sum() == 3
    assert (table.ages(1)[table.erased] == -1).all()
    assert entry_rows(line, [1, 2]) == [0, 0]
    line.verify()


def test_block_files_give_the_same_sums(tmp_path):
    ratings = make_ratings(300)
    blocks = discreet.BlockRatings.write(ratings, tmp_path / "blocks", blocks=3)
    found = []
    for number, source in enumerate((ratings, blocks)):
        line = open_timeline(tmp_path / str(number))
        with Recorder() as seen:
            line.add(ratings)
            line.add(source)
        found.append([release.exact for release in seen.releases[3:5]])
        assert set(entry_rows(line, range(20))) == {0}
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_sources_are_refused(tmp_path):
    class Elsewhere:
        catalog, filtered = True, ""
        n_items, item_ids, titles = 3, np.arange(3), None

        def rating_range(self):
            return None

        def seal(self, bounds, *, seed=0):
            raise AssertionError

    with pytest.raises(ConfigError, match="cannot read Elsewhere"):
        open_timeline(tmp_path).add(Elsewhere())


# ------------------------------------------------------------------ state


def test_secret_files_are_the_owners_alone(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings())
    assert stat.S_IMODE(line.secret_path.stat().st_mode) == 0o700
    for file in line.secret_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_key_is_not_next_to_the_table(tmp_path, monkeypatch):
    monkeypatch.delenv(entries.VARIABLE)
    with pytest.raises(ConfigError, match="Keep it elsewhere"):
        open_timeline(tmp_path, key=tmp_path / "x.timeline.secret" / "key")
    with pytest.raises(ConfigError, match="secret key"):
        open_timeline(tmp_path)
    line = open_timeline(tmp_path, key=tmp_path / "keys" / "x.key")
    assert stat.S_IMODE((tmp_path / "keys" / "x.key").stat().st_mode) == 0o600
    line.add(make_ratings())
    monkeypatch.setenv(entries.VARIABLE, "cd" * 32)
    with pytest.raises(ConfigError, match="not the key"):
        Timeline(tmp_path / "x.timeline").add(make_ratings())


def test_settings_cannot_change(tmp_path):
    open_timeline(tmp_path)
    with pytest.raises(ConfigError, match="cannot change"):
        open_timeline(tmp_path, memory=26)
    settings = tmp_path / "x.timeline" / public_state.SETTINGS
    settings.write_text(settings.read_text().replace('"memory": 20', '"memory": 26'))
    with pytest.raises(DamagedStore, match="was changed"):
        Timeline(tmp_path / "x.timeline")


def test_damage_is_found(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings())
    line.add(make_ratings())
    records = line.path / RECORDS
    good = records.read_bytes()
    records.write_bytes(good.replace(b'"row": 0', b'"row": 7', 1))
    with pytest.raises(DamagedStore, match="breaks the chain"):
        line.verify()
    lines = good.splitlines(keepends=True)
    records.write_bytes(b"".join(lines[:-3]))  # an older copy of the public part
    with pytest.raises(DamagedStore, match="older copy"):
        line.verify(json.loads(lines[-1])["hash"])
    records.write_bytes(good)
    row = line.path / public_state.row_file(0)
    data = row.read_bytes()
    row.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DamagedStore, match="was changed"):
        line.verify()


def test_an_older_public_part_uses_no_row_twice(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings())
    old = (line.path / RECORDS).read_bytes()
    line.add(make_ratings())
    (line.path / RECORDS).write_bytes(old)
    line.add(make_ratings())
    assert [row["row"] for row in line.rows_] == [0, 2]


def test_a_lost_table_is_refused(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings())
    (line.secret_path / entries.FILE).unlink()
    with pytest.raises(DamagedStore, match="missing or damaged"):
        line.add(make_ratings())


# ------------------------------------------------------------------ crashes


class Crash(BaseException):
    pass


STEPS = [(Records, "append"), (EntryTable, "write"), (timeline, "durable_write")]


def crash_at(monkeypatch, step, after):
    """Crash before or after the step of that number."""
    left = [step]

    def wrap(original):
        def call(*given, **options):
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Crash
            result = original(*given, **options)
            if left[0] == 0:
                raise Crash
            return result

        return call

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))
    return left


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_crash_at_any_step_loses_no_age_and_draws_no_row_twice(
    tmp_path, monkeypatch, step, after
):
    line = open_timeline(tmp_path)
    line.add(make_ratings(200))
    with monkeypatch.context() as patch:
        crash_at(patch, step, after)
        with pytest.raises(Crash):
            line.add(make_ratings(200, first=150))
    again = Timeline(tmp_path / "x.timeline")
    again.add(make_ratings(200, first=150))
    found = again.verify()
    assert found.rows + found.missing == len(Records.read(again.path).list_drawn)
    assert found.missing <= 1
    assert set(entry_rows(again, range(150))) == {0}
    assert not list(again.secret_path.glob("row-*"))
    numbers = [row["row"] for row in again.rows_]
    assert len(set(numbers)) == len(numbers)


def test_there_are_no_more_steps(tmp_path, monkeypatch):
    line = open_timeline(tmp_path)
    with monkeypatch.context() as patch:
        left = crash_at(patch, 100, after=False)
        line.add(make_ratings(200))
    assert 100 - left[0] == 6


def test_a_line_that_was_cut_off_is_not_a_record(tmp_path):
    line = open_timeline(tmp_path)
    line.add(make_ratings(200))
    with open(line.path / RECORDS, "ab") as file:
        file.write(b'{"kind": "begun", "row"')
    line.add(make_ratings(200))
    assert line.verify().rows == 2


def test_a_row_with_an_error_in_its_release_counts_and_is_missing(tmp_path, monkeypatch):
    line = open_timeline(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(type(line._rule), "release", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            line.add(make_ratings(200))
    line.add(make_ratings(200))
    assert [row["row"] for row in line.rows_] == [1]
    assert line.verify().missing == 1


def hold(path, started, end):
    line = Timeline(path)
    with line._alone():
        started.set()
        end.wait(60)


def test_two_processes_cannot_add_at_once(tmp_path):
    line = open_timeline(tmp_path)
    context = multiprocessing.get_context("fork")
    started, end = context.Event(), context.Event()
    other = context.Process(target=hold, args=(line.path, started, end))
    other.start()
    started.wait(60)
    with pytest.raises(ConfigError, match="Another process"):
        line.add(make_ratings(200))
    end.set()
    other.join(60)
    line.add(make_ratings(200))
