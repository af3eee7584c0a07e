"""``discreet report --sign-off``: write the page to be signed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from discreet.cli.budget_accounts import account_at
from discreet.cli.output import Output
from discreet.errors import ConfigError, NotInstalled, PrivacyError

_PANEL = "Sign-off page"


def _option(help: str, *names: str, **rest: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **rest)


@dataclass
class SignOffOptions:
    """Contents of the sign-off page that do not come from the model."""

    sign_off: Annotated[
        bool,
        _option("Write one printable page to be signed, instead of the report.", "--sign-off"),
    ] = False
    population: Annotated[
        str | None, _option("The users whom the guarantee covers.", metavar="TEXT")
    ] = None
    purpose: Annotated[str | None, _option("Purpose of the model.", metavar="TEXT")] = None
    confirmed_by: Annotated[
        str | None, _option("Who confirms what is assumed public.", metavar="NAME")
    ] = None
    account: Annotated[
        str | None,
        _option(
            "Budget account that was charged, such as budget.sqlite:customers, for its balance.",
            metavar="STORE:NAME",
        ),
    ] = None
    audit: Annotated[
        str | None, _option("Result of discreet audit --out.", metavar="FILE.json")
    ] = None
    conformance: Annotated[
        bool,
        _option(
            "Run the conformance checks of private models, on generated data (some seconds); needs"
            " pip install 'discreet\\[accounting]'.",
            "--conformance",
        ),
    ] = False

    def check(self) -> None:
        """Refuse options that have no effect without --sign-off."""
        given = [name for name, value in vars(self).items() if value and name != "sign_off"]
        if given and not self.sign_off:
            raise ConfigError(f"--{given[0].replace('_', '-')} needs --sign-off")

    def write(self, model: Any, folder: str, to: str, out: Output) -> dict[str, Any]:
        """Collect the contents and write the page."""
        from discreet.report.sign_off import Signing, read_audit, write_sign_off

        found = None if self.audit is None else read_audit(self.audit)
        account = None if self.account is None else account_at(self.account)
        if not hasattr(model, "privacy_"):
            raise ConfigError(
                f"{type(model).__name__} is not a private model: there is no guarantee to sign"
            )
        with out.progress("Checking"):
            conformance = _check_conformance(model) if self.conformance else None
        signing = Signing(
            population=self.population or "",
            purpose=self.purpose or "",
            confirmed_by=self.confirmed_by or "",
            account=account,
            audit=found,
            conformance=conformance,
        )
        write_sign_off(model, to, signing, folder)
        if account is not None and not account.has_ledger(model.privacy_.ledger):
            raise PrivacyError(
                f"{to} does not verify: the account {account.name!r} was not charged for {folder}."
                " Name the account that was charged, or leave out --account."
            )
        missing = [
            name
            for name, there in (
                ("an account", account),
                ("an audit", found),
                ("the conformance checks", conformance),
                ("a purpose", self.purpose),
            )
            if not there
        ]
        if missing:
            out.say(
                f"Not given, and reported as missing: {', '.join(missing)}", style="bold yellow"
            )
        return {
            "missing": missing,
            "conformance": None if conformance is None else conformance.to_dict(),
        }


def _check_conformance(model: Any) -> Any:
    """Check the conformance of a new model with the same parameters."""

    from discreet.testing import ConformanceError, check_private_model

    fresh = type(model)(**(model.get_params() | {"noise": "secure", "random_state": None}))
    try:
        return check_private_model(fresh)
    except ConformanceError as error:
        return error.report
    except NotInstalled:
        raise ConfigError(
            "--conformance needs Google's dp-accounting: pip install 'discreet[accounting]', or"
            " leave out --conformance"
        ) from None
