"""``discreet tune``: try settings at a price, and save the best model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import command
from discreet.cli.budget_accounts import account_at, check_folder, room
from discreet.cli.data_options import DataOptions
from discreet.cli.model_options import ModelOptions, parse_value
from discreet.cli.output import Output
from discreet.cli.private_score_options import public_facts
from discreet.cli.train import check_out, describe_model, examples, ledger_kept
from discreet.errors import ConfigError

if TYPE_CHECKING:
    from discreet.evaluation.tuning import Between


@command(
    "discreet tune ratings.parquet --out model/ --epsilon 1 --rating-range 1,5 --try"
    " factors=16,32,64",
    "discreet tune ratings.csv --out model/ --epsilon 2 --goal rating --try regularization=1..100"
    " --runs 30",
    "discreet tune ratings.csv -o m/ --epsilon 4 --relevant 4 --try factors=8,16 --law composed",
)
def tune(
    data: Annotated[
        str, typer.Argument(help="File of ratings, or the name of a data set.", metavar="DATA")
    ],
    to: Annotated[
        str, typer.Option("--out", "-o", help="Folder for the best model.", metavar="FOLDER")
    ],
    choice: ModelOptions,
    source: DataOptions,
    out: Output,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            help=(
                "A parameter and what it may be: factors=16,32,64, or regularization=1..100"
                " (log-uniform). May be "
                "repeated."
            ),
            metavar="KEY=VALUES",
        ),
    ] = None,
    runs: Annotated[float, typer.Option(help="How many trainings on average.", metavar="N")] = 10.0,
    law: Annotated[
        str,
        typer.Option(
            help=(
                "Of their secret number: geometric, logarithmic, poisson, negative-binomial:0.5; or"
                " composed, which "
                "keeps nothing secret and pays for every one in full."
            )
        ),
    ] = "geometric",
    metric: Annotated[
        str | None,
        typer.Option(help="What is best: recall@20 by default, or rmse for --goal rating."),
    ] = None,
    relevant: Annotated[
        float | None,
        typer.Option(
            help="Lowest held-out rating that counts as relevant; or give --rating-range.",
            metavar="RATING",
        ),
    ] = None,
    held_out: Annotated[
        float,
        typer.Option(
            help="Share of everybody's ratings that scores are measured on.", metavar="SHARE"
        ),
    ] = 0.1,
    score_share: Annotated[
        float,
        typer.Option(help="Part of each training's price that its score gets.", metavar="SHARE"),
    ] = 0.1,
    account: Annotated[
        str | None,
        typer.Option(
            help="With --law composed: take the price from an account.", metavar="STORE:NAME"
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace a private model that is there; its ledger is kept."
        ),
    ] = False,
) -> None:
    """Train with several settings and save the best model, at the price of --epsilon for all of it.

    Each training draws a setting from what --try allows, and scores itself on held-out ratings,
    with noise. How many there are is random and secret; only the best leaves. That costs about half
    as much again as one training, instead of as much as all of them. The settings tried, their
    scores and the progress are not shown, and the time that it takes, which depends on the secret
    number, is best not shown either.
    """
    from discreet.evaluation.tuning import COMPOSED, Tuning

    if choice.epsilon is None:
        raise ConfigError(
            "tuning is priced: give --epsilon, the total for all that is tried, such as 1"
        )
    model = choice.ready()
    if not tries:
        raise ConfigError("say what to try, such as --try factors=16,32,64")
    tuning = Tuning(
        model,
        dict(map(_parse_candidates, tries)),
        runs=runs,
        law=law,
        metric=metric,
        relevant=relevant,
        held_out=held_out,
        score_share=score_share,
    )
    if account is not None and law != COMPOSED:
        raise ConfigError(
            "--account goes with --law composed: the best of a secret number has no price in μ"
        )
    budget = None if account is None else account_at(account)
    check_out(to, replace)
    if budget is not None:
        check_folder(budget, to)
    choice.use_threads()
    ratings, facts = source.read(data, out, model)
    out.say(
        f"Trying settings by {tuning.metric.name}, {runs:g}"
        f" {'times' if law == COMPOSED else 'times on average'}: ε = {model.epsilon:g} in all,"
        f" {tuning.base_epsilon:.4g} for each training"
    )
    with ledger_kept(tuning, to, out):
        found = tuning.run(ratings, budget)
        found.model.save(to, replace=replace)
    out.say(f"Saved to {to}")
    chosen = ", ".join(f"{name} = {value}" for name, value in found.setting.items())
    out.say(f"Best: {chosen}", style="bold")
    if found.trials:
        rows = [
            [
                ", ".join(f"{k} = {v}" for k, v in trial.setting.items()),
                "gave up" if trial.score is None else f"{trial.score:.1f}",
            ]
            for trial in found.trials
        ]
        out.table(["setting", "noisy score, summed over people"], rows)
    out.say(str(found.privacy), style="bold green" if found.privacy.private else "bold yellow")
    result: dict[str, Any] = {
        "command": "tune",
        **public_facts(facts),
        "model": describe_model(found.model),
        "setting": dict(found.setting),
        "score": found.score,
        "runs": runs,
        "law": law,
        "base_epsilon": tuning.base_epsilon,
        "trials": [
            {"setting": dict(trial.setting), "score": trial.score} for trial in found.trials
        ],
        "out": to,
    }
    if budget is not None:
        left = budget.balance
        out.say(
            f"Account {account}: μ² = {left.left:.4g} of {left.limit:.4g} is left; {room(left)}"
        )
        result["account"] = left.to_dict()
    out.next_steps(examples(to, found.model))
    out.result(result)


def _parse_candidates(text: str) -> tuple[str, list[Any] | Between]:
    """``factors=16,32,64`` or ``regularization=1..100``."""
    from discreet.evaluation.tuning import Between

    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name or not values.strip():
        raise ConfigError(
            f"--try takes KEY=VALUES, such as factors=16,32,64, and {text!r} was given"
        )
    low, dots, high = values.partition("..")
    if not dots:
        return name, [parse_value(value.strip()) for value in values.split(",")]
    ends = [parse_value(end.strip()) for end in (low, high)]
    if not all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in ends):
        raise ConfigError(f"--try {name}: a range is written as 1..100, and {values!r} was given")
    return name, Between(*ends)
