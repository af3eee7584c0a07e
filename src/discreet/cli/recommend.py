"""``discreet recommend``: recommend items to one user, or to all users of a file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from discreet.cli.app import ADVANCED, command
from discreet.cli.data_options import ColumnOptions
from discreet.cli.output import Output, to_json
from discreet.errors import ConfigError, DataError
from discreet.models.histories import parse_typed_history, read_history, with_default
from discreet.models.item_lookup import ItemLookup, rank_items

WEAKEST = 0.01  # of the largest contribution: less is rounding, or no reason to name
REASONS = 3  # items of the history that --why names: more are rarely told apart
FORMATS = (".csv", ".tsv", ".json", ".parquet")
# text that a spreadsheet would run as a formula, or that seems to be escaped already
_FORMULA = re.compile("'*[=@+\\-\t\r\n\uff1d\uff20\uff0b\uff0d]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@command(
    'discreet recommend model/ --history "the-binary-colony=5,december-island" -n 10',
    'discreet recommend model/ --history "The Binary Colony,Signal from Quillon"',
    'discreet recommend model/ --history "The Binary Colony" --why',
    "discreet recommend model/ --users ratings.csv -o lists.csv",
)
def recommend(
    folder: Annotated[str, typer.Argument(help="Folder of a saved model.", metavar="MODEL")],
    layout: ColumnOptions,
    out: Output,
    history: Annotated[
        list[str] | None,
        typer.Option(
            "--history",
            help="Comma-separated items by id or title, each optionally with =RATING.",
            metavar="ITEMS",
        ),
    ] = None,
    history_file: Annotated[
        str | None,
        typer.Option(
            help="File with an item, and optionally a rating, on each line.", metavar="FILE"
        ),
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(
            help=(
                "File with the histories of many users, or a folder of files, each with all ratings"
                " of its users. Of a folder, one file is in memory at a time; of a Parquet file in"
                " order of users, a part."
            ),
            metavar="FILE",
        ),
    ] = None,
    n: Annotated[
        int, typer.Option("-n", "--n", help="Number of items per user.", min=1, metavar="N")
    ] = 10,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="An item not to recommend; may be repeated.", metavar="ITEM"),
    ] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also recommend items that are in the history.")
    ] = False,
    why: Annotated[
        bool,
        typer.Option("--why", help="Show which items of the history raised each score most."),
    ] = False,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Ignore items unknown to the model.")
    ] = False,
    diversity: Annotated[
        float,
        typer.Option(
            help="From 0 to 1: more means rarer items. The order is that of score /"
            " popularity^DIVERSITY.",
            min=0.0,
            max=1.0,
            metavar="NUMBER",
        ),
    ] = 0.0,
    to: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help=(
                f"File for the lists: {', '.join(FORMATS)}. With a folder of --users, a new folder"
                " of Parquet files."
            ),
            metavar="FILE",
        ),
    ] = None,
    raw_csv: Annotated[
        bool,
        typer.Option(
            "--raw-csv",
            help=(
                "Write ids and titles to CSV unchanged, even those that a spreadsheet would run as"
                " formulas."
            ),
            rich_help_panel=ADVANCED,
        ),
    ] = False,
) -> None:
    """Recommend items to a user with a given history.

    The history stays on this machine and is not stored: a user's factors are computed from it by
    fold-in. An item without a rating counts as liked.
    """
    in_folder = users is not None and Path(users).expanduser().is_dir()
    if to is not None and not in_folder:
        _check_file(to)
    if raw_csv and (
        (to is None and users is None) or (to is not None and _kind(to) not in (".csv", ".tsv"))
    ):
        raise ConfigError("--raw-csv is for lists written as .csv or .tsv: leave it out")
    if users is not None:
        from discreet.models.storage.save_load import load

        if history or history_file:
            raise ConfigError("--users is for many users: leave out --history and --history-file")
        for given, option in ((exclude, "--exclude"), (why, "--why")):
            if given:
                raise ConfigError(
                    f"{option} is for the history of one user: leave it out with --users"
                )
        choices = {"exclude_seen": not include_seen, "diversity": diversity}
        if in_folder:
            if diversity or raw_csv:
                option = "--diversity" if diversity else "--raw-csv"
                raise ConfigError(f"{option} is for a file: leave it out with a folder")
            return _folder(load(folder), users, layout, n, not include_seen, skip_unknown, to, out)
        return _many(load(folder), users, layout, n, choices, skip_unknown, to, raw_csv, out)
    layout.refuse("is for --users", "user", "timestamp", "duplicates")
    if history_file is None:
        layout.refuse("is for --users and --history-file", "item", "rating", "separator", "header")
    from discreet.models.storage.load_scorer import open_model

    # the table shows three digits, for which a faster load suffices; files and JSON get every bit
    shown = to is None and not out.json
    model = open_model(folder, once=shown)
    known = _history(model, history, history_file, layout, skip_unknown)
    if model.details.get("dimensions") == 0:
        out.note(model.summary_)
    choices = {"exclude_seen": not include_seen, "diversity": diversity}
    _one(model, known, n, exclude or [], choices, why, to, raw_csv, out)


def _history(
    model: Any, texts: list[str] | None, file: str | None, layout: ColumnOptions, skip: bool
) -> dict[Any, float]:
    if texts is None and file is None:
        raise ConfigError(
            "no history is given: pass --history ITEMS, --history-file FILE or, for many users,"
            " --users FILE"
        )
    items = ItemLookup.of_model(model)
    known = parse_typed_history(texts or [], items, skip)
    if file is not None:
        known |= read_history(file, items, layout.item, layout.rating, layout.text_separator, skip)
    if not known:
        raise DataError("the history has no item" + (" known to the model" if skip else ""))
    return with_default(known, model)


def _one(
    model: Any,
    history: dict[Any, float],
    n: int,
    exclude: list[str],
    choices: dict[str, Any],
    why: bool,
    to: str | None,
    raw_csv: bool,
    out: Output,
) -> None:
    from discreet.models.diversity import NO_EFFECT, POPULARITY_LIST

    items = ItemLookup.of_model(model)
    scorer = model.scorer
    left_out = [scorer.position(items.id_of(text)) for text in exclude]
    best, scores = scorer.best(
        *scorer.history(history),
        n,
        exclude=left_out if exclude else None,
        **choices,
    )
    rows = rank_items(items, model.item_ids_[best], scores)
    if scorer.is_popularity and choices["diversity"]:
        out.note(f"--{NO_EFFECT}")
    if why and scorer.is_popularity:
        out.note(f"--why: {POPULARITY_LIST}")
    if why:
        for row, item in zip(rows, best, strict=True):
            row["because_of"] = _reasons(scorer, items, history, int(item), to is None and out.json)
    if to is not None:
        _write(to, rows, raw_csv)
        out.say(f"Wrote {len(rows):,} rows to {to}")
    else:
        show(out, rows, "predicted rating" if model.goal == "rating" else "score")
    out.result(
        {
            "command": "recommend",
            "history": [{"item": i, "rating": r} for i, r in history.items()],
            "recommendations": rows,
            "out": to,
        }
    )


def _many(
    model: Any,
    file: str,
    layout: ColumnOptions,
    n: int,
    choices: dict[str, Any],
    skip: bool,
    to: str | None,
    raw_csv: bool,
    out: Output,
) -> None:
    from discreet.cli.data_options import keep_known_items
    from discreet.models.parameters import check_history_range

    n = min(n, len(model.item_ids_))
    ratings, left_out = keep_known_items(layout.read_file(file), model, file, skip)
    check_history_range(ratings.values, model.history_range)
    with out.progress("Recommending") as progress:
        places, scores = model.recommend_indices(ratings, n, progress=progress, **choices)
    items = ItemLookup.of_model(model)
    rows = []
    for user, at, best in zip(ratings.user_ids.tolist(), places, scores, strict=True):
        found = at >= 0
        rows += [
            {"user_id": user, **row} for row in rank_items(items, items.ids[at[found]], best[found])
        ]
    if left_out:
        out.note(f"{left_out:,} ratings of unknown items were ignored")
    if to is not None:
        if _kind(to) == ".parquet":
            _write_lists(to, model, ratings.user_ids, places, scores)
        else:
            _write(to, rows, raw_csv)
        out.say(f"Wrote {len(rows):,} rows for {ratings.n_users:,} users to {to}")
    else:
        out.rows(_as_csv(rows, ",", raw_csv))
    result = {
        "command": "recommend",
        "users": ratings.n_users,
        "ignored_ratings": left_out,
        "out": to,
    }
    out.result(result if to is not None else result | {"recommendations": rows})


def _folder(
    model: Any,
    users: str,
    layout: ColumnOptions,
    n: int,
    exclude_seen: bool,
    skip: bool,
    to: str | None,
    out: Output,
) -> None:
    """Write lists for the users of all files of a folder."""
    from discreet.cli.data_options import keep_known_items
    from discreet.data.readers import files_of
    from discreet.models.recommend_table import recommend_folder

    if to is None:
        raise ConfigError(f"{users} is a folder: pass --out, a new folder for the lists")
    ignored = 0

    def read(file: Path) -> Iterator[Any]:
        nonlocal ignored
        for piece in layout.read_by_users(str(file)):
            ratings, strange = keep_known_items(piece, model, str(file), skip)
            ignored += strange
            yield ratings

    files = files_of(Path(users).expanduser())
    n = min(n, len(model.item_ids_))
    with out.progress("Recommending") as progress:
        count = recommend_folder(
            model, files, read, to, n=n, exclude_seen=exclude_seen, progress=progress
        )
    if ignored:
        out.note(f"{ignored:,} ratings of unknown items were ignored")
    out.say(f"Wrote {len(files):,} files for {count:,} users to {to}")
    out.result({"command": "recommend", "users": count, "ignored_ratings": ignored, "out": to})


def _reasons(
    scorer: Any, items: ItemLookup, history: dict[Any, float], item: int, numbers: bool
) -> Any:
    """Return what raised the score of an item most: as a text, or with `numbers` as a list."""
    at, values = scorer.history(history)
    found, contributions = scorer.explain(at, values, item)
    up = [(items.ids.tolist()[a], float(c)) for a, c in zip(found, contributions, strict=True)]
    # the item of a short history is the only reason, unless it changes nothing
    least = WEAKEST * max(abs(added) for _, added in up) if len(up) > 1 else 0
    up = [(item, added) for item, added in up if added > least][:REASONS]
    if numbers:
        return [{"item_id": item, "contribution": added} for item, added in up]
    return "; ".join(items.title_of(item) or str(item) for item, _ in up) or "its popularity"


def show_score(score: float) -> str:
    """Write a score with at least three significant digits: those of communities are small."""
    return f"{score:.3f}" if abs(score) >= 0.1 or score == 0 else f"{score:#.3g}"


def show(out: Output, rows: list[dict[str, Any]], what: str) -> None:
    """Print the list as a table."""
    titled = bool(rows) and "title" in rows[0]
    explained = bool(rows) and "because_of" in rows[0]
    names = ["", "item", *(["title"] if titled else []), what]
    cells = [
        [
            str(r["rank"]),
            str(r["item_id"]),
            *([r["title"]] if titled else []),
            show_score(r["score"]),
        ]
        for r in rows
    ]
    left = [*range(1, len(names) - 1)]
    if explained:
        left.append(len(names))
        names.append("because of")
        cells = [[*cell, r["because_of"]] for cell, r in zip(cells, rows, strict=True)]
    out.table(names, cells, flush_left=left)


def _check_file(to: str) -> None:
    file = Path(to)
    if _kind(to) not in FORMATS:
        raise ConfigError(f"{to!r} has no known file name ending: use one of {', '.join(FORMATS)}")
    if file.is_dir():
        raise ConfigError(f"{to} is a folder: name a file in it")
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"{to} cannot be written: the folder {file.parent} does not exist")


def _kind(to: str) -> str:
    return Path(to).suffix.lower()


def _write(to: str, rows: list[dict[str, Any]], raw_csv: bool) -> None:
    """Write all rows, or no file: a temporary file is renamed at the end."""
    from discreet.data.atomic_files import atomic_write

    kind = _kind(to)
    with atomic_write(Path(to)) as aside:
        if kind == ".parquet":
            import pyarrow as pa
            from pyarrow import parquet

            parquet.write_table(pa.Table.from_pylist(rows), aside)
        else:
            separator = "\t" if kind == ".tsv" else ","
            text = to_json(rows) + "\n" if kind == ".json" else _as_csv(rows, separator, raw_csv)
            aside.write_text(text, encoding="utf-8", newline="")


def _write_lists(to: str, model: Any, users: Any, places: Any, scores: Any) -> None:
    """Write the lists of many users to a Parquet file, with the columns of a folder of lists."""
    from pyarrow import parquet

    from discreet.data.atomic_files import atomic_write
    from discreet.models.recommend_table import id_column, list_rows

    with atomic_write(Path(to)) as aside:
        parquet.write_table(list_rows(model, id_column(users), places, scores), aside)


def _as_csv(rows: list[dict[str, Any]], separator: str, raw: bool) -> str:
    names = list(rows[0]) if rows else ["rank", "item_id", "score"]
    lines = _Lines()
    writer = csv.writer(lines, delimiter=separator, lineterminator="\r\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(row.values() if raw else map(escape_formula, row.values()))
    return "".join(lines)


class _Lines(list[str]):
    """Lines of a CSV file that end in a line feed.

    The writer gets ``\\r\\n``, because only then it quotes a carriage return in a title.
    """

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def escape_formula(cell: Any) -> Any:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe; numbers stay."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell
