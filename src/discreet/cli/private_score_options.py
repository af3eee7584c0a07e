"""``discreet evaluate --score-epsilon``: release scores with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.budget_accounts import account_at, describe_left
from discreet.cli.output import Output
from discreet.errors import ConfigError
from discreet.privacy.accounting.budget import DEFAULT_DELTA

if TYPE_CHECKING:
    from discreet.data.splits import Split
    from discreet.evaluation.private_scores import PrivateEvaluation

_PANEL = "Private scores"

_PUBLIC_FACTS = ("data", "model", "known", "target")


def public_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Keep the names that the caller gave; counts of users, items and ratings are exact."""
    return {name: facts[name] for name in _PUBLIC_FACTS if name in facts}


def _option(help: str, *names: str, **rest: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **rest)


@dataclass
class PrivateScoreOptions:
    """Privacy budget of the scores themselves."""

    score_epsilon: Annotated[
        float | None,
        _option("Release the scores with noise and this privacy budget, instead of exactly."),
    ] = None
    score_delta: Annotated[
        float | None,
        _option(f"Privacy budget δ of the released scores. Default: {DEFAULT_DELTA}."),
    ] = None
    max_ratings: Annotated[
        int | None,
        _option(
            "Largest number of ratings that one user counts for in rmse and mae. Default: 10.",
            metavar="N",
        ),
    ] = None
    confidence: Annotated[
        float | None, _option("Confidence level of the intervals. Default: 0.95.")
    ] = None
    account: Annotated[
        str | None,
        _option(
            "Charge the cost to a budget account such as budget.sqlite:customers.",
            metavar="STORE:NAME",
        ),
    ] = None
    score_ledger: Annotated[
        str | None, _option("Write the ledger of the scores to this file.", metavar="FILE.json")
    ] = None

    @property
    def is_requested(self) -> bool:
        """Whether --score-epsilon is given; refuses the options that need it."""
        if self.score_epsilon is None:
            for name, value in vars(self).items():
                if value is not None:
                    raise ConfigError(f"--{name.replace('_', '-')} needs --score-epsilon")
        return self.score_epsilon is not None

    @property
    def _delta(self) -> float:
        return DEFAULT_DELTA if self.score_delta is None else self.score_delta

    def check(self, model: Any, metrics: list[str], relevant: float | None) -> None:
        """Refuse scores that cannot be released; the model may be trained or not."""
        from discreet.evaluation.evaluator import public_threshold
        from discreet.evaluation.metrics import parse
        from discreet.privacy.accounting.budget import Budget

        assert self.score_epsilon is not None
        if not self.score_epsilon > 0:
            raise ConfigError(f"--score-epsilon is {self.score_epsilon:g}, but must be above 0")
        Budget(self.score_epsilon, self._delta)
        public_threshold(model, [parse(name) for name in metrics], relevant)

    def open_account(self) -> Any:
        """Open the account to charge, if one is given."""
        return None if self.account is None else account_at(self.account)

    def release(
        self,
        model: Any,
        split: Split,
        metrics: list[str],
        part: Any,
        relevant: float | None,
        neighboring: Any,
        out: Output,
    ) -> dict[str, Any]:
        """Release the scores, print them, and write their ledger."""
        from discreet.evaluation.evaluator import evaluate

        assert self.score_epsilon is not None
        account = self.open_account()
        found = evaluate(
            model,
            split,
            metrics,
            epsilon=self.score_epsilon,
            delta=self._delta,
            neighboring=neighboring or "add-remove",
            account=account,
            max_ratings=10 if self.max_ratings is None else self.max_ratings,
            confidence=0.95 if self.confidence is None else self.confidence,
            part=part,
            relevant=relevant,
        )
        if self.score_ledger is not None:
            found.privacy.ledger.save(self.score_ledger)
        _show(found, out)
        if self.score_ledger is not None:
            out.say(f"Wrote {self.score_ledger}")
        if account is not None:
            out.say(describe_left(account))
        return {"scores": found.to_dict()} | (
            {} if account is None else {"account": account.balance.to_dict()}
        )


def _show(found: PrivateEvaluation, out: Output) -> None:
    rows = []
    for name, value in found.values.items():
        low, high = found.intervals[name]
        score = "–" if math.isnan(value) else f"{value:.4f}"
        users = f"about {max(found.people[name], 0):,.0f}"
        rows.append([name, score, f"{low:.4f} to {high:.4f}", users])
    out.say()
    title = f"{found.conditions['model']} on {found.conditions['split']}, released with noise"
    out.table(["metric", "score", f"interval, {found.confidence:.0%}", "users"], rows, title=title)
    out.say("The intervals cover the noise, and the sampling of users from a larger population.")
    out.say(str(found.privacy), style="bold green" if found.privacy.private else "bold yellow")
