"""``discreet train``: train a model on ratings and save it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from discreet.cli import ENDINGS
from discreet.cli.app import command, program
from discreet.cli.budget_accounts import account_at, check_folder, describe_left
from discreet.cli.data_options import DataOptions
from discreet.cli.engine_options import EngineOptions
from discreet.cli.model_options import PRIVACY, ModelOptions, is_private
from discreet.cli.output import Output, without_exact
from discreet.errors import ConfigError, DataError

NOT_PRIVATE = (
    "This model is NOT private: individual users' ratings may be recovered from it. "
    "Do not share it more widely than the ratings."
)

# as `discreet.privacy.release.statement` names it, which would import numpy for a page of help
UNCONFIRMED = "unconfirmed public users"
REMEDIES = {
    "liked": "what counts as liked with --set like_threshold=everything",
    "items": "a public catalog with --items",
    "ratings": "the public range of ratings with --rating-range",
    "filter": "all items, without --min-item-ratings",
    UNCONFIRMED: "the name of who confirmed that ratings are public with --public-confirmed-by",
}


@command(
    "discreet train ratings.parquet --out model/ --epsilon 1 --items films.csv --rating-range 1,5",
    "discreet train ratings.csv --items films.csv --out model/ --not-private --factors 64",
    "discreet train cinema --out model/ --not-private --goal ranking --binarize 4",
    "discreet train ratings.csv --out model/ --epsilon 1 --account budget.sqlite:customers",
    "discreet train ratings/*.parquet --engine blocks --items films.csv --rating-range 1,5 --out"
    " model/ --epsilon 1",
)
def train(
    data: Annotated[
        list[str],
        typer.Argument(help="File of ratings, or the name of a data set.", metavar="DATA"),
    ],
    to: Annotated[str, typer.Option("--out", "-o", help="Folder for the model.", metavar="FOLDER")],
    choice: ModelOptions,
    source: DataOptions,
    engine: EngineOptions,
    out: Output,
    not_private: Annotated[
        bool,
        typer.Option(
            "--not-private",
            help="Train a model without privacy protection. Default model: als.",
            rich_help_panel=PRIVACY,
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace a private model in the folder; its ledger is kept."
        ),
    ] = False,
    account: Annotated[
        str | None,
        typer.Option(
            help=(
                "Charge the cost to a budget account such as budget.sqlite:customers (see discreet"
                " budget open)."
            ),
            metavar="STORE:NAME",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help=(
                "Folder of an earlier model of the same users: what it released improves this one"
                " at no cost."
            ),
            metavar="FOLDER",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    public_ratings: Annotated[
        str | None,
        typer.Option(
            help=(
                "For dpmf: file of ratings that are public, of users who agreed or of another data"
                " set. They cost no privacy; the same users in DATA are left out there."
            ),
            metavar="FILE",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    public_confirmed_by: Annotated[
        str | None,
        typer.Option(
            help="Who confirmed that --public-ratings are public, for the statement.",
            metavar="NAME",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
) -> None:
    """Train a model on ratings and save it.

    Pass either --epsilon or --not-private. With --epsilon, training is (ε, δ)-differentially
    private: removing any one user changes the probability of any set of results by at most a
    factor e^ε, and by δ beyond that. With --not-private, individual ratings may be recovered from
    the model. If private training is interrupted or fails, the ledger of the statistics released so
    far is written next to the model folder.

    DATA is a csv, tsv, ::-separated, parquet or feather file (plain, gz or zst) with a user, an
    item and optionally a rating per line; or - to read from a pipe; or the name of a data set (see
    discreet datasets). With --engine blocks it may also be a folder of blocks, a folder of files,
    or several files; with --engine spark, any path that Spark reads.
    """
    model = choice.ready()
    check_meant(model, not_private)
    check_out(to, replace)
    budget = None if account is None else _account(account, model)
    if budget is not None:
        check_folder(budget, to)
    before = {} if prior is None else {"prior": _load_prior(prior, model)}
    if public_confirmed_by is not None and public_ratings is None:
        raise ConfigError("--public-confirmed-by needs public ratings: pass --public-ratings FILE")
    if public_ratings is not None:
        before["public_ratings"] = _read_public(public_ratings, source, model)
        before["public_confirmed_by"] = public_confirmed_by or ""
    choice.use_threads()
    engine.check(model)
    with engine.ratings(data, source, out, model) as (ratings, facts):
        # it is read from the data then
        if getattr(model, "rating_range", ()) is None and model.goal == "rating":
            low, high = ratings.rating_range() or (0.0, 0.0)
            if low == high:
                raise nothing_to_predict(data[0], low, model)
        if getattr(model, "rating_range", None) is not None:  # said whatever the ratings are
            low, high = model.rating_range
            out.say(f"Ratings outside --rating-range {low:g},{high:g} are clipped to it.")
        with ledger_kept(model, to, out):
            seconds = fit(model, ratings, out, budget, **before)
            model.save(to, replace=replace)
    out.say(f"Saved to {to}")
    statement = getattr(model, "privacy_", None)
    if statement is not None and statement.finite:
        if statement.learned:
            out.say(statement.learned, style="bold")
        show_statement(statement, out)
        remedies = [
            REMEDIES[a.name]
            for a in model.privacy_.assumptions
            if (a.inferred or a.name == UNCONFIRMED) and a.name in REMEDIES
        ]
        if budget is not None:
            out.say(describe_left(budget))
        if remedies:
            out.say(f"To avoid the caution, pass {' and '.join(remedies)}.", style="bold yellow")
    else:
        out.say(NOT_PRIVATE, style="bold yellow")
    out.next_steps(examples(to, model))
    charged = {} if budget is None else {"account": budget.balance.to_dict()}
    result = {
        "command": "train",
        **facts,
        "model": describe_model(model),
        "out": to,
        "seconds": round(seconds, 3),
    }
    result = without_exact(result) if statement is not None else result
    out.result(result | charged)


def show_statement(statement: Any, out: Output, indent: str = "") -> None:
    """Print the guarantee as labelled lines."""
    lines = statement.lines()
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        style = "bold yellow" if label == "Cautions" else None
        if label == "Guarantee":
            style = "bold green" if statement.private else "bold yellow"
        out.say(f"{indent}{label:<{width}}  {text}", style=style)


def check_meant(model: Any, not_private: bool) -> None:
    """Refuse --not-private for a private model, and a model without privacy unless it is given."""
    name = type(model).__name__
    if hasattr(model, "plan") and not_private:
        raise ConfigError(
            f"--not-private is given, but {name} is private: leave out --not-private, or --epsilon"
            " and --model"
        )
    if not hasattr(model, "plan") and not not_private:
        raise ConfigError(
            f"no privacy budget is given, and {name} is not private: pass --epsilon, for example"
            " --epsilon 1, or confirm with --not-private"
        )


def _account(where: str, model: Any) -> Any:
    """Return the account to charge for a private model."""
    if not hasattr(model, "plan"):
        raise ConfigError(
            f"--account is for private models, and {type(model).__name__} is not private: pass"
            " --epsilon"
        )
    return account_at(where)


def _load_prior(folder: str, model: Any) -> Any:
    """Return the earlier model, for a private one."""
    if not hasattr(model, "plan"):
        raise ConfigError(
            f"--prior is for private models, and {type(model).__name__} is not private: pass"
            " --epsilon"
        )
    from discreet.models.storage.save_load import load

    return load(folder)


def _read_public(file: str, source: DataOptions, model: Any) -> Any:
    """Return public ratings, read and filtered by the same options as the others."""
    if not hasattr(model, "plan"):
        raise ConfigError(
            f"--public-ratings is for private models, and {type(model).__name__} is not private:"
            " pass --epsilon"
        )
    return source.read_public(file)


def fit(model: Any, ratings: Any, out: Output, budget: Any = None, **known: Any) -> float:
    """Train with a progress bar; return the seconds that it took.

    `known` is what an earlier model released, and what is public.
    """
    start = time.perf_counter()
    charged = {} if budget is None else {"account": budget}
    with out.progress(f"Training {type(model).__name__}") as progress:
        model.fit(ratings, progress=progress, **charged, **known)
    seconds = time.perf_counter() - start
    line = f"Trained {model} in {seconds:.1f} s"
    out.say_exact(line, f"Trained {model}") if hasattr(model, "plan") else out.say(line)
    return seconds


@contextmanager
def ledger_kept(model: Any, folder: str, out: Output) -> Iterator[None]:
    """Report what was released, and write its ledger next to `folder`, if the block fails."""
    try:
        yield
    except BaseException:  # also an interrupt: a release cannot be undone
        statement = getattr(model, "privacy_", None)
        if statement is not None and statement.ledger.entries:
            with _ignore_signals():
                out.note(_save_unfinished(statement, Path(os.path.realpath(folder))))
        raise


def _save_unfinished(statement: Any, folder: Path) -> str:
    """Write the ledger of an interrupted training; return a message about it."""
    from discreet.data.atomic_files import atomic_write

    made = len(statement.ledger.entries)
    names = [entry.name for entry in statement.ledger.entries]
    planned = sum(line.count for line in statement.ledger.plan.list_made(names))
    spent = f"ε = {statement.epsilon:.4g} at δ = {statement.delta:.3g}"
    text = (
        f"training ended after {made} of {planned} releases, which cost {spent} and count as spent"
        " budget"
    )
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    file = folder.with_name(f"{folder.name}.unfinished-{when}-{os.getpid()}.ledger.json")
    try:
        with atomic_write(file) as aside:
            statement.ledger.save(aside)
    except OSError as error:
        ledger = json.dumps(statement.ledger.to_dict())
        return (
            f"{text}; their ledger could not be written to {file} ({error.strerror or error}):"
            f" {ledger}"
        )
    return f"{text}; their ledger is {file}"


@contextmanager
def _ignore_signals() -> Iterator[None]:
    """Ignore signals while the ledger is written: a second Ctrl-C must not lose it."""
    ours = threading.current_thread() is threading.main_thread()
    numbers = [signal.SIGINT, *ENDINGS] if ours else []
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def nothing_to_predict(what: str, rating: float, model: Any) -> DataError:
    """Return the error for predicting ratings that are all the same."""
    # advise a model of the same kind: a private one must not be swapped for als
    has_goal = "goal" in model.parameter_names()
    how = "--goal ranking" if has_goal else "--model als --goal ranking"
    return DataError(
        f"every rating of {what} is {rating:g}, so there are no ratings to predict: use {how}"
    )


def describe_model(model: Any) -> dict[str, Any]:
    """Describe a model for JSON."""
    statement = getattr(model, "privacy_", None)
    parameters = model.get_params()
    if statement is not None:  # the seed of seeded noise would allow subtracting it
        parameters |= {"random_state": None} if "random_state" in parameters else {}
    facts = {"class": type(model).__name__, "parameters": parameters, "private": is_private(model)}
    if learned := getattr(model, "summary_", ""):
        facts["learned"] = learned
    if statement is None:
        return facts
    return facts | {
        "epsilon": statement.epsilon,
        "delta": statement.delta,
        "privacy": statement.to_dict(),
    }


def examples(folder: str, model: Any) -> list[str]:
    """Return commands that can be run on this model unchanged."""
    ids = [str(item) for item in model.item_ids_[:2].tolist()]
    where = shlex.quote(folder)
    lines = [f"{program()} recommend {where} --history {shlex.quote(','.join(ids))}"]
    # without factors there are no similar items
    if model.item_factors_.shape[1] > model.item_similarity().first:
        lines.append(f"{program()} similar {where} {shlex.quote(ids[0])}")
    if hasattr(model, "privacy_"):
        lines.append(f"{program()} budget {where}")
    return lines


def check_out(folder: str, replace: bool = False) -> None:
    """Refuse a folder where no model can be saved, before training."""
    from discreet.models.storage.ledger_history import check_replaced
    from discreet.models.storage.save_load import check_target

    target = Path(folder)
    check_target(target)
    check_replaced(target, replace)
    place = target.absolute().parent
    while not place.exists():
        place = place.parent
    try:
        # os.access would not notice a read-only disk
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise ConfigError(
            f"{target} cannot be written: {place}: {error.strerror or error}"
        ) from None
