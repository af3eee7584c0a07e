"""``discreet audit``: try to refute what a private model claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import command
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
        typer.Argument(
            help="People's own ratings, for the level one-run; needs --spend.", metavar="DATA"
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(help="Audit a model with the parameters of this saved one.", metavar="FOLDER"),
    ] = None,
    levels: Annotated[
        str,
        typer.Option(
            help="Which levels: transcript, noise, one-run, scores, tuning; all by default.",
            metavar="NAMES",
        ),
    ] = "transcript,noise,one-run,scores,tuning",
    spend: Annotated[
        bool,
        typer.Option("--spend", help="Train once on the people in DATA, and charge them for it."),
    ] = False,
    account: Annotated[
        str | None,
        typer.Option(
            help="Take the price of --spend from an account: people.sqlite:customers.",
            metavar="STORE:NAME",
        ),
    ] = None,
    search: Annotated[
        int, typer.Option(help="Transcript: canaries to search for.", min=0, metavar="N")
    ] = 60,
    fits: Annotated[
        int, typer.Option(help="Noise: how many trainings.", min=50, metavar="N")
    ] = 200,
    canaries: Annotated[
        int, typer.Option(help="One run: how many canaries.", min=100, metavar="N")
    ] = 2000,
    to: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="Write the result as JSON, for discreet report.", metavar="FILE"
        ),
    ] = None,
    plot: Annotated[
        str | None, typer.Option(help="Draw what was found against the claim.", metavar="FILE.png")
    ] = None,
) -> None:
    """Try to refute what a private model claims, without trusting its proofs.

    Five levels. transcript: two trainings, one user apart, that see the same released values; what
    a searched-for worst user loses, exactly. noise: hundreds of trainings; whether the noise is as
    large as its price, and independent. one-run: thousands of made-up users in one training; a
    lower bound on ε from nothing but the finished model. scores and tuning: what the worst user
    loses in scores with --score-epsilon, and in discreet tune.

    Without DATA, everything runs on generated people and costs nothing. With DATA the level one-run
    trains on people's own ratings, which is a release: it needs --spend, is charged like any
    training, and its ledger goes into --out.

    The exit code is 1 if the claim is refuted. An audit is no proof: it says what each level cannot
    see.
    """
    from discreet.auditing import audit as run

    names = [name.strip() for name in levels.split(",") if name.strip()]
    for file in (to, plot):
        _check_file(file)
    check_plot(plot)
    model = _model(choice, like)
    if spend and data is None:
        raise ConfigError(
            "--spend charges the people in DATA, and there is no DATA: leave it out, or name a file"
        )
    if data is not None and to is None:
        raise ConfigError(
            "an audit on people's own ratings has a ledger to keep: say where with --out"
        )
    if account is not None and not spend:
        raise ConfigError(
            "--account is for --spend: an audit on generated people costs nobody anything"
        )
    budget = None if account is None else account_at(account)
    ratings = None if data is None or not spend else source.read(data, out)[0]
    if data is not None and not spend:
        run(model, _empty_ratings(), levels=names)  # which refuses
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
    except BaseException:  # an interrupt as well: what was released stays released
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
            f"{choice.options_used[0]} is given beside --like, whose parameters are used: leave one"
            " of them out"
        )
    from discreet.models.storage.save_load import load

    return load(like)


def _empty_ratings() -> Any:
    """Stands for ratings that are not read, because the audit will be refused."""
    import numpy as np

    from discreet.data.ratings import Ratings

    return Ratings.from_indices([0], [], [], np.zeros(0, np.int64), np.arange(1))


def _show(found: Audit, out: Output) -> None:
    out.say(f"{found.model}, on {found.data}", style="bold")
    out.table(COLUMNS, found.rows(), flush_left=(0, 1))
    for level in found.levels:
        for finding in level.findings:
            out.say(f"{level.name}: {finding}", style="bold red" if level.refuted else None)
        out.say(f"  sees: {level.sees}")
        out.say(f"  cannot see: {level.blind_to}")
    if found.spent is not None:
        out.say(f"Charged to the people in the data: {found.spent['text']}", style="bold yellow")
    out.say(found.verdict, style="bold red" if found.refuted else "bold green")


def _keep_ledgers(model: Any, to: str | None, out: Output) -> None:
    """Where an audit on people ends early, the ledger of what it had released is written beside
    the result.
    """
    if to is None:
        return
    for at, ledger in enumerate(model.earlier_ledgers_):
        file = Path(to).with_suffix(f".unfinished-{at}.ledger.json")
        ledger.save(file)
        out.note(
            f"the audit had released something, which counts like any other; its ledger is {file}"
        )


def _check_file(file: str | None) -> None:
    if file is None:
        return
    path = Path(file)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"{file} cannot be written: it is a folder, or its folder does not exist")
