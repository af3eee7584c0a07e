"""``discreet audit``: try to refute the privacy claim of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import ADVANCED, command
from discreet.cli.budget_accounts import account_at
from discreet.cli.data_options import DataOptions
from discreet.cli.evaluation_plot import check_plot
from discreet.cli.model_options import PRIVATE, ModelOptions
from discreet.cli.output import Output
from discreet.errors import ConfigError

if TYPE_CHECKING:
    from discreet.auditing import Audit

COLUMNS = ("level", "verdict", "found", "claimed", "seconds")


@command(
    "discreet audit --epsilon 1",
    "discreet audit --model dpals --epsilon 1 --levels transcript --plot audit.png",
    "discreet audit --like model/ --out audit.json",
    "discreet audit ratings.parquet --epsilon 1 --rating-range 1,5 --spend --out audit.json",
)
def audit(
    choice: ModelOptions,
    source: DataOptions,
    out: Output,
    data: Annotated[
        str | None,
        typer.Argument(help="Real ratings, for the level one-run; needs --spend.", metavar="DATA"),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(help="Audit a model with the parameters of this saved one.", metavar="FOLDER"),
    ] = None,
    levels: Annotated[
        str,
        typer.Option(
            help="Comma-separated levels of transcript, noise, one-run, scores, tuning.",
            metavar="NAMES",
        ),
    ] = "transcript,noise,one-run,scores,tuning",
    spend: Annotated[
        bool,
        typer.Option("--spend", help="Train once on DATA, which spends privacy budget."),
    ] = False,
    account: Annotated[
        str | None,
        typer.Option(
            help="Charge the cost of --spend to a budget account: budget.sqlite:customers.",
            metavar="STORE:NAME",
        ),
    ] = None,
    search: Annotated[
        int,
        typer.Option(
            help="transcript: number of canaries to search.",
            min=0,
            metavar="N",
            rich_help_panel=ADVANCED,
        ),
    ] = 60,
    fits: Annotated[
        int,
        typer.Option(
            help="noise: number of trainings.", min=50, metavar="N", rich_help_panel=ADVANCED
        ),
    ] = 200,
    canaries: Annotated[
        int,
        typer.Option(
            help="one-run: number of canaries.", min=100, metavar="N", rich_help_panel=ADVANCED
        ),
    ] = 2000,
    to: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="Write the result as JSON, for discreet report.", metavar="FILE"
        ),
    ] = None,
    plot: Annotated[
        str | None, typer.Option(help="Plot the findings and the claim.", metavar="FILE.png")
    ] = None,
) -> None:
    """Try to refute the privacy claim of a model, without relying on its proofs.

    Five levels. transcript: the exact privacy loss of a searched worst-case user, from two
    trainings that differ in one user. noise: hundreds of trainings, to check the size and
    independence of the noise. one-run: thousands of simulated users in one training, for a lower
    bound on ε from the finished model. scores, tuning: the privacy loss of --score-epsilon and of
    discreet tune.

    Without DATA, the audit runs on simulated users and costs no budget. With DATA, the level
    one-run trains on real ratings: it needs --spend, costs as much as any training, and its ledger
    is part of --out.

    The exit code is 1 if the claim is refuted. An audit is not a proof: the output lists what each
    level cannot detect.
    """
    from discreet.auditing import audit as run

    names = [name.strip() for name in levels.split(",") if name.strip()]
    for file in (to, plot):
        _check_file(file)
    check_plot(plot)
    model = _model(choice, like)
    if spend and data is None:
        raise ConfigError("--spend needs DATA: name a file of ratings, or leave out --spend")
    if data is not None and to is None:
        raise ConfigError("an audit on real ratings has a ledger that must be kept: pass --out")
    if account is not None and not spend:
        raise ConfigError("--account needs --spend: an audit on simulated users costs no budget")
    budget = None if account is None else account_at(account)
    ratings = None if data is None or not spend else source.read(data, out)[0]
    if data is not None and not spend:
        run(model, _empty_ratings(), levels=names)  # raises
    choice.use_threads()
    try:
        with out.progress(f"Auditing {type(model).__name__}") as progress:
            found = run(
                model,
                ratings,
                levels=names,
                spend=spend,
                search=search,
                fits=fits,
                canaries=canaries,
                account=budget,
                progress=progress,
            )
    except BaseException:  # also an interrupt: a release cannot be undone
        _keep_ledgers(model, to, out)
        raise
    if to is not None:
        found.save(to)
    _show(found, out)
    if to is not None:
        out.say(f"Wrote {to}")
    if plot is not None:
        from discreet.cli.audit_plot import draw_audit

        draw_audit(found, Path(plot))
        out.say(f"Wrote {plot}")
    out.result({"command": "audit", **found.to_dict(), "out": to, "plot": plot})
    if found.refuted:
        raise typer.Exit(1)


def _model(choice: ModelOptions, like: str | None) -> Any:
    if like is None:
        return choice.make(default=PRIVATE)
    if choice.options_used:
        raise ConfigError(
            f"--like takes all parameters from a saved model: leave out {choice.options_used[0]}"
        )
    from discreet.models.storage.save_load import load

    return load(like)


def _empty_ratings() -> Any:
    """Return empty ratings, in place of ratings that are not read because the audit is refused."""
    import numpy as np

    from discreet.data.ratings import Ratings

    return Ratings.from_indices([0], [], [], np.zeros(0, np.int64), np.arange(1))


def _show(found: Audit, out: Output) -> None:
    out.say(f"{found.model}, on {found.data}", style="bold")
    out.table(COLUMNS, found.rows(), flush_left=(0, 1))
    for level in found.levels:
        for finding in level.findings:
            out.say(f"{level.name}: {finding}", style="bold red" if level.refuted else None)
        out.say(f"  detects: {level.sees}")
        out.say(f"  cannot detect: {level.blind_to}")
    if found.spent is not None:
        out.say(f"Spent on the users in the data: {found.spent['text']}", style="bold yellow")
    out.say(found.verdict, style="bold red" if found.refuted else "bold green")


def _keep_ledgers(model: Any, to: str | None, out: Output) -> None:
    """Write the ledgers of an interrupted audit on real ratings next to the result."""
    if to is None:
        return
    for at, ledger in enumerate(model.earlier_ledgers_):
        file = Path(to).with_suffix(f".unfinished-{at}.ledger.json")
        ledger.save(file)
        out.note(
            f"the audit ended after releases, which count as spent budget; their ledger is {file}"
        )


def _check_file(file: str | None) -> None:
    if file is None:
        return
    path = Path(file)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"{file} cannot be written: it is a folder, or its folder does not exist")
