"""``discreet report``: write a report about a trained model, as one HTML file."""

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
    "discreet report model/ --sign-off --account budget.sqlite:customers --audit audit.json --out"
    " sign-off.html",
)
def report(
    folder: Annotated[str, typer.Argument(help="Folder of a saved model.", metavar="MODEL")],
    source: DataOptions,
    signing: SignOffOptions,
    out: Output,
    to: Annotated[
        str, typer.Option("--out", "-o", help="HTML file to write.", metavar="FILE")
    ] = "report.html",
    data: Annotated[
        str | None,
        typer.Option(
            help=(
                "Ratings to evaluate on, a file or the name of a data set. The scores are exact and"
                " not covered by ε."
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
        typer.Option("--skip-unknown", help="Drop ratings of items unknown to the model."),
    ] = False,
    history: Annotated[
        list[str] | None,
        typer.Option(
            help="An example history, as item=rating,item,…; may be repeated.", metavar="ITEMS"
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(help="Title of the page. Default: the model and its ε.", metavar="TEXT"),
    ] = None,
    n: Annotated[
        int,
        typer.Option(
            "-n", "--n", help="Number of recommendations to show.", min=1, max=100, metavar="N"
        ),
    ] = 10,
) -> None:
    """Write one HTML file about a trained model: guarantee, ledger, recommendations, item map.

    The file needs no network. Without --data it uses no ratings. With --data it also compares the
    model with baselines: a model with the same parameters is trained on 80 % of the ratings and
    measured on 10 %, as by discreet evaluate, or the saved model is measured on --test. Such scores
    are computed exactly from users' ratings, and the page says so.

    With --sign-off it writes one printable page to be signed instead: the guarantee, every
    release with its cost by two accountants, the balance of the account, and the results of an
    audit and of the conformance checks.
    """
    from discreet.models.storage.save_load import load
    from discreet.report import check_target, write_report

    signing.check()
    file = check_target(to)
    model = load(folder)
    if signing.sign_off:
        if data is not None or test is not None or history:
            raise ConfigError(
                "the sign-off page uses no ratings: leave out --data, --test and --history"
            )
        facts = signing.write(model, folder, to, out)
        out.say(f"Wrote {to}, without access to ratings")
        out.result({"command": "report", "model": folder, "sign_off": True, "out": to, **facts})
        return
    if test is not None and data is None:
        raise ConfigError("--test needs --data with the histories of its users")
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
            model,
            file,
            data=ratings,
            test=asked,
            histories=histories,
            n=n,
            title=title,
            progress=progress,
        )
    size = file.stat().st_size
    quality: dict[str, Any] = {} if measured is None else {"quality": measured.found.to_dict()}
    if measured is not None:
        from discreet.evaluation.metrics import parse

        found = measured.found
        # the page has the others as well; all of them together would not fit on a line
        shown = [m for m in found.metrics if parse(m).kind in ("rating", "ranking")]
        rows = [[row.name, *(cell(row.scores.get(m)) for m in shown)] for row in found.rows]
        out.table(
            ["model", *shown],
            rows,
            title="On held-out ratings, exact and not covered by the model's ε",
        )
    access = "without access to ratings" if measured is None else "with exact scores of ratings"
    out.say(f"Wrote {to} ({size / 1e6:.1f} MB, {time.perf_counter() - start:.1f} s), {access}")
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
    from discreet.models.histories import parse_typed_history, with_default
    from discreet.models.item_lookup import ItemLookup

    known = parse_typed_history([text], ItemLookup.of_model(model), skip)
    if not known:
        raise DataError(f"the history {text!r} has no item")
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
        out.note(f"{left_out:,} ratings of unknown items in {where} were dropped")
    return kept
