"""Models of a service by name, with reloading of replaced folders.

A replaced folder is loaded while the old model continues to serve requests, which then switch to
the new model. A folder that cannot be read has no effect.
"""

from __future__ import annotations

import asyncio
import bisect
import difflib
import logging
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from discreet.errors import ConfigError, DiscreetError
from discreet.models.item_lookup import ItemLookup, drop_accents, fold_text
from discreet.models.storage.load_scorer import OpenedModel, open_model
from discreet.models.storage.read_folder import MODEL
from discreet.serve.web_page import web_page

logger = logging.getLogger("discreet")

POLL_SECONDS = 1.0  # seconds between two checks of the folders
MOST_HITS = 5_000  # matches examined per search, which bounds its time
MOST_COMPARED = 200  # names compared per word of an unknown item: a few milliseconds in all
LONGEST_COMPARED = 100  # characters


@dataclass(frozen=True)
class ServedModel:
    """Served model with its search index."""

    name: str
    opened: OpenedModel
    stamp: tuple[int, ...]
    pages: dict[Any, bytes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def scorer(self) -> Any:
        return self.opened.scorer

    def position(self, item: int | str) -> int:
        """Return the position of an item by id or title; −1 if unknown, −2 if several have it."""
        at: int = self.scorer.position(item)
        if at >= 0 or not isinstance(item, str):
            return at
        return self._items.find_title(item)

    def search(self, query: str, n: int) -> list[int]:
        """Return items whose title or id has all words; those that begin with the first lead."""
        words = drop_accents(fold_text(query)).split()
        if not words:
            return list(range(min(n, len(self.scorer))))
        text, starts = self._text
        first: list[int] = []
        rest: list[int] = []
        place = text.find(words[0])
        for _ in range(MOST_HITS):
            if place < 0 or len(first) >= n:
                break
            at = bisect.bisect_right(starts, place) - 1
            end = starts[at + 1] - 1 if at + 1 < len(starts) else len(text)
            line = text[starts[at] : end]
            if all(word in line for word in words):
                (first if place == starts[at] else rest).append(at)
            place = text.find(words[0], end)
        return (first + rest)[:n]

    def warm(self) -> None:
        """Prepare data structures that would slow down the first request."""
        self.scorer.best(*self.scorer.history([]), 1)
        self._items.find_title("")
        assert self._text
        assert self.opened.statement

    def near(self, text: str) -> list[str]:
        """Return up to three titles or ids that resemble a text.

        Only items that share the beginning of a word with it are compared: comparing a text with
        the titles of a large catalog would take seconds.
        """
        wanted = fold_text(text[:LONGEST_COMPARED])
        words = sorted({word[:4] for word in wanted.split()}, key=len, reverse=True)
        names: dict[str, int] = {}
        for word in words[:3]:
            for at in self.search(word, MOST_COMPARED):
                names[fold_text(str(self.scorer.name(at)))] = at
                names[fold_text(self._short_title(at))] = at
        found = [names[name] for name in difflib.get_close_matches(wanted, names)]
        return [self._short_title(at) for at in dict.fromkeys(found)]

    def _short_title(self, at: int) -> str:
        """Return the title without what follows " · ", or the id."""
        return (self.scorer.title(at) or str(self.scorer.name(at))).split(" · ")[0]

    def page(self, heading: str | None = None, noun: str | None = None) -> bytes:
        """Return the page for browsers, made once; a `ConfigError` where there can be none."""
        made = self.pages.get((heading, noun))
        if made is None:
            made = web_page(self.scorer, self.opened.statement, heading, noun).encode()
            self.pages[heading, noun] = made
        return made

    @cached_property
    def _items(self) -> ItemLookup:
        return ItemLookup.of_model(self.opened)

    @cached_property
    def _text(self) -> tuple[str, list[int]]:
        """All titles and ids in one text, which is faster to search, and the start of each."""
        ids = self.scorer.item_ids.tolist()
        titles = self.scorer.titles
        named = (
            ids
            if titles is None
            else (f"{title} {item}" for title, item in zip(titles, ids, strict=True))
        )
        lines = [drop_accents(fold_text(str(line))) for line in named]
        starts = [0]
        for line in lines[:-1]:
            starts.append(starts[-1] + len(line) + 1)
        return "\n".join(lines), starts


class ModelRegistry:
    """Models by name; the first one is the default."""

    def __init__(self, folders: dict[str, Path]) -> None:
        if not folders:
            raise ConfigError("name at least one folder of a saved model")
        self._folders = folders
        self._models = {name: _open(name, folder) for name, folder in folders.items()}
        self._broken: dict[str, tuple[int, ...]] = {}
        self.reloads = 0
        self.failed_reloads = 0

    @property
    def names(self) -> list[str]:
        return list(self._models)

    def get(self, name: str | None) -> ServedModel | None:
        """Return the model of that name, or the first one."""
        return self._models.get(next(iter(self._models)) if name is None else name)

    def describe(self) -> list[dict[str, Any]]:
        """List the models: name, number of items, and whether they are private."""
        return [
            {
                "name": served.name,
                "items": len(served.scorer),
                "status": served.opened.statement["status"],
            }
            for served in self._models.values()
        ]

    async def watch(self) -> None:
        """Poll the folders and load replaced models, without end."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for name, folder in self._folders.items():
                stamp = _stamp(folder)
                if stamp is not None and stamp not in (
                    self._models[name].stamp,
                    self._broken.get(name),
                ):
                    await self._reload(name, folder, stamp)

    async def _reload(self, name: str, folder: Path, stamp: tuple[int, ...]) -> None:
        try:
            self._models[name] = await asyncio.to_thread(_open, name, folder)
            self.reloads += 1
            logger.info("model %r was replaced, and is served now", name)
        except (DiscreetError, OSError) as error:
            self._broken[name] = stamp  # try again when it changes
            self.failed_reloads += 1
            logger.warning(
                "model %r was replaced by a folder that cannot be read (%s): the old one stays",
                name,
                error,
            )


def parse_folders(given: list[str]) -> dict[str, Path]:
    """Parse ``name=folder`` or plain folders, which are named as on disk."""
    found: dict[str, Path] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals or Path(text).exists():
            name = Path(text).resolve().name
            folder = text
        if not name or name in found:
            raise ConfigError(
                f"two models are called {name!r}: say NAME=FOLDER"
                if name
                else f"{text!r} has no name"
            )
        found[name] = _model_of_timeline(Path(folder))
    return found


def _model_of_timeline(folder: Path) -> Path:
    """Return the folder of a timeline's newest model, which ``discreet timeline add`` replaces;
    any other folder as it is.
    """
    if not (folder / "timeline.json").is_file():
        return folder
    if not (folder / "model").is_dir():
        raise ConfigError(f"{folder} has no model yet. Run discreet timeline model {folder}")
    return folder / "model"


def _open(name: str, folder: Path) -> ServedModel:
    stamp = _stamp(folder)
    made = ServedModel(name, open_model(folder), stamp or ())
    made.warm()
    return made


def _stamp(folder: Path) -> tuple[int, ...] | None:
    """Return a stamp that changes with the folder; None while there is no model."""
    try:
        found = os.stat(folder / MODEL)
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
