"""``discreet timeline open | add | model | forget | show | verify``: rows at one lifetime ε."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from discreet.cli.app import command
from discreet.cli.budget_accounts import account_at
from discreet.cli.data_options import DataOptions
from discreet.cli.engine_options import EngineOptions
from discreet.cli.model_options import PRIVACY
from discreet.cli.output import Output
from discreet.cli.train import check_out, show_statement
from discreet.errors import ConfigError

if TYPE_CHECKING:
    from discreet.timeline import Timeline

#: Options by the subcommands that they have an effect on.
_USED_BY = {
    "epsilon": ("open",),
    "delta": ("open",),
    "memory": ("open",),
    "rating_range": ("open",),
    "renew": ("open",),
    "retention": ("open",),
    "account": ("open", "add"),
    "to": ("add", "model"),
    "head": ("verify",),
    "forgetting": ("add", "model"),
}
MODEL = "model"  # folder of the newest model in a timeline, which a service finds
_NAMES = {"to": "--out", "rating_range": "--rating-range"}


@command(
    "discreet timeline open customers.timeline --epsilon 1 --rating-range 1,5 --key customers.key"
    " --account budget.sqlite:customers",
    "discreet timeline add customers.timeline ratings.csv --items films.csv --key customers.key",
    "discreet timeline model customers.timeline --forgetting 0.9 --out model/",
    "discreet timeline forget customers.timeline u17 u42 --key customers.key",
    "discreet timeline show customers.timeline",
    "discreet timeline verify customers.timeline",
)
def timeline(
    verb: Annotated[
        Literal["open", "add", "model", "forget", "show", "verify"],
        typer.Argument(help="One of open, add, model, forget, show, verify.", metavar="ACTION"),
    ],
    folder: Annotated[str, typer.Argument(help="Folder of the timeline.", metavar="TIMELINE")],
    source: DataOptions,
    engine: EngineOptions,
    out: Output,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="With add: the file of ratings, or what --engine reads. With forget: user ids.",
            metavar="…",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Total budget ε of all rows together.", rich_help_panel=PRIVACY),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Total budget δ. Default: 1e-6.", rich_help_panel=PRIVACY)
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            help="Rows after which a user's weight has fallen to about 1/e. Default: 20.",
            metavar="ROWS",
        ),
    ] = None,
    rating_range: Annotated[
        str | None,
        typer.Option(
            help="Public range of ratings; 1,1 where every interaction counts alike.",
            metavar="LOW,HIGH",
        ),
    ] = None,
    renew: Annotated[
        str | None,
        typer.Option(
            help="Count each user's cost anew after this many rows, or yearly (52). ε then"
            " holds for any period of that length.",
            metavar="ROWS",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    retention: Annotated[
        int | None,
        typer.Option(
            help="Rows after which a user's ratings are not used any more.", metavar="ROWS"
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="File of the secret key, written by open if it is new. Default: the environment"
            " variable DISCREET_TIMELINE_KEY.",
            metavar="FILE",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            help="Budget account to charge with the lifetime ε.",
            metavar="STORE:NAME",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for the model of all rows. Default: TIMELINE/model.",
            metavar="FOLDER",
        ),
    ] = None,
    forgetting: Annotated[
        float | None,
        typer.Option(
            help="Weight of a row relative to the next, for the model. Default: chosen from"
            " released counts.",
            metavar="λ",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(help="An earlier hash that the timeline must contain.", metavar="HASH"),
    ] = None,
) -> None:
    """Update a model regularly at one total ε, however many updates there are.

    Each add releases a row: noisy sums over the current ratings of all users. All rows together
    cost the ε that open reserves. The model is computed from released rows at no further cost;
    discreet serve TIMELINE loads each new one. The folder TIMELINE is public. TIMELINE.secret holds
    when each user was added: never share it, never restore an old copy of it, and keep the key
    elsewhere. Public features of items are for Timeline.model in Python: numbers and words such as
    genres, but no text or similarities.
    """
    given = {
        "epsilon": epsilon,
        "delta": delta,
        "memory": memory,
        "rating_range": rating_range,
        "renew": renew,
        "retention": retention,
        "account": account,
        "to": to,
        "head": head,
        "forgetting": forgetting,
    }
    for name, value in given.items():
        if value is not None and verb not in _USED_BY[name]:
            option = _NAMES.get(name, f"--{name}")
            raise ConfigError(f"{option} has no effect on timeline {verb}: leave it out")
    if verb not in ("add", "forget") and what:
        raise ConfigError(f"timeline {verb} takes no further arguments")
    if verb != "add" and engine != EngineOptions():
        raise ConfigError(f"--engine and its options have no effect on timeline {verb}")
    if to is not None:
        check_out(to, True)
    from discreet.timeline import Timeline

    if verb == "open":
        scale = None if rating_range is None else _parse_range(rating_range)
        period: Any = renew if renew in (None, "yearly") else _whole("renew", str(renew))
        options: dict[str, Any] = {"delta": delta, "memory": memory, "retention": retention}
        if account is not None:
            options["account"] = account_at(account)
        options |= {"key": key, "renew": period}
        found = Timeline(folder, epsilon=epsilon, rating_range=scale, **options)
        out.say(f"Opened {folder}", style="bold")
        show_statement(found.statement_, out)
        out.result({"command": "timeline open", "timeline": folder, **_facts(found)})
        return
    charged = None if account is None else account_at(account)
    found = Timeline(folder, key=key, account=charged)
    more = {"to": to, "head": head, "forgetting": forgetting, "source": source, "engine": engine}
    _RUN[verb](found, what or [], out, more)


def _add(line: Timeline, what: list[str], out: Output, more: Any) -> None:
    if not what:
        raise ConfigError("timeline add needs a file of ratings")
    more["engine"].check()
    with more["engine"].ratings(what, more["source"], out, line) as (ratings, _):
        line.add(ratings)
    out.say(f"Added row {len(line.rows_)} to {line.path}", style="bold")
    out.say(line.statement_.learned)
    _save(line, out, more)
    out.result({"command": "timeline add", "timeline": str(line.path), **_facts(line)})


def _model(line: Timeline, what: list[str], out: Output, more: Any) -> None:
    to = _save(line, out, more)
    out.result({"command": "timeline model", "out": to, **_facts(line)})


def _save(line: Timeline, out: Output, more: Any) -> str:
    to = str(line.path / MODEL) if more["to"] is None else more["to"]
    model = line.model(forgetting=more["forgetting"])
    model.save(to, replace=True)
    out.say(f"Saved to {to}")
    out.say(model.summary_, style="bold")
    return str(to)


def _forget(line: Timeline, what: list[str], out: Output, more: Any) -> None:
    if not what:
        raise ConfigError("timeline forget needs the ids of users")
    line.forget(what)
    out.say("These users contribute to no later row.")
    out.result({"command": "timeline forget", "timeline": str(line.path)})


def _show(line: Timeline, what: list[str], out: Output, more: Any) -> None:
    show_statement(line.statement_, out)
    out.say(line.statement_.learned)
    rows = [
        [str(r["row"] + 1), f"{r['size']:,.0f} ± {r['size_deviation']:,.0f}", f"{r['core']:,}"]
        for r in line.rows_
    ]
    out.table(["row", "users, by weight", "items with pairs"], rows)
    out.result({"command": "timeline show", "timeline": str(line.path), **_facts(line)})


def _verify(line: Timeline, what: list[str], out: Output, more: Any) -> None:
    found = line.verify(more["head"])
    lost = f", {found.missing} drawn and lost" if found.missing else ""
    out.say(
        f"{line.path} is verified: {found.rows} rows{lost} in an unbroken chain; together they"
        f" cost μ = {found.mu_spent:.4g} of {found.mu:.4g}",
        style="bold green",
    )
    out.say(f"Store this hash elsewhere and pass it to --head next time: {found.head}")
    out.result({"command": "timeline verify", "timeline": str(line.path), **asdict(found)})


_RUN = {"add": _add, "model": _model, "forget": _forget, "show": _show, "verify": _verify}


def _facts(line: Timeline) -> dict[str, Any]:
    return {"privacy": line.statement_.to_dict(), "rows": line.rows_}


def _parse_range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(",")
    try:
        return float(low), float(high)
    except ValueError:
        raise ConfigError(f"--rating-range is {text!r}: write for example 1,5") from None


def _whole(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"--{name} is {text!r}: write a number of rows, or yearly")
    return int(text)
