"""``discreet tune``: tune hyperparameters privately, and save the best model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import ADVANCED, command
from discreet.cli.budget_accounts import account_at, check_folder, describe_left
from discreet.cli.data_options import DataOptions
from discreet.cli.model_options import PRIVACY, ModelOptions, parse_value
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
    "discreet tune ratings.csv --out model/ --epsilon 4 --relevant 4 --try factors=8,16"
    " --distribution fixed --runs 2",
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
                "A hyperparameter and its candidates: factors=16,32,64, or regularization=1..100"
                " (log-uniform). May be repeated."
            ),
            metavar="KEY=VALUES",
        ),
    ] = None,
    runs: Annotated[float, typer.Option(help="Average number of trainings.", metavar="N")] = 10.0,
    distribution: Annotated[
        str,
        typer.Option(
            help=(
                "Distribution of the secret number of runs: geometric, logarithmic, poisson,"
                " negative-binomial:0.5; or fixed: --runs trainings, all of them reported, and"
                " each at its full cost."
            ),
            metavar="NAME",
            rich_help_panel=ADVANCED,
        ),
    ] = "geometric",
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric to optimize. Default: recall@20, or rmse for --goal rating.",
            metavar="NAME",
        ),
    ] = None,
    relevant: Annotated[
        float | None,
        typer.Option(
            help="Lowest held-out rating that counts as relevant. Default: from --rating-range.",
            metavar="RATING",
        ),
    ] = None,
    held_out: Annotated[
        float,
        typer.Option(
            help="Fraction of each user's ratings that scores are measured on.", metavar="SHARE"
        ),
    ] = 0.1,
    score_share: Annotated[
        float,
        typer.Option(
            help="Fraction of each training's budget that its score gets.",
            metavar="SHARE",
            rich_help_panel=ADVANCED,
        ),
    ] = 0.1,
    account: Annotated[
        str | None,
        typer.Option(
            help="With --distribution fixed: charge the cost to a budget account.",
            metavar="STORE:NAME",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace a private model in the folder; its ledger is kept."
        ),
    ] = False,
) -> None:
    """Tune hyperparameters and save the best model; --epsilon covers all of it.

    Each training draws its hyperparameters from --try and is scored on held-out ratings, with
    noise. The number of trainings is random and secret, and only the best model is released. The
    total cost is about 1.5 times that of one training, not the sum of all. The candidates tried,
    their scores and the progress are not shown. Do not publish the running time, which
    depends on the secret number.
    """
    from discreet.evaluation.tuning import FIXED, Tuning

    if choice.epsilon is None:
        raise ConfigError(
            "tuning needs a privacy budget for all trainings together: pass --epsilon, for example"
            " --epsilon 1"
        )
    model = choice.ready()
    if not tries:
        raise ConfigError("no candidates are given: pass --try, for example --try factors=16,32,64")
    tuning = Tuning(
        model,
        dict(map(_parse_candidates, tries)),
        runs=runs,
        distribution=distribution,
        metric=metric,
        relevant=relevant,
        held_out=held_out,
        score_share=score_share,
    )
    if account is not None and distribution != FIXED:
        raise ConfigError(
            "--account needs --distribution fixed: accounts are kept in μ, and the best of a secret"
            " number of runs has no cost in μ"
        )
    budget = None if account is None else account_at(account)
    check_out(to, replace)
    if budget is not None:
        check_folder(budget, to)
    choice.use_threads()
    ratings, facts = source.read(data, out, model)
    out.say(
        f"Tuning by {tuning.metric.name} with {runs:g} trainings"
        f"{'' if distribution == FIXED else ' on average'}: ε = {model.epsilon:g} in total,"
        f" {tuning.base_epsilon:.4g} per training"
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
                "failed" if trial.score is None else f"{trial.score:.1f}",
            ]
            for trial in found.trials
        ]
        out.table(["hyperparameters", "noisy score, summed over users"], rows)
    out.say(str(found.privacy), style="bold green" if found.privacy.private else "bold yellow")
    result: dict[str, Any] = {
        "command": "tune",
        **public_facts(facts),
        "model": describe_model(found.model),
        "setting": dict(found.setting),
        "score": found.score,
        "runs": runs,
        "distribution": distribution,
        "base_epsilon": tuning.base_epsilon,
        "trials": [
            {"setting": dict(trial.setting), "score": trial.score} for trial in found.trials
        ],
        "out": to,
    }
    if budget is not None:
        out.say(describe_left(budget))
        result["account"] = budget.balance.to_dict()
    out.next_steps(examples(to, found.model))
    out.result(result)


def _parse_candidates(text: str) -> tuple[str, list[Any] | Between]:
    """Parse ``factors=16,32,64`` or ``regularization=1..100``."""
    from discreet.evaluation.tuning import Between

    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name or not values.strip():
        raise ConfigError(
            f"--try {text!r} is not KEY=VALUES: write for example --try factors=16,32,64"
        )
    low, dots, high = values.partition("..")
    if not dots:
        return name, [parse_value(value.strip()) for value in values.split(",")]
    ends = [parse_value(end.strip()) for end in (low, high)]
    if not all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in ends):
        raise ConfigError(f"--try {name}: {values!r} is not a range: write for example 1..100")
    return name, Between(*ends)
