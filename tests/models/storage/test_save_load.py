"""Saved models: the same after loading, whole or not there, and about items only."""

import datetime
import json
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest
from scipy import sparse

import discreet
from discreet import ALS, Bias, Popularity, Ratings
from discreet.data import atomic_files
from discreet.errors import ConfigError, DataError
from discreet.models.storage import read_folder

FILES = {"factors.safetensors", "model.json", "README.md"}
MODELS = {
    "explicit": lambda: ALS(3, regularization=0.5, iterations=2, random_state=5),
    "float64": lambda: ALS(2, regularization=0.5, iterations=2, intercepts=False, dtype="float64"),
    "implicit": lambda: ALS(
        np.int64(3), regularization=np.float32(0.5), iterations=2, goal="ranking"
    ),
    "bias": lambda: Bias(2.0, users=False),
    "popularity": Popularity,
}


def some_ratings(seed=0, n=20, item_ids=range(100, 112), titles=None):
    rng = np.random.default_rng(seed)
    table = np.where(
        rng.random((n, len(item_ids))) < 0.5, rng.integers(1, 6, (n, len(item_ids))), 0
    )
    return Ratings.from_csr(sparse.csr_array(table), item_ids=item_ids, titles=titles)


def same(one, other):
    """Whether two models are the same in all they hold and say."""
    history = one.item_ids_[:3].tolist()
    return (
        type(one) is type(other)
        and one.get_params() == other.get_params()
        and one.state() == other.state()
        and one.rating_range_ == other.rating_range_
        and one.item_factors_.dtype == other.item_factors_.dtype
        and one.item_ids_.dtype == other.item_ids_.dtype
        and one.item_ids_.tolist() == other.item_ids_.tolist()
        and np.array_equal(one.item_factors_, other.item_factors_)
        and np.array_equal(one.item_biases_, other.item_biases_)
        and (one.titles_ is None) == (other.titles_ is None)
        and (one.titles_ is None or one.titles_.tolist() == other.titles_.tolist())
        and all(map(np.array_equal, one.recommend(history), other.recommend(history)))
    )


@pytest.fixture(scope="module")
def old():
    return MODELS["explicit"]().fit(some_ratings(1))


@pytest.fixture(scope="module")
def new():
    return MODELS["explicit"]().fit(some_ratings(2))


@pytest.fixture
def saved(old, tmp_path):
    old.save(tmp_path / "model")
    return tmp_path / "model"


# ------------------------------------------------------------ there and back


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("titled", [False, True])
def test_round_trip(make, titled, tmp_path):
    model = make().fit(some_ratings(titles=[f"Café № {j}" for j in range(12)] if titled else None))
    model.save(tmp_path / "model")
    assert same(model, discreet.load(tmp_path / "model"))
    assert {file.name for file in (tmp_path / "model").iterdir()} == FILES


@pytest.mark.parametrize(
    "ids",
    [
        list(range(-3, 9)),
        [2**70 + j for j in range(12)],
        [f"id {j}" for j in range(12)],
        ["ä", "日本", '"', "\\", "\n", "", "\u00a0", "\u2028", "😀", "NaN", "null", "1"],
        [(j, "x", (j, 1.5)) for j in range(12)],
        [(np.int64(j), np.str_("x")) for j in range(12)],
        [uuid.UUID(int=j) for j in range(12)],
        [bytes([j, 255]) for j in range(12)],
        [j / 3 + 0.1 for j in range(12)],
        [True, False, "true", 7, 8.5, (1,), b"", uuid.UUID(int=1), "b", (), ((),), 2**64],
    ],
    ids=[
        "int",
        "long",
        "str",
        "odd text",
        "tuple",
        "numpy in tuples",
        "UUID",
        "bytes",
        "float",
        "mixed",
    ],
)
def test_ids_come_back_as_they_were(ids, tmp_path):
    model = MODELS["explicit"]().fit(some_ratings(item_ids=ids))
    model.save(tmp_path / "model")
    loaded = discreet.load(tmp_path / "model")
    assert same(model, loaded)
    assert loaded.item_ids_.tolist() == ids
    if ids != [(j, "x") for j in range(12)]:
        assert [type(i) for i in loaded.item_ids_.tolist()] == [type(i) for i in ids]
    assert loaded.similar_items(ids[5])[0].tolist() == model.similar_items(ids[5])[0].tolist()


def test_ids_that_cannot_be_saved_are_named(tmp_path):
    model = Popularity().fit(
        some_ratings(item_ids=[datetime.date(2000, 1, 1 + j) for j in range(12)])
    )
    with pytest.raises(
        ConfigError, match=r"item ids of type date cannot be saved. Use integers, text, tuples"
    ):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_new_process_recommends_the_same(tmp_path):
    ratings = some_ratings(item_ids=[f"film {j}" for j in range(12)])
    model = MODELS["explicit"]().fit(ratings)
    model.save(tmp_path / "a model")
    script = """if True:
        import json, sys
        import discreet
        model = discreet.load(sys.argv[1])
        ids, scores = model.recommend({"film 3": 4.0, "film 5": 1.0}, n=5)
        near = model.similar_items("film 2", n=3)[0].tolist()
        print(json.dumps([ids.tolist(), [float(s).hex() for s in scores], near]))
    """
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a model")],
        capture_output=True,
        text=True,
        check=True,
    )
    ids, scores = model.recommend({"film 3": 4.0, "film 5": 1.0}, n=5)
    near = model.similar_items("film 2", n=3)[0].tolist()
    assert json.loads(done.stdout) == [ids.tolist(), [float(s).hex() for s in scores], near]


def test_where_a_model_may_go(old, new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("plain", "slash/", "deep/er/still", tmp_path / "a b" / "c.d", ".hidden"):
        old.save(path)
        assert same(old, discreet.load(path))
    (tmp_path / "empty").mkdir()
    old.save("empty")
    assert same(old, discreet.load("empty"))
    os.symlink("plain", "link")
    new.save("link")
    assert os.path.islink("link")
    assert same(new, discreet.load("plain"))
    assert sorted(os.listdir()) == [".hidden", "a b", "deep", "empty", "link", "plain", "slash"]


def test_permissions_are_those_of_any_new_file(old, tmp_path):
    before = os.umask(0o077)
    try:
        old.save(tmp_path / "model")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "model" / "model.json").stat().st_mode) == 0o600


# ------------------------------------------------------------ whole or not there


@pytest.fixture(params=["one step", "two renames"])
def swap(request, monkeypatch):
    if request.param == "two renames":
        monkeypatch.setattr(atomic_files, "_swap_in_one_step", lambda one, other: False)


def test_a_model_is_replaced(saved, new, swap):
    new.save(saved)
    assert same(new, discreet.load(saved))
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]
    assert {file.name for file in saved.iterdir()} == FILES


@pytest.mark.parametrize("call", [1, 2, 3])
def test_an_error_while_writing_changes_nothing(saved, old, new, call, monkeypatch, tmp_path):
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) % 3 == call % 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for target in (saved, tmp_path / "another"):
        calls.clear()
        with pytest.raises(OSError, match=f"No space left on device: '{target}'"):
            new.save(target)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert same(old, discreet.load(saved))


def test_an_interrupt_while_swapping_changes_nothing(saved, old, new, monkeypatch):
    monkeypatch.setattr(atomic_files, "_swap_in_one_step", lambda one, other: False)
    rename, calls = type(saved).rename, []

    def once(self, target):
        calls.append(target)
        if len(calls) == 2:  # the old model is out of the way, the new one not yet there
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(type(saved), "rename", once)
    with pytest.raises(KeyboardInterrupt):
        new.save(saved)
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]
    assert same(old, discreet.load(saved))


KILLED = """if True:
    # Save over an old model, killed at the k-th system call of saving, for every k.
    import os, shutil, signal, sys
    import discreet
    from discreet.errors import DataError
    from discreet.data import atomic_files
    from discreet.models.storage import read_folder

    work, half = sys.argv[1], sys.argv[2] == "half"
    if sys.argv[2] == "two renames":
        atomic_files._swap_in_one_step = lambda one, other: False
    old, new = (discreet.load(os.path.join(work, name)) for name in ("old", "new"))
    place = os.path.join(work, "place")

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def save_and_die(k):
        count = 0
        def step(*event):
            nonlocal count
            count += 1
            if count == k:
                if half:
                    os.truncate(event[0], os.fstat(event[0]).st_size // 2)
                die()
        if half:
            os.fsync = step
        else:
            sys.addaudithook(step)
        new.save(os.path.join(place, "model"))
        os._exit(0)

    one, other = (os.path.join(work, name).encode() for name in ("old", "new"))
    can_swap = all(atomic_files._swap_in_one_step(one, other) for _ in range(2))
    found = []
    for k in range(1, 1000):
        for there in (True, False):
            shutil.rmtree(place, ignore_errors=True)
            os.mkdir(place)
            if there:
                shutil.copytree(os.path.join(work, "old"), os.path.join(place, "model"))
            child = os.fork()
            if child == 0:
                save_and_die(k)
            status = os.waitpid(child, 0)[1]
            left = os.listdir(place)
            if there and "model" not in left:
                assert not can_swap, (k, left)
                try:
                    discreet.load(os.path.join(place, "model"))
                except DataError as error:
                    assert "a save was interrupted. Rename" in str(error)
                hidden = [name for name in left if name.endswith(".old")]
                os.rename(os.path.join(place, hidden[0]), os.path.join(place, "model"))
                left = os.listdir(place)
            for name in left:
                assert name == "model" or name.startswith(".model."), name
                try:
                    model = discreet.load(os.path.join(place, name))
                except DataError:
                    assert name != "model", (k, left)
                    continue
                said = [m.recommend([100])[1].tolist() for m in (model, old, new)]
                is_old, is_new = said[0] == said[1], said[0] == said[2]
                assert is_old != is_new
                assert there or is_new
                if name == "model":
                    found.append(is_new)
            new.save(os.path.join(place, "model"))  # what was left is not in the way
        if status == 0:
            break
    assert status == 0 and found[-1]
    print(k, sum(found), len(found))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("how", ["between", "half", "two renames"])
def test_killed_at_any_moment(old, new, how, tmp_path):
    """The old model or the new one is there, whole; what else is left is hidden, and a whole
    model or not loadable.
    """
    old.save(tmp_path / "old")
    new.save(tmp_path / "new")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), how], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    moments = int(done.stdout.split()[0])
    assert moments > (3 if how == "half" else 20)


def test_a_folder_that_somebody_works_in_is_not_taken_for_a_left_one(old, new, tmp_path):
    """Two saves at once: neither removes what the other is writing."""
    with atomic_files.temporary_sibling(tmp_path / "model") as other:
        (other / "half").write_text("written")
        old.save(tmp_path / "model")
        new.save(tmp_path / "model")
        assert (other / "half").read_text() == "written"
    assert os.listdir(tmp_path) == ["model"]
    left = tmp_path / ".model.0123abcd.part"
    left.mkdir()
    (tmp_path / ".model-2.0123abcd.part").mkdir()  # another model's
    old.save(tmp_path / "model")
    assert sorted(os.listdir(tmp_path)) == [".model-2.0123abcd.part", "model"]


def test_where_folders_cannot_be_locked_a_day_tells_which_are_left(old, tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_files, "fcntl", None)
    fresh, stale = tmp_path / ".model.0123abcd.part", tmp_path / ".model.4567abcd.part"
    fresh.mkdir()
    stale.mkdir()
    os.utime(stale, (1e9, 1e9))
    old.save(tmp_path / "model")
    assert sorted(os.listdir(tmp_path)) == [".model.0123abcd.part", "model"]


def test_no_ledger_goes_with_what_a_killed_save_left(tmp_path):
    """Killed after the folders changed places: the earlier model lies aside, perhaps with a
    ledger of its own.
    """
    ratings = some_ratings(n=200)
    first, second = (discreet.DPMF(2, epsilon=9.0).fit(ratings) for _ in range(2))
    first.save(tmp_path / "model")
    second.save(tmp_path / ".model.0123abcd.part")
    first.save(tmp_path / "model", replace=True)
    content = json.dumps(second.privacy_.ledger.to_dict(), indent=1, ensure_ascii=False) + "\n"
    kept = [file for file in tmp_path.iterdir() if file.name != "model"]
    assert [file.read_text(encoding="utf-8") for file in kept] == [content]
    assert kept[0].name.startswith("model.earlier-ledger-")


WRITER = """if True:
    import os, sys
    import discreet
    from discreet.data import atomic_files
    if sys.argv[4] == "two renames":
        atomic_files._swap_in_one_step = lambda one, other: False
    os.fsync = lambda handle: None  # more saves in the same time
    model, count = discreet.load(sys.argv[1]), 0
    while not os.path.exists(sys.argv[3]):
        model.save(sys.argv[2], replace=True)
        open(sys.argv[1] + ".ready", "w").close()
        count += 1
    print(count)
"""
LOADS = int(os.environ.get("DISCREET_LOADS", "200"))


@pytest.mark.parametrize(
    ("how", "writing"), [("one step", ["one", "two"]), ("two renames", ["two"])]
)
def test_loading_while_others_save(old, new, tmp_path, how, writing):
    """Other processes replace the folder as fast as they can: every load finds one model or the
    other, whole.
    """
    place, end = tmp_path / "model", tmp_path / "end"
    writers = []
    for name, model in (("one", old), ("two", new)):
        if name not in writing:
            continue
        model.save(tmp_path / name)
        command = [sys.executable, "-c", WRITER, str(tmp_path / name), str(place), str(end), how]
        writers.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    old.save(place)
    try:
        expected = {model.recommend([100])[1].tobytes() for model in (old, new)}
        while not all((tmp_path / f"{name}.ready").exists() for name in writing):
            assert all(writer.poll() is None for writer in writers)
            time.sleep(0.01)
        found = [discreet.load(place).recommend([100])[1].tobytes() for _ in range(LOADS)]
    finally:
        end.touch()
        done = [(writer.communicate(), writer.returncode) for writer in writers]
    assert set(found) <= expected
    for (count, problem), code in done:
        assert code == 0, problem
        assert int(count) > 1


@pytest.mark.parametrize(
    "what", ["file", "notes", "other program", "model and notes", "damaged model"]
)
def test_nothing_but_a_model_is_replaced(what, old, new, tmp_path):
    target = tmp_path / "target"
    if what == "file":
        target.write_text("precious")
    elif what == "model and notes":
        old.save(target)
        (target / "notes.txt").write_text("precious")
    elif what == "damaged model":
        old.save(target)
        (target / "model.json").write_text("{")
    else:
        target.mkdir()
        (target / ("model.json" if what == "other program" else "notes.txt")).write_text(
            '{"sha256": {}}'
        )
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    message = (
        "is a file"
        if what == "file"
        else r"holds more than a saved model, such as '.*'. Choose a new folder"
    )
    with pytest.raises(ConfigError, match=message):
        new.save(target)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["target"]


# ------------------------------------------------------------ damage


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "delete", "append"])
def test_damage_is_noticed(saved, name, damage):
    file = saved / name
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    if damage == "delete":
        file.unlink()
    elif damage == "flip":
        content[middle] ^= 1
        file.write_bytes(content)
    else:
        file.write_bytes(
            {"truncate": content[:middle], "empty": b"", "append": content + b"x"}[damage]
        )
    with pytest.raises(DataError, match=re.escape(str(saved))):
        discreet.load(saved)


def test_no_flipped_bit_goes_unnoticed(saved, old):
    """Every changed model.json is refused, or (white space) says the same."""
    rng = np.random.default_rng(0)
    file = saved / "model.json"
    content = file.read_bytes()
    refused = 0
    for at in rng.choice(len(content), 300, replace=False):
        changed = bytearray(content)
        changed[at] ^= 1 << rng.integers(0, 8)
        file.write_bytes(changed)
        try:
            assert same(discreet.load(saved), old)
        except DataError:
            refused += 1
    assert refused > 200


def rewrite(folder, **changes):
    """Change model.json as somebody would who also puts the checksum right."""
    described = json.loads((folder / "model.json").read_bytes()) | changes
    described.pop("checksum")
    described = {"checksum": read_folder.checksum(described)} | described
    (folder / "model.json").write_text(json.dumps(described))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3}, r"was written by a newer discreet \(format 3\). Upgrade to load it"),
        ({"format": "new"}, "is not a complete model"),
        (
            {"class": "DeepDream"},
            "holds a 'DeepDream', which this version of discreet does not have",
        ),
        ({"parameters": {"rank": 3}}, "is not a complete model"),
        ({"state": {}}, "is not a complete model"),
        ({"item_ids": [1, 2]}, "which does not fit 2 items"),
        ({"item_ids": [{"type": "code", "value": "1"}] * 12}, "is not a complete model"),
        ({"sha256": {}}, "is not a complete model"),
        ({"sha256": []}, "is not a complete model"),
        ({"sha256": {"../old/model.json": ""}}, "lists files outside its folder"),
        ({"sha256": {"/dev/zero": ""}}, "lists files outside its folder"),
    ],
)
def test_a_strange_model_is_refused(saved, changes, message):
    rewrite(saved, **changes)
    with pytest.raises(DataError, match=message):
        discreet.load(saved)


@pytest.mark.parametrize("name", ["explicit", "float64", "implicit", "bias", "popularity"])
def test_folders_of_format_1_still_load(name, tmp_path):
    model = MODELS[name]().fit(some_ratings())
    model.save(tmp_path / "model")
    later = ("unobserved_weight", "intercept_scale")
    state = {key: value for key, value in model.state().items() if key not in later}
    rewrite(tmp_path / "model", format=1, state=state)
    assert same(discreet.load(tmp_path / "model"), model)


def test_private_folders_of_format_1_are_refused_in_one_sentence(tmp_path):
    discreet.DPMF(2, epsilon=50.0, rating_range=(1, 5), goal="rating").fit(
        some_ratings(n=200)
    ).save(tmp_path / "model")
    rewrite(tmp_path / "model", format=1)
    with pytest.raises(
        DataError,
        match=r"is a private model in format 1, .* Train it again, or read it with the ver",
    ):
        discreet.load(tmp_path / "model")


@pytest.mark.parametrize("text", ["[]", "3", '"model"', "null", "{}", "", "\xff"])
def test_a_strange_json_is_refused(saved, text):
    (saved / "model.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match="is not a complete model"):
        discreet.load(saved)


def test_no_model_there(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for name, what in (
        ("nothing", "does not exist"),
        ("file", "is not a folder"),
        ("folder", "has no model.json"),
    ):
        with pytest.raises(DataError, match=f"{name} {what}. Pass a folder that save.* wrote"):
            discreet.load(tmp_path / name)


# ------------------------------------------------------------ what is in it


def numbers(value):
    """All numbers in a JSON value."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        return [n for v in value for n in numbers(v)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


@pytest.mark.parametrize("name", MODELS)
def test_nothing_of_the_users_is_kept(name, tmp_path):
    rng = np.random.default_rng(0)
    n, m = 977, 12
    table = np.where(rng.random((n, m)) < 0.5, rng.integers(1, 6, (n, m)), 0)
    people = [f"person-{i:04d}" for i in range(n)]
    ratings = Ratings.from_csr(
        sparse.csr_array(table), user_ids=people, item_ids=[f"item {j}" for j in range(m)]
    )
    model = MODELS[name]().fit(ratings)
    model.save(tmp_path / "model")
    files = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
    assert set(files) == FILES
    assert not any(b"person-" in content for content in files.values())
    described = json.loads(files["model.json"])
    assert not {n, n + 1, ratings.n_ratings} & set(numbers(described))
    card = files["README.md"].decode()
    assert not re.search(rf"\b({n}|{ratings.n_ratings}|{ratings.n_ratings:,})\b", card)
    factors = model.get_params().get("factors", 0)
    assert len(files["factors.safetensors"]) < 8 * m * (factors + 1) + 512, (
        "two arrays over items, and no third"
    )
    assert not any(len(value) == n for value in vars(model).values() if hasattr(value, "__len__"))


def test_there_is_no_pickle(saved, monkeypatch):
    for file in saved.iterdir():
        with pytest.raises(Exception):  # noqa: B017, any refusal will do
            pickle.loads(file.read_bytes())

    def refuse(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    discreet.load(saved)


def test_the_card_says_what_it_is_and_its_example_runs(saved, monkeypatch):
    card = (saved / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: discreet\n")  # as hubs of models want it
    assert "\n---\n\n# ALS: NOT PRIVATE\n" in card
    assert "12 items, 3 factors, goal: rating" in card
    assert "ALS(factors=3, iterations=2, regularization=0.5, random_state=5)" in card
    example = re.search(r"```python\n(.*?)```", card, re.DOTALL).group(1)
    shutil.copytree(saved, saved.parent / "this-folder")
    monkeypatch.chdir(saved.parent)
    scope = {}
    exec(example, scope)
    assert len(scope["item_ids"]) == 10
