"""``discreet report``: a page about a trained model, in one file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import command
from discreet.cli.data_options import DataOptions
from discreet.cli.evaluate import cell
from discreet.cli.model_options import is_private
from discreet.cli.output import Output
from discreet.cli.sign_off_options import SignOffOptions
from discreet.errors import ConfigError, DataError

if TYPE_CHECKING:
    from discreet.data.ratings import Ratings


@command(
    "discreet report model/",
    "discreet report model/ --data ratings.csv --out report.html",
    "discreet report model/ --data train.csv --test test.csv",
    'discreet report model/ --history "December Island=5"',
    "discreet report model/ --sign-off --account people.sqlite:customers --audit audit.json"
    " --conformance",
)
def report(
    folder: Annotated[str, typer.Argument(help="Folder of a saved model.", metavar="MODEL")],
    source: DataOptions,
    signing: SignOffOptions,
    out: Output,
    to: Annotated[
        str, typer.Option("--out", "-o", help="The file to write.", metavar="FILE")
    ] = "report.html",
    data: Annotated[
        str | None,
        typer.Option(
            help=(
                "Ratings to measure on, a look at people's data: a file or the name of a data set."
            ),
            metavar="DATA",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="Ratings by the users in --data that the model has not seen.", metavar="FILE"
        ),
    ] = None,
    skip_unknown: Annotated[
        bool,
        typer.Option(
            "--skip-unknown", help="Leave out ratings of items that the model does not know."
        ),
    ] = False,
    history: Annotated[
        list[str] | None,
        typer.Option(
            help="What somebody liked, as item=rating,item,…; may be repeated.", metavar="ITEMS"
        ),
    ] = None,
    n: Annotated[
        int, typer.Option("-n", "--n", help="How many recommendations to show.", min=1, max=100)
    ] = 10,
) -> None:
    """Write one HTML file about a trained model: promise, ledger, noise, recommendations, a map of
    the items.

    The file needs no network. From the model alone it looks at nobody's ratings. With --data it
    also shows how good the model is beside baselines: a model with the same parameters is trained
    on four fifths of the ratings and asked about the rest, or the saved one is asked about --test.
    Such scores are a look at people's ratings, and the page says so.

    With --sign-off it is one printable page for whoever signs: what is promised to whom, every
    release with its price by two accountants, what is left in the account, and what an audit and
    the conformance kit found.
    """
    from discreet.models.storage.save_load import load
    from discreet.report import check_target, write_report

    signing.check()
    file = check_target(to)
    model = load(folder)
    if signing.sign_off:
        if data is not None or test is not None or history:
            raise ConfigError(
                "the page to sign looks at nobody's ratings: leave out --data, --test and --history"
            )
        facts = signing.write(model, folder, to, out)
        out.say(f"Wrote {to}: it looks at nobody's ratings")
        out.result({"command": "report", "model": folder, "sign_off": True, "out": to, **facts})
        return
    if test is not None and data is None:
        raise ConfigError("--test needs --data, the ratings that say what is known of its users")
    histories = [_history(text, model, skip_unknown) for text in history or []]
    start = time.perf_counter()
    ratings, facts = (None, {}) if data is None else _read(data, source, model, skip_unknown, out)
    asked = (
        None
        if test is None
        else _read_known(source.read_file(test), model, test, skip_unknown, out)
    )
    with out.progress("Measuring") as progress:
        measured = write_report(
            model, file, data=ratings, test=asked, histories=histories, n=n, progress=progress
        )
    size = file.stat().st_size
    quality: dict[str, Any] = {} if measured is None else {"quality": measured.found.to_dict()}
    if measured is not None:
        found = measured.found
        rows = [[row.name, *(cell(row.scores.get(m)) for m in found.metrics)] for row in found.rows]
        out.table(
            ["model", *found.metrics],
            rows,
            title="On held-out ratings, a look at them that no ε pays for",
        )
    looked = (
        "it looks at nobody's ratings"
        if measured is None
        else "it shows statistics of people's ratings"
    )
    out.say(f"Wrote {to} ({size / 1e6:.1f} MB, {time.perf_counter() - start:.1f} s): {looked}")
    out.result(
        {
            "command": "report",
            "model": folder,
            "class": type(model).__name__,
            "private": is_private(model),
            "out": to,
            "bytes": size,
            **facts,
            **quality,
        }
    )


def _history(text: str, model: Any, skip: bool) -> dict[Any, float]:
    from discreet.models.item_lookup import ItemLookup, parse_typed_history, with_default

    known = parse_typed_history([text], ItemLookup(model), skip)
    if not known:
        raise DataError(f"the history {text!r} names no item")
    return with_default(known, model)


def _read(
    data: str, source: DataOptions, model: Any, skip: bool, out: Output
) -> tuple[Ratings, dict[str, Any]]:
    ratings, facts = source.read(data, out)
    return _read_known(ratings, model, data, skip, out), facts


def _read_known(ratings: Ratings, model: Any, where: str, skip: bool, out: Output) -> Ratings:
    from discreet.cli.data_options import keep_known_items

    kept, left_out = keep_known_items(ratings, model, where, skip)
    if left_out:
        out.note(f"{left_out:,} ratings of unknown items in {where} were left out")
    return kept
