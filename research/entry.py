"""What can be reproduced: one TOML file in ``configs/`` for each table or figure of a paper.

A file says which function runs a *cell* and which cells there are:

    title, paper, about   text for the reader
    run = "module:function"
                          ``function(settings, sources)`` gives a dict of numbers, or a list
    [data]                data set of the paper = what stands for it where that is not at hand
    [common]              settings of every cell
    [[cells]]             settings of some; a list stands for each of its values, and all lists
                          are crossed; a table inside is passed on as it is; ``quick = false``
                          leaves the block out of quick runs
    [quick]               what replaces the settings of these names in quick runs
    references, published the papers' own values, and which settings each belongs to
    [[tables]], [[plots]] how the results are laid out (`research.layout`, `research.figures`)

The setting ``seed`` is what results are averaged over. A cell with ``trials`` instead runs the
seeds 0, 1, … by itself, because what comes before them (a search for parameters) is the same for
all.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from discreet.errors import ConfigError
from research.sources import Sources

Settings = dict[str, Any]
Record = dict[str, Any]
Runner = Callable[[Settings, Sources], Record | list[Record]]
ORDER = ("dpals", "dplmc", "huber", "theory", "baselines", "real")
# figures of a paper whose parts are in entries with other names
PARTS = {
    "dpals-figure3": ("baselines-figure3a", "dpals-table5"),
    "dpals-figure3a": ("baselines-figure3a",),
    "dpals-figure3b": ("dpals-table5",),
    "dpals-figure3c": ("dpals-table5",),
}
PARTED = "dpals-figure3"
PARTED_TITLE = "DPALS, Figure 3: part a is baselines-figure3a, parts b and c are in dpals-table5"


@dataclass(frozen=True)
class Entry:
    """One table or figure; the fields are those of the file."""

    name: str
    title: str
    run: str
    paper: str = ""
    about: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    common: Settings = field(default_factory=dict)
    cells: tuple[Settings, ...] = ()
    quick: Settings = field(default_factory=dict)
    references: tuple[str, ...] = ()
    published: tuple[Settings, ...] = ()
    tables: tuple[dict[str, Any], ...] = ()
    plots: tuple[dict[str, Any], ...] = ()

    def settings(self, sources: Sources, *, quick: bool = False) -> list[Settings]:
        """The settings of every cell, in the order of the file; ``data`` names what is really
        used.
        """
        found: list[Settings] = []
        for block in self.cells or ({},):
            block = dict(block)
            if not block.pop("quick", True) and quick:
                continue
            whole = self.common | block
            if quick:
                whole |= {name: value for name, value in self.quick.items() if name in whole}
            names = [name for name, value in whole.items() if isinstance(value, list)]
            for values in itertools.product(*(whole[name] for name in names)):
                one = whole | dict(zip(names, values, strict=True))
                if "data" in one:
                    one["data"] = sources.at_hand(one["data"], self.data.get(one["data"]))
                if one not in found:
                    found.append(one)
        return found

    @property
    def smaller(self) -> bool:
        """Whether the quick version differs from the whole."""
        return bool(self.quick) or not all(block.get("quick", True) for block in self.cells)

    def sets(self, sources: Sources, *, quick: bool = False) -> list[str]:
        """The data sets that are really used; none where a run generates what it needs by
        itself.
        """
        return sorted(
            {str(one["data"]) for one in self.settings(sources, quick=quick) if "data" in one}
        )

    def seeds(self, sources: Sources, *, quick: bool = False) -> list[Any]:
        cells = self.settings(sources, quick=quick)
        trials = {seed for one in cells for seed in range(one.get("trials", 0))}
        return sorted({one["seed"] for one in cells if "seed" in one} | trials)

    def runner(self) -> Runner:
        module, function = self.run.split(":")
        runner: Runner = getattr(importlib.import_module(module), function)
        return runner


def names() -> list[str]:
    """All entries, paper by paper."""
    found = [
        file.name.removesuffix(".toml")
        for file in _folder().iterdir()
        if file.name.endswith(".toml")
    ]
    papers = {paper: at for at, paper in enumerate(ORDER)}
    return sorted(
        found, key=lambda name: (papers.get(name.split("-")[0], len(ORDER)), _natural(name))
    )


def meant(words: Iterable[str]) -> list[str]:
    """Names of entries, once each, from what was requested: a name, a figure in several
    parts, or ``all``.
    """
    found: list[str] = []
    for word in words:
        found += names() if word == "all" else PARTS.get(word, (word,))
    return list(dict.fromkeys(found))


def load(name: str) -> Entry:
    """The entry with that name."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, [*known, *PARTS], n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? There are" if near else "there are"
        raise ConfigError(
            f"there is nothing called {name!r} to reproduce: {hint} {', '.join(known)}"
        )
    text = (_folder() / f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Entry:
    """An entry from the text of its file."""
    try:
        document = tomllib.loads(text)
        lists = {
            key: tuple(document.get(key, ()))
            for key in ("cells", "references", "published", "tables", "plots")
        }
        return Entry(name=name, **(document | lists))
    except (tomllib.TOMLDecodeError, TypeError) as problem:
        raise ConfigError(f"the file of {name} cannot be used: {problem}") from None


def key(settings: Settings) -> str:
    """A short name for the settings of a cell, the same in every run."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def minutes(name: str) -> float | None:
    """About how long the whole entry takes with two cores, where that was measured."""
    text = (files("research") / "minutes.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text).get(name)
    return None if found is None else float(found)


def _folder() -> Any:
    return files("research") / "configs"


def _natural(name: str) -> list[tuple[int, str]]:
    """figure2 before figure10."""
    parts = ["".join(run) for _, run in itertools.groupby(name, str.isdigit)]
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]
