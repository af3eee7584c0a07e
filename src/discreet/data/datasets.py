"""Known data sets by name: embedded, generated, or published ones from a file or the network."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from discreet.data import archives
from discreet.data.archives import ArchiveLayout
from discreet.data.download import MOST_BYTES, Progress, cache_folder, download
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError, DataError

logger = logging.getLogger("discreet")
Generator = Callable[[str, int, float, Progress | None], Ratings]

_OURS = "invented here, Apache-2.0 like discreet itself"
_MOVIELENS = (
    "MovieLens: for research, with acknowledgment (doi.org/10.1145/2827872); not for commercial use"
    " and not to be passed on without permission, see the README in the archive"
)
_SWEETRS = "none stated by the author; cite arxiv.org/abs/1709.03496"


@dataclass(frozen=True)
class Dataset:
    """Facts about a data set that are known without opening it.

    Attributes
    ----------
    name : str
    about : str
    users, items, ratings : int
        Published sizes; rated items only.
    kind : {"embedded", "generated", "published"}
    license : str
    source : str
        Page that describes it.
    url : str or None
        File to download.
    sha256 : str or None
        Checksum of the file. If None, that of the first download is stored, and later downloads
        must match it.
    md5 : str or None
        Published checksum, tested in addition to the SHA-256 or, where none is known, instead.
    size : int
        Size of the file in bytes or, where that changes, its maximum.
    layout : ArchiveLayout or None
        Layout of the files; None for data that need no file.
    """

    name: str
    about: str
    users: int
    items: int
    ratings: int
    kind: Literal["embedded", "generated", "published"]
    license: str = _OURS
    source: str = ""
    url: str | None = None
    sha256: str | None = None
    md5: str | None = None
    size: int = MOST_BYTES
    layout: ArchiveLayout | None = None

    @property
    def place(self) -> Path | None:
        """Path of the file in the cache folder; None for data that need no file."""
        if self.layout is None:
            return None
        plain = self.layout.archive == self.layout.ratings
        return (
            cache_folder() / self.name / self.layout.archive
            if plain
            else cache_folder() / self.layout.archive
        )

    @property
    def present(self) -> bool:
        """Whether it can be loaded now, without a network."""
        try:
            return self.layout is None or self.find() is not None
        except DataError:  # a broken archive
            return False

    def find(self) -> archives.ArchiveSource | None:
        """Find the data set in the cache folder: its archive, or a folder with its name."""
        assert self.layout is not None
        folder = cache_folder()
        for path in (self.place, folder / self.name, folder / self.layout.folder):
            if path is not None and (found := archives.locate(self.layout, path)) is not None:
                return found
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for the command line and JSON."""
        return {
            "name": self.name,
            "about": self.about,
            "users": self.users,
            "items": self.items,
            "ratings": self.ratings,
            "kind": self.kind,
            "license": self.license,
            "source": self.source,
            "url": self.url,
            "place": None if self.place is None else str(self.place),
            "present": self.present,
        }


def _movielens(
    name: str,
    about: str,
    sizes: tuple[int, int, int],
    style: str,
    size: int,
    sha256: str | None = None,
    *,
    md5: str | None = None,
    folder: str | None = None,
) -> Dataset:
    ratings, items, separator = {
        "u": ("u.data", "u.item", "\t"),
        "dat": ("ratings.dat", "movies.dat", "::"),
        "csv": ("ratings.csv", "movies.csv", ","),
    }[style]
    layout = ArchiveLayout(
        f"{name}.zip", ratings, items, folder or name, separator, header=style == "csv"
    )
    page = "latest" if "latest" in name else name.removeprefix("ml-")
    return Dataset(
        name,
        about,
        *sizes,
        "published",
        _MOVIELENS,
        f"https://grouplens.org/datasets/movielens/{page}/",
        f"https://files.grouplens.org/datasets/movielens/{name}.zip",
        sha256,
        md5,
        size,
        layout,
    )


def _neighbor_lists(name: str, about: str, sizes: tuple[int, int, int], size: int) -> Dataset:
    """Describe a benchmark of papers on graph models: a line has a user and all of its items.

    Published are two files; without test.txt next to train.txt, the training part alone is read.
    """
    where = "gusye1234/LightGCN-PyTorch"
    return Dataset(
        name,
        about,
        *sizes,
        "published",
        "not stated; research use",
        f"https://github.com/{where}/tree/master/data/{name}",
        f"https://raw.githubusercontent.com/{where}/master/data/{name}/train.txt",
        size=size,
        layout=ArchiveLayout(
            "train.txt", "train.txt", "test.txt", name, " ", header=False, neighbor_lists=True
        ),
    )


# The SHA-256 of ml-1m was computed from the official archive. Those of ml-100k, ml-20m and ml-25m
# are in the list of TensorFlow Datasets (url_checksums/movielens.txt), which agrees on ml-1m; that
# of ml-32m is in several public repositories, and is checked together with the published MD5. For
# ml-10m only the published MD5 is known.
_ALL = (
    Dataset(
        "cinema",
        "800 invented films with titles and genres, half stars",
        20_000,
        800,
        1_152_805,
        "embedded",
    ),
    _movielens(
        "ml-100k",
        "MovieLens 100K (1998), 1 to 5 stars",
        (943, 1_682, 100_000),
        "u",
        4_924_029,
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
    ),
    _movielens(
        "ml-1m",
        "MovieLens 1M (2003), 1 to 5 stars",
        (6_040, 3_706, 1_000_209),
        "dat",
        5_917_549,
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    ),
    _movielens(
        "ml-10m",
        "MovieLens 10M (2009), half stars",
        (69_878, 10_677, 10_000_054),
        "dat",
        65_566_137,
        md5="ce571fd55effeba0271552578f2648bd",
        folder="ml-10M100K",
    ),
    _movielens(
        "ml-20m",
        "MovieLens 20M (2015), half stars",
        (138_493, 26_744, 20_000_263),
        "csv",
        198_702_078,
        "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
    ),
    _movielens(
        "ml-25m",
        "MovieLens 25M (2019), half stars",
        (162_541, 59_047, 25_000_095),
        "csv",
        261_978_986,
        "8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa",
    ),
    _movielens(
        "ml-32m",
        "MovieLens 32M (2023), half stars",
        (200_948, 84_432, 32_000_204),
        "csv",
        238_950_008,
        "e4a68655d7386b8f95f2f2424b2ff975dfdd15ffd59e0d864a14dca43e99d6ee",
        md5="d472be332d4daa821edc399621853b57",
    ),
    # rewritten from time to time by its publisher: there is no checksum, and it may grow
    _movielens(
        "ml-latest-small",
        "MovieLens, small and changing (sizes of 2018), half stars",
        (610, 9_724, 100_836),
        "csv",
        1 << 24,
    ),
    Dataset(
        "sweetrs",
        "sweets, 1 to 5; rows with 0 mean 'never tried'",
        1_468,
        77,
        38_116,
        "published",
        _SWEETRS,
        "https://github.com/kidzik/sweetrs-analysis",
        "https://raw.githubusercontent.com/kidzik/sweetrs-analysis/master/ratings-final.csv",
        size=1 << 24,  # 44,543 short lines: less than 2 MB
        layout=ArchiveLayout(
            "ratings-final.csv", "ratings-final.csv", "", "sweetrs", ",", header=True
        ),
    ),
    Dataset(
        "goodbooks-10k",
        "Goodbooks (2017), 1 to 5 stars for the 10,000 most rated books",
        53_424,
        10_000,
        5_976_479,
        "published",
        "CC BY-SA 4.0",
        "https://github.com/zygmuntz/goodbooks-10k",
        "https://github.com/zygmuntz/goodbooks-10k/releases/download/v1.0/goodbooks-10k.zip",
        size=1 << 26,
        layout=ArchiveLayout(
            "goodbooks-10k.zip", "ratings.csv", "books.csv", "goodbooks-10k", ",", header=True
        ),
    ),
    Dataset(
        "movietweetings",
        "the first 100,000 ratings of films on Twitter, 0 to 10",
        16_554,
        10_506,
        100_000,
        "published",
        "MIT",
        "https://github.com/sidooms/MovieTweetings",
        "https://raw.githubusercontent.com/sidooms/MovieTweetings/master/snapshots/100K/ratings.dat",
        size=1 << 24,
        layout=ArchiveLayout(
            "ratings.dat", "ratings.dat", "movies.dat", "movietweetings", "::", header=False
        ),
    ),
    _neighbor_lists(
        "gowalla", "check-ins at places, interactions only", (29_858, 40_981, 1_027_370), 1 << 25
    ),
    _neighbor_lists(
        "yelp2018", "reviews of businesses, interactions only", (31_668, 38_048, 1_561_406), 1 << 26
    ),
    _neighbor_lists(
        "amazon-book", "reviews of books, interactions only", (52_643, 91_599, 2_984_108), 1 << 26
    ),
)
_BY_NAME = {dataset.name: dataset for dataset in _ALL}
_GENERATORS: dict[str, Generator] = {}
#: Data sets that must have the published numbers of users and ratings; the others may change, or
#: no checksum of them is known.
FIXED = {d.name for d in _ALL if d.sha256 or d.md5 or d.name == "sweetrs"}


def datasets() -> list[Dataset]:
    """Return all data sets that :func:`load_dataset` knows."""
    return list(_BY_NAME.values())


def register_generator(dataset: Dataset, generate: Generator) -> None:
    """Add a generated data set: ``generate(name, seed, scale, progress)`` returns its ratings."""
    _BY_NAME[dataset.name] = dataset
    _GENERATORS[dataset.name] = generate


def describe(name: str) -> Dataset:
    """Return the facts about one data set; upper and lower case are the same."""
    if str(name).lower() in _BY_NAME:
        return _BY_NAME[str(name).lower()]
    near = difflib.get_close_matches(str(name), _BY_NAME, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? The known ones are" if near else "the known ones are"
    raise ConfigError(f"unknown data set {name!r}: {hint} {', '.join(_BY_NAME)}")


def load_dataset(
    name: str = "cinema",
    path: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    scale: float | None = None,
    catalog: bool | None = None,
    drop_zeros: bool | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Ratings:
    """Load the ratings of a known data set, with titles where there are any.

    Published data sets are read from ``path``, or else from the cache folder (``DISCREET_CACHE``,
    by default ``~/.cache/discreet``), or else downloaded into it.

    Parameters
    ----------
    name : str
        One of :func:`datasets`, in any case.
    path : path, optional
        Archive, ratings file or folder of a published data set.
    seed, scale : optional
        Of generated data sets: the replica (0) and the fraction of the users (1.0).
    catalog : bool, optional
        Of published data sets: keep every item of the published list, also unrated ones. The items
        are then public and not derived from the ratings. By default only the rated items are kept,
        as in the literature.
    drop_zeros : bool, optional
        Of ``sweetrs``: drop the rows with rating 0, which mean "never tried" (the default).
    download : bool
        Whether the network may be used.
    progress : callable, optional
        Called as ``progress(done, total, text)`` while downloading or generating.

    Raises
    ------
    ConfigError
        The data set is unknown, or has no such option.
    DataError
        Its file is missing, broken or of another data set; the message names its URL and the path
        where it belongs.
    """
    dataset = describe(name)
    name = dataset.name
    given = {
        "path": path,
        "seed": seed,
        "scale": scale,
        "catalog": catalog,
        "drop_zeros": drop_zeros,
    }
    _check_options(dataset, [option for option, value in given.items() if value is not None])
    if dataset.kind != "published":
        seed = 0 if seed is None else seed
        scale = 1.0 if scale is None else scale
        if name == "cinema":
            from discreet.data.cinema import make_cinema

            return make_cinema(seed, scale)
        return _GENERATORS[name](name, seed, scale, progress)
    logger.info("%s: license: %s", name, dataset.license)
    ratings = _read_published(dataset, path, bool(catalog), download, progress)
    if name == "sweetrs" and drop_zeros is not False:
        ratings = ratings.keep(ratings.values != 0)
        ratings = ratings.select_users(np.diff(ratings.indptr) > 0)
    if drop_zeros is not False:
        _check_sizes(dataset, ratings, path)
    return ratings


def _check_sizes(dataset: Dataset, ratings: Ratings, path: str | os.PathLike[str] | None) -> None:
    """Refuse other data than the named set, because scores on them would be reported as its own."""
    rows = ratings.n_ratings + (0 if dataset.name == "sweetrs" else ratings.merged)
    if dataset.name not in FIXED or (ratings.n_users, rows) == (dataset.users, dataset.ratings):
        return
    where = dataset.place if path is None else path
    same = [
        d.name
        for d in _ALL
        if d.kind == "published" and (d.users, d.ratings) == (ratings.n_users, rows)
    ]
    advice = (
        f"load it as {same[0]}"
        if same
        else "read a part of it, or data of your own, with Ratings.read"
    )
    raise DataError(
        f"{where} is not {dataset.name}: it holds {rows:,} ratings of {ratings.n_users:,} users,"
        f" but {dataset.name} has {dataset.ratings:,} of {dataset.users:,}; {advice}"
    )


def _read_published(
    dataset: Dataset,
    path: str | os.PathLike[str] | None,
    catalog: bool,
    network: bool,
    progress: Progress | None,
) -> Ratings:
    layout, place = dataset.layout, dataset.place
    assert layout is not None
    assert place is not None
    assert dataset.url is not None
    if path is not None:
        given = Path(path).expanduser()
        source = archives.locate(layout, given)
        if source is None:
            problem = "does not exist" if not given.exists() else f"has none of {layout.files}"
            raise DataError(
                f"{given} {problem}: download {dataset.name} from {dataset.url} and pass its path"
            )
        return archives.read(layout, source, catalog=catalog)
    source = dataset.find()
    if source is None:
        where = f"download {dataset.url} to {place}, or pass its location with path="
        if not network:
            raise DataError(f"{dataset.name} is not on this machine: {where}")
        try:
            download(
                dataset.url,
                place,
                sha256=dataset.sha256,
                md5=dataset.md5,
                most=dataset.size,
                progress=progress,
            )
        except DataError as problem:
            missing = f"{dataset.name} is not on this machine and cannot be downloaded"
            raise DataError(f"{missing} ({problem}): {where}") from None
        logger.warning("downloaded %s; license: %s", dataset.name, dataset.license)
        source = archives.locate(layout, place)
        assert source is not None
    return archives.read(layout, source, catalog=catalog)


def _check_options(dataset: Dataset, given: list[str]) -> None:
    allowed = ["path", "catalog"] if dataset.kind == "published" else ["seed", "scale"]
    if dataset.name == "sweetrs":
        allowed.append("drop_zeros")
    for option in given:
        if option not in allowed:
            raise ConfigError(
                f"{dataset.name} has no option {option!r}: it takes {' and '.join(allowed)}"
            )
