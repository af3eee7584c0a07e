"""``discreet report``: one HTML file about a trained model.

ledger_summary, item_map, evaluation_section   content: from the ledger, the factors, the ratings
html, charts, templates                        escaped markup, SVG, texts of the pages
page                                           the report, with style.css and script.js inside
sign_off                                       one page to be signed, with sign_off.css
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import ConfigError

if TYPE_CHECKING:
    from discreet.data.ratings import Ratings
    from discreet.report.evaluation_section import Quality

Progress = Callable[[int, int, str], None]


def check_target(path: str | os.PathLike[str]) -> Path:
    """Check that the path is not a folder, and return it."""
    file = Path(path)
    if file.is_dir():
        raise ConfigError(
            f"{file} is a folder: name a file for the report, such as {file / 'report.html'}"
        )
    return file


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    *,
    data: Ratings | None = None,
    test: Ratings | None = None,
    histories: Sequence[Mapping[Any, float]] = (),
    n: int = 10,
    title: str | None = None,
    progress: Progress | None = None,
) -> Quality | None:
    """Write a report about a fitted model to the file `path`, atomically.

    Parameters
    ----------
    model : Recommender
    path : path of the HTML file
    data : Ratings, optional
        Ratings to measure the model and baselines on. Without them no ratings are accessed.
    test : Ratings, optional
        Ratings that the model has not seen, of users in `data`. Without them a model with the same
        parameters is trained on a part of `data` and measured on the rest.
    histories : mappings item id -> rating
        Histories to show recommendations for, instead of invented ones.
    n : number of recommendations
    title : of the page; by default the model's class and ε
    progress : callable(done, total, text), optional

    Returns
    -------
    The scores, or None without `data`.

    Notes
    -----
    Privacy: with `data` the file shows exact statistics of users' ratings, which the model's ε does
    not cover; the page reports so.
    """
    from discreet.data.atomic_files import atomic_write
    from discreet.report import evaluation_section, item_map, page

    if test is not None and data is None:
        raise ConfigError("test is given without data: pass the histories of its users as data")
    file = check_target(path)
    measured = (
        None if data is None else evaluation_section.measure(model, data, test, progress=progress)
    )
    if histories:
        shown = [
            item_map.sample_recommendations(model, dict(h), f"History {at}", n)
            for at, h in enumerate(histories, start=1)
        ]
    else:
        shown = item_map.samples(model, n)
    text = page.render(model, measured, shown, title)
    with atomic_write(file) as part:
        part.write_bytes(text.encode("utf-8"))
    return measured
