"""Published data sets in their original layouts: a zip archive, its unpacked files, or Parquet."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from discreet.data.catalog import Catalog, read_catalog
from discreet.data.ids import IdIndex, object_array
from discreet.data.ratings import Ratings
from discreet.errors import DataError

TABLES = ("ratings.parquet", "items.parquet")
# bytes of one unpacked file: more than twice the largest that is published, so no zip bomb fits
MOST_UNPACKED = 1 << 31


@dataclass(frozen=True)
class ArchiveLayout:
    """Layout in which a data set is published.

    Attributes
    ----------
    archive : str
        File name under which it is offered, such as ``"ml-10m.zip"``.
    ratings, items : str
        Names of the files inside, or of the one file where there is no archive.
    folder : str
        Name of the folder in the archive.
    separator : str
    header : bool
    neighbor_lists : bool
        Whether a line has a user and all of that user's items, without ratings; `items` then names
        a second file of the same kind.
    """

    archive: str
    ratings: str
    items: str
    folder: str
    separator: str
    header: bool
    neighbor_lists: bool = False

    @property
    def files(self) -> str:
        """Names of the files that make up the data set, for messages."""
        plain = f"{self.ratings} (and {self.items})" if self.items else self.ratings
        return (
            f"{self.archive}, {plain} or {TABLES[0]}"
            if self.archive != self.ratings
            else f"{plain} or {TABLES[0]}"
        )


@dataclass(frozen=True)
class ArchiveSource:
    """Place where a data set was found: two plain files, or two members of an archive.

    Attributes
    ----------
    ratings, items : str
        Paths of the files, or names of the members; ``items`` may be None.
    archive : Path or None
        Archive that holds the members; None for plain files.
    tables : bool
        Whether the files are Parquet tables.
    """

    ratings: str
    items: str | None
    archive: Path | None = None
    tables: bool = False


def locate(layout: ArchiveLayout, path: Path) -> ArchiveSource | None:
    """Find the data set at ``path``: its archive, its ratings file, or a folder with either."""
    if path.is_file():
        if path.suffix.lower() == ".zip":
            return _in_archive(layout, path)
        return _plain(path, TABLES[1] if path.suffix == ".parquet" else layout.items)
    if not path.is_dir():
        return None
    folders = [folder for folder in (path, path / layout.folder) if folder.is_dir()]
    for folder in folders:
        if (folder / layout.ratings).is_file():
            return _plain(folder / layout.ratings, layout.items)
    for folder in folders:
        if layout.archive != layout.ratings and (folder / layout.archive).is_file():
            return _in_archive(layout, folder / layout.archive)
    for folder in folders:
        if (folder / TABLES[0]).is_file():
            return _plain(folder / TABLES[0], TABLES[1])
    return None


def read(layout: ArchiveLayout, source: ArchiveSource, *, catalog: bool = False) -> Ratings:
    """Read the ratings, with titles where the data set has them.

    Parameters
    ----------
    layout, source
        From the registry and from :func:`locate`.
    catalog : bool
        Keep every item of the published list, also unrated ones; otherwise only the rated items.
    """
    with _unpack_files(source) as (ratings_file, items_file):
        if layout.neighbor_lists and not source.tables:
            return _read_neighbor_lists([ratings_file, items_file], catalog)
        listed = None if items_file is None else read_catalog(items_file)
        if catalog and listed is None:
            raise DataError(
                f"{source.ratings} has no {layout.items or TABLES[1]} next to it, so there is no"
                " catalog. Add that file, or pass catalog=False."
            )
        items = listed if catalog else None
        if source.tables:
            made = Ratings.read(ratings_file, items=items)
        elif layout.header:
            made = Ratings.read(
                ratings_file, items=items, rating=_rating_column(ratings_file, layout.separator)
            )
        else:
            made = Ratings.read(ratings_file, items=items, separator=layout.separator, header=False)
    return made if catalog or listed is None else _add_titles(made, listed)


def _read_neighbor_lists(files: Sequence[Path | None], catalog: bool) -> Ratings:
    """Read lines with a user and the items of that user, from one or two files."""
    if catalog:
        raise DataError("This data set has no list of all items. Pass catalog=False.")
    users: list[int] = []
    items: list[int] = []
    for file in files:
        for number, line in enumerate(file.open(encoding="utf-8") if file else (), start=1):
            try:
                user, *own = map(int, line.split())
            except ValueError:
                raise DataError(
                    f"{file}, line {number}: expected a user and items, all whole numbers"
                ) from None
            users += [user] * len(own)
            items += own
    return Ratings.from_arrays(users, items)


def _add_titles(ratings: Ratings, listed: Catalog) -> Ratings:
    if listed.titles is None:
        return ratings
    at = IdIndex(listed.ids).positions(ratings.item_ids, "item id")
    known = zip(at.tolist(), ratings.item_ids.tolist(), strict=True)
    titles = object_array(
        (listed.titles[a] if a >= 0 else str(i) for a, i in known), ratings.n_items
    )
    return Ratings.from_indices(
        ratings.indptr,
        ratings.indices,
        ratings.values,
        ratings.user_ids,
        ratings.item_ids,
        ratings.timestamps,
        titles,
        ratings.catalog,
        ratings.merged,
        ratings.filtered,
    )


def _rating_column(file: Path, separator: str) -> str:
    """Return ``rating`` or the last column: a file without ratings would silently read as ones."""
    with file.open(encoding="utf-8", errors="replace") as stream:
        names = [name.strip().strip('"') for name in stream.readline().split(separator)]
    return "rating" if "rating" in names else names[-1]


def _plain(ratings: Path, items: str) -> ArchiveSource:
    sibling = ratings.with_name(items) if items else None
    found = str(sibling) if sibling is not None and sibling.is_file() else None
    return ArchiveSource(str(ratings), found, tables=ratings.suffix == ".parquet")


def _in_archive(layout: ArchiveLayout, archive: Path) -> ArchiveSource:
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if not name.startswith("__MACOSX")]
    except (zipfile.BadZipFile, OSError) as problem:
        raise DataError(
            f"{archive} is not a complete zip archive ({problem}): delete it and download it again"
        ) from None

    def member(file: str) -> str | None:
        found = [name for name in names if PurePosixPath(name).name == file]
        return min(found, key=len, default=None)

    ratings = member(layout.ratings)
    if ratings is None:
        raise DataError(f"{archive} does not contain {layout.ratings}: it is not {layout.archive}")
    return ArchiveSource(ratings, member(layout.items), archive)


@contextlib.contextmanager
def _unpack_files(source: ArchiveSource) -> Iterator[tuple[Path, Path | None]]:
    """Yield the two files on disk; members of an archive are unpacked until the block ends."""
    if source.archive is None:
        yield Path(source.ratings), None if source.items is None else Path(source.items)
        return
    with tempfile.TemporaryDirectory(prefix="discreet-") as folder:
        try:
            with zipfile.ZipFile(source.archive) as opened:
                ratings = _unpack(opened, source.ratings, Path(folder))
                items = (
                    None if source.items is None else _unpack(opened, source.items, Path(folder))
                )
        except (zipfile.BadZipFile, zlib.error, EOFError) as problem:
            raise DataError(
                f"{source.archive} is damaged ({problem}): delete it and download it again"
            ) from None
        except OSError as problem:
            raise DataError(
                f"{source.archive} cannot be unpacked into {folder} ({problem.strerror})"
            ) from None
        try:
            yield ratings, items
        except DataError as problem:
            # name the archive that the reader knows, not a temporary file that no longer exists
            raise DataError(str(problem).replace(f"{folder}/", f"{source.archive}/")) from None


def _unpack(opened: zipfile.ZipFile, member: str, folder: Path) -> Path:
    if opened.getinfo(member).file_size > MOST_UNPACKED:  # refuse before writing anything
        raise DataError(
            f"{opened.filename} unpacks to more than {MOST_UNPACKED:,} bytes: it is not the"
            " published archive"
        )
    # keep only the last part of the name, so that a member cannot write outside the folder
    target = folder / PurePosixPath(member).name
    with opened.open(member) as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
    return target
