"""``discreet train``: from a file of ratings to a saved model."""

from __future__ import annotations

import shlex
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from discreet.cli.app import command, program
from discreet.cli.choice import Choice, is_private
from discreet.cli.output import Output
from discreet.cli.source import Source
from discreet.errors import ConfigError, DataError

NOT_PRIVATE = (
    "This model is NOT private: single users' ratings may be recovered from it. "
    "Do not share it more widely than the ratings."
)

REMEDIES = {
    "items": "a public catalogue with --items",
    "ratings": "the public range of ratings with --rating-range",
    "filter": "all items, without --min-item-ratings",
}


@command(
    "discreet train ratings.parquet --out model/ --epsilon 1 --items films.csv --rating-range 1,5",
    "discreet train ratings.parquet --out model/",
    "discreet train ratings.csv --items films.csv --out model/ --factors 64",
    "discreet train cinema --out model/ --feedback implicit --binarize 4",
)
def train(
    data: Annotated[str, typer.Argument(help="File of ratings, or the name of a data set.", metavar="DATA")],
    to: Annotated[str, typer.Option("--out", "-o", help="Folder for the model.", metavar="FOLDER")],
    choice: Choice,
    source: Source,
    out: Output,
) -> None:
    """Learn from ratings and save the model.

    With --epsilon the model is private: what it holds would be nearly as likely without any one user. Without, it is
    not.

    DATA is a csv, tsv, ::-separated, parquet or feather file (plain, gz or zst) with a user, an item and, where there
    is one, a rating per line, - for the same through a pipe, or the name of a data set (see discreet datasets).
    """
    model = choice.ready()
    if choice.epsilon is not None and getattr(model, "sigmas", None) is not None:
        raise ConfigError("sigmas say how much noise there is, and --epsilon would say it again: leave one of them out")
    check_out(to)
    choice.use_threads()
    ratings, facts = source.read(data, out)
    if getattr(model, "rating_range", ()) is None and model.feedback == "explicit":  # it is read from the data then
        low, high = float(ratings.values.min()), float(ratings.values.max())
        if low == high:
            raise nothing_to_predict(data, low, model)
    seconds = fit(model, ratings, out)
    model.save(to)
    out.say(f"Saved to {to}")
    if is_private(model):
        out.say(str(model.privacy_), style="bold green")
        remedies = [REMEDIES[a.name] for a in model.privacy_.assumptions if a.inferred and a.name in REMEDIES]
        if remedies:
            out.say(f"To have no such caution, give {' and '.join(remedies)}.", style="bold yellow")
    else:
        out.say(NOT_PRIVATE, style="bold yellow")
    out.next_steps(examples(to, model))
    out.result({"command": "train", **facts, "model": described(model), "out": to, "seconds": round(seconds, 3)})


def fit(model: Any, ratings: Any, out: Output) -> float:
    """Train with a progress bar; returns the seconds that it took."""
    start = time.perf_counter()
    with out.progress(f"Training {type(model).__name__}") as progress:
        model.fit(ratings, progress=progress)
    seconds = time.perf_counter() - start
    out.say(f"Trained {model} in {seconds:.1f} s")
    return seconds


def nothing_to_predict(what: str, rating: float, model: Any) -> DataError:
    """The error for ratings that are all the same, where ratings are to be predicted."""
    how = "" if "feedback" in model.parameter_names() else "--model als "
    return DataError(
        f"every rating of {what} is {rating:g}, so there is nothing to predict: use {how}--feedback implicit"
    )


def described(model: Any) -> dict[str, Any]:
    """A model for JSON."""
    facts = {"class": type(model).__name__, "parameters": model.get_params(), "private": is_private(model)}
    statement = getattr(model, "privacy_", None)
    if statement is None:
        return facts
    return facts | {"epsilon": statement.epsilon, "delta": statement.delta, "privacy": statement.to_dict()}


def examples(folder: str, model: Any) -> list[str]:
    """Commands that work on this model as they stand."""
    ids = [str(item) for item in model.item_ids_[:2].tolist()]
    where = shlex.quote(folder)
    lines = [f"{program()} recommend {where} --history {shlex.quote(','.join(ids))}"]
    if model.item_factors_.shape[1]:
        lines.append(f"{program()} similar {where} {shlex.quote(ids[0])}")
    if hasattr(model, "privacy_"):
        lines.append(f"{program()} budget {where}")
    return lines


def check_out(folder: str) -> None:
    """Refuse a place where no model can be saved, before time is spent on training one."""
    from discreet.models.store import check_target

    target = Path(folder)
    check_target(target)
    place = target.absolute().parent
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):  # asking for permissions would not notice a read-only disk
            pass
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {place}: {error.strerror or error}") from None
