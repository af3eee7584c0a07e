"""What the tests of all engines share: people, models, silence, and what was added up."""

import hashlib
import stat

import numpy as np

import discreet
from discreet.data.cinema import films
from discreet.data.splits import random_ratings
from discreet.privacy.noise.sources import SecureNoise

SCALE = (0.5, 5.0)
MODELS = {
    "DPMF, ranking": lambda: discreet.DPMF(epsilon=8.0, rating_range=SCALE, random_state=1),
    "DPMF, profiles": lambda: discreet.DPMF(
        epsilon=8.0, rating_range=SCALE, random_state=1, item_features=genres()
    ),
    "DPMF, communities": lambda: discreet.DPMF.configure(
        epsilon=200.0, route="communities", rating_range=SCALE, random_state=1
    ),
    "DPMF, rating": lambda: discreet.DPMF(
        epsilon=8.0, goal="rating", rating_range=SCALE, random_state=1, iterations=2
    ),
    "DPALS": lambda: discreet.DPALS(8, epsilon=8.0, rating_range=SCALE, random_state=1),
    "DPLMC": lambda: discreet.DPLMC(
        6, epsilon=8.0, rating_range=SCALE, random_state=1, iterations=2
    ),
}


def genres():
    return {film.id: list(film.genres) for film in films()}


def some_ratings():
    return random_ratings(discreet.load_dataset("cinema", scale=0.02), (0.9, 0.1), seed=5).train


def silenced(monkeypatch):
    """Secure noise adds nothing; everything that it would have been added to is kept in the
    list returned.
    """
    seen = []

    def add(self, values, mechanism, weights=None, grid=None):
        assert values.dtype == np.int64, "exact sums are int64"
        seen.append(values.copy())
        return values * grid

    monkeypatch.setattr(SecureNoise, "add", add)
    return seen


def trained(model, people, seen):
    """The model, and every exact sum behind its releases."""
    seen.clear()
    return model.fit(people, trust_user_column=True), list(seen)


def same_bits(one, other):
    (model, sums), (model_2, sums_2) = one, other
    assert sums
    assert all(np.array_equal(a, b) for a, b in zip(sums, sums_2, strict=True))
    assert np.array_equal(model.item_factors_, model_2.item_factors_)
    assert np.array_equal(model.item_biases_, model_2.item_biases_)
    first, second = model.privacy_.ledger.entries, model_2.privacy_.ledger.entries
    assert [(entry.name, entry.sensitivity, entry.shape) for entry in first] == [
        (entry.name, entry.sensitivity, entry.shape) for entry in second
    ]


# ------------------------------------------------------------------ traces of ids in files

WHOLE_IDS = [0x4B1D7A11C0DE0000 + n for n in range(40)]
TEXT_IDS = [f"recognizable-{n:02d}@example.org" for n in range(40)]


def rows_of_recognizable_users():
    """Users whose ids, and hashes that can be computed without a secret, are found again in any
    file.
    """
    users = [*map(str, WHOLE_IDS), *TEXT_IDS]
    return {
        "user": users,
        "item": [n % 5 for n in range(80)],
        "rating": [1.0 + n % 5 for n in range(80)],
    }


def traces_of_ids():
    """Ids as text and as integers, and hashes of them without a key, in either order of bytes."""
    found = [one.encode() for one in (*map(str, WHOLE_IDS), *TEXT_IDS)]
    found += [one.to_bytes(8, order) for one in WHOLE_IDS for order in ("little", "big")]
    for one in (*WHOLE_IDS, *map(str, WHOLE_IDS), *TEXT_IDS):
        for text in (repr(one), str(one)):
            for size in (8, 16, 32):
                digest = hashlib.blake2b(text.encode(), digest_size=size).digest()
                found += [digest[:8], digest[:8][::-1], bytes([digest[0] | 1]) + digest[1:8]]
            found += [
                hashlib.new(name, text.encode()).digest()[:8] for name in ("md5", "sha1", "sha256")
            ]
    return found


def files_with_traces(folder):
    """Names of files below the folder that hold a trace of an id, in their name or in their
    content.
    """
    traces = traces_of_ids()
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    return [
        file.name
        for file in files
        if any(one in file.name.encode() + file.read_bytes() for one in traces)
    ]


def modes_of(folder):
    """The permissions of a folder and of all below it, as (of folders, of files)."""
    everything = [folder, *folder.rglob("*")]
    return tuple(
        {stat.S_IMODE(one.stat().st_mode) for one in everything if one.is_dir() == kind}
        for kind in (1, 0)
    )


class Interrupted(Exception):
    """Raised in the middle of a training."""


def interrupt(monkeypatch, after=1):
    """The noise of a training fails after so many releases."""
    left = iter(range(after))
    add = SecureNoise.add

    def fails(self, *given, **options):
        if next(left, None) is None:
            raise Interrupted
        return add(self, *given, **options)

    monkeypatch.setattr(SecureNoise, "add", fails)
