"""A page of benchmarks: each section stands between two comments and is replaced as a whole, the
rest is kept.

So sections may be measured one at a time, on whatever machine is quiet, and handwritten text
around them stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from discreet.data.atomic_files import atomic_write
from discreet.errors import ConfigError

HEAD = (
    "# Benchmarks\n\nWritten by `discreet bench --out FILE`, which replaces the sections that it"
    " measures.\n"
)


def write(page: Path, sections: Mapping[str, str], order: Sequence[str]) -> None:
    """Put the sections into the page; one that is new goes where `order` has it.

    Parameters
    ----------
    page : Path
        An existing page, of which everything else is kept, or a new one.
    sections : mapping of str to str
        Markdown by the name of the section.
    order : sequence of str
        All names, as they follow each other on the page.
    """
    text = page.read_text(encoding="utf-8") if page.is_file() else HEAD
    for name, body in sections.items():
        text = _replaced(text, name, body, order)
    with atomic_write(page) as aside:
        aside.write_text(text, encoding="utf-8")


def _replaced(text: str, name: str, body: str, order: Sequence[str]) -> str:
    block = f"{_opening(name)}\n{body.strip()}\n{_closing(name)}"
    if _opening(name) in text:
        before, _, rest = text.partition(_opening(name))
        _, closed, after = rest.partition(_closing(name))
        if not closed:
            raise ConfigError(
                f"the page has {_opening(name)} without {_closing(name)}: mend or remove that"
                " section"
            )
        return before + block + after
    for later in order[order.index(name) + 1 :]:
        if _opening(later) in text:
            before, mark, after = text.partition(_opening(later))
            return f"{before}{block}\n\n{mark}{after}"
    return f"{text.rstrip()}\n\n{block}\n"


def _opening(name: str) -> str:
    return f"<!-- bench {name} -->"


def _closing(name: str) -> str:
    return f"<!-- /bench {name} -->"
