"""The sign-off page: guarantee, assumptions, releases and checks, for the person who signs.

Its contents come from the saved model (its ledger, which is public), from the account that was
charged, and from the results of an audit and of the conformance checks, if given. No ratings are
accessed. Missing parts are reported as missing, because silence would be read as a passed check.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from discreet.data.safe_io import read_document
from discreet.errors import ConfigError, DataError
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.pricing import Event
from discreet.privacy.release.ledger import Assumption, Entry
from discreet.privacy.release.plan import title_of
from discreet.privacy.release.statement import (
    CONFIRMED,
    PUBLIC_USERS,
    UNCONFIRMED,
    PrivacyStatement,
    describe_factor,
)
from discreet.report.html import markup, power, render_template
from discreet.report.page import describe_strength
from discreet.version import __version__

if TYPE_CHECKING:
    from discreet.auditing.conformance.rules import Report
    from discreet.privacy.release.budget_store import Account

#: Beyond this ε, the second accountant takes minutes.
_SECOND_UP_TO = 60.0
AUDIT_FORMAT = "discreet-audit/1"


@dataclass(frozen=True)
class Signing:
    """Contents of the page that do not come from the model.

    Parameters
    ----------
    population : str
        The users whom the guarantee covers. By default all (private) users.
    purpose : str
        Purpose of the model.
    confirmed_by : str
        Who confirms what is assumed public.
    account : Account, optional
        The account that was charged for the training.
    audit : mapping, optional
        The result of ``discreet audit``, as saved in JSON.
    conformance : Report, optional
        Result of the checks in ``discreet.testing``.
    """

    population: str = ""
    purpose: str = ""
    confirmed_by: str = ""
    account: Account | None = None
    audit: Mapping[str, Any] | None = None
    conformance: Report | None = None


def read_audit(path: str | Path) -> dict[str, Any]:
    """Read the result of ``discreet audit --json`` or ``--out`` from its file."""
    try:
        found = read_document(Path(path))
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise DataError(f"{path} is not JSON: name the file of discreet audit --out") from None
    inner = found.get("audit", found) if isinstance(found, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("levels"), list):
        raise DataError(
            f"{path} is not the result of an audit: name the file of discreet audit --out"
        )
    return inner


def write_sign_off(
    model: Any, path: str | Path, signing: Signing | None = None, folder: str | Path = ""
) -> None:
    """Write the page to a file, atomically.

    Parameters
    ----------
    model : a fitted or loaded model
    path : of the HTML file
    signing : Signing, optional
    folder : where the model was saved, for its checksum
    """
    from discreet.data.atomic_files import atomic_write
    from discreet.report import check_target

    text = render(model, signing or Signing(), folder)
    with atomic_write(check_target(path)) as part:
        part.write_bytes(text.encode("utf-8"))


def render(model: Any, signing: Signing, folder: str | Path = "") -> str:
    """Render the page as text, from ``templates/sign_off.html.j2``."""
    statement: PrivacyStatement | None = getattr(model, "privacy_", None)
    name = type(model).__name__
    if statement is None:
        raise ConfigError(f"{name} is not a private model: there is no guarantee to sign")
    account = signing.account
    capped = min(statement.epsilon, 30.0)
    times = describe_factor(capped, ".3g" if math.exp(capped) < 100 else ",.0f")
    chosen = [entry for entry in statement.ledger.entries if entry.law]
    text = statement.ledger.to_text().encode()
    return render_template(
        "sign_off.html.j2",
        "sign_off.css",
        model=model,
        name=name,
        statement=statement,
        signing=signing,
        population=signing.population or f"all {statement.user}s whose ratings were used",
        unprotected=_describe_public_users(statement),
        account=account,
        charged=account is not None and account.has_ledger(statement.ledger),
        times=times if statement.epsilon < 30 else f"e^{statement.epsilon:.3g}",
        verdict=describe_strength(statement),
        lifetime=getattr(model, "details_", {}).get("timeline", {}).get("guarantee", ""),
        public=_list_public(statement, signing),
        people=statement.ledger.people,
        releases=_list_releases(statement),
        tuned=(
            f" The best of a secret number of trainings ({chosen[0].runs:g} on average)."
            if chosen
            else ""
        ),
        balance=None if account is None else _describe_balance(account),
        earlier=len(getattr(model, "earlier_ledgers_", ())),
        audit=None if signing.audit is None else _describe_audit(signing.audit, statement),
        conformance=_describe_conformance(signing.conformance),
        library=statement.ledger.to_dict()["library"]["version"],
        version=__version__,
        checksums=(
            _checksum(folder, "ledger.json") or hashlib.sha256(text).hexdigest(),
            _checksum(folder, "model.json") or "not saved",
        ),
    )


def _list_public(statement: PrivacyStatement, signing: Signing) -> list[list[Any]]:
    """List the assumptions, and who confirms them."""
    inferred = _mark("not confirmed: read from the data", "bad")
    rows: list[list[Any]] = [
        # who confirmed it is named in the column for that
        [_without_name(a), inferred if a.inferred else _name_confirmer(a, signing)]
        for a in statement.assumptions
        if a.name not in ("delta", "filter")
    ]
    filters = "; ".join(a.text for a in statement.assumptions if a.name == "filter")
    exact = _mark(f"{filters}: based on exact counts, not covered by ε", "bad")
    return [*rows, ["Filters of ratings", exact if filters else "no filter by counts"]]


def _without_name(assumption: Assumption) -> str:
    return (
        CONFIRMED.sub("", assumption.text) if assumption.name == PUBLIC_USERS else assumption.text
    )


def _name_confirmer(assumption: Assumption, signing: Signing) -> str:
    """Return who confirmed this: for public users, the name that was given in training."""
    named = assumption.name == PUBLIC_USERS and CONFIRMED.search(assumption.text)
    return (named and named[1]) or signing.confirmed_by or "not confirmed: no name given"


def _describe_public_users(statement: PrivacyStatement) -> str:
    """Say how many public users the guarantee does not cover; empty if there are none."""
    texts = [a.text for a in statement.assumptions if a.name in (PUBLIC_USERS, UNCONFIRMED)]
    counts = [found[1] for text in texts if (found := re.search(r"of ([\d,]+) user", text))]
    if not texts:
        return ""
    named = " and ".join(f"{count} public user{'s' * (count != '1')}" for count in counts)
    return f"{named or 'public users'}, whose exact ratings the model uses"


def _mark(text: str, kind: str) -> Markup:
    return markup('<span class="{}">{}</span>', kind, text)


# ------------------------------------------------------------ releases


@dataclass(frozen=True)
class Family:
    """Releases whose names differ only in a number."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def events(self) -> list[Event]:
        return [entry.event for entry in self.entries]


def families(statement: PrivacyStatement) -> list[Family]:
    """Return the ledger's releases in the order of their first appearance, steps of the same kind
    together.
    """
    found: dict[str, list[Entry]] = {}
    for entry in statement.ledger.entries:
        found.setdefault(re.sub(r" \d+$", "", entry.name), []).append(entry)
    return [Family(name, tuple(entries)) for name, entries in found.items()]


def _list_releases(statement: PrivacyStatement) -> list[list[Any]]:
    rows: list[list[Any]] = [
        [
            title_of(family.name, family.entries[0].shape),
            f"{len(family.entries)}",
            _several(sorted({entry.sensitivity for entry in family.entries})),
            _several(sorted({entry.deviation for entry in family.entries})),
            *_two(family.events, statement),
        ]
        for family in families(statement)
    ]
    first, second = (
        markup("<strong>{}</strong>", price) for price in _two(statement.ledger.events(), statement)
    )
    whole = markup("<strong>all together</strong>")
    return [*rows, [whole, f"{len(statement.ledger.entries)}", "", "", first, second]]


def _several(values: list[float]) -> str:
    return (
        f"{values[0]:.3g}"
        if values[-1] <= values[0] * 1.001
        else f"{values[0]:.3g} – {values[-1]:.3g}"
    )


def _two(events: list[Event], statement: PrivacyStatement) -> list[str]:
    """Compute ε by the statement's accountant, and by the second one if it can."""
    if not statement.finite:
        return ["∞", "∞"]
    delta = max(0.0, statement.delta - statement.ledger.noise_delta)
    first = accounting.epsilon(events, delta, statement.accountant)
    return [f"{first:.4g}", _second(events, delta, first)]


def _second(events: list[Event], delta: float, first: float) -> str:
    if first > _SECOND_UP_TO:
        return "–"
    try:
        return f"{accounting.independent_epsilon(events, delta):.4g}"
    except ConfigError:  # not installed, or not supported
        return "–"


# ------------------------------------------------------------ account and checks


def _describe_balance(account: Account) -> dict[str, Any]:
    b = account.balance
    more = f", {b.unsettled} running or crashed, counted as spent" if b.unsettled else ""
    records = account.store.verify().records
    return {
        "head": [f"account {b.account!r}", f"ε at δ = {power(b.delta)}", "μ²"],
        "rows": [
            ["total", f"{b.epsilon:g}", f"{b.limit:.4g}"],
            ["spent", _number(b.epsilon_spent), f"{b.spent + b.reserved:.4g}"],
            ["left", f"{b.epsilon_left:g}", f"{b.left:.4g}"],
        ],
        "caption": f"{b.trainings} completed{more}; the log of {records} records is verified",
        "broken": b.broken,
    }


def _describe_audit(found: Mapping[str, Any], statement: PrivacyStatement) -> dict[str, Any]:
    rows = []
    for level in found["levels"]:
        unit = {"mu": "μ", "epsilon": "ε"}.get(str(level.get("unit")), "")
        verdict = _mark("REFUTED", "bad") if level.get("refuted") else _mark("not refuted", "good")
        values = f"{unit} {_number(level.get('found'))} of {_number(level.get('claimed'))}"
        rows.append([level.get("name", "?"), values, verdict])
    claimed = float((found.get("claim") or {}).get("epsilon", math.nan))
    return {
        "rows": rows,
        "same": math.isclose(claimed, statement.epsilon, rel_tol=1e-3),
        "of": f"{found.get('model', 'a model')}, {found.get('data', '')}".strip(", "),
    }


def _describe_conformance(report: Report | None) -> dict[str, Any] | None:
    if report is None:
        return None
    kept = sum(check.passed is True for check in report.checks)
    skipped = [check.rule for check in report.checks if check.passed is None]
    broken = [f"{check.rule}: {check.text}" for check in report.checks if check.passed is False]
    text = f"{kept} of {len(report.checks)} checks passed"
    text += f", {len(broken)} failed" if broken else ", none failed"
    text += f"; not applicable: {', '.join(skipped)}" if skipped else ""
    return {"text": text, "broken": broken}


def _checksum(folder: str | Path, name: str) -> str:
    """Return the SHA-256 of a file of the model's folder; empty if there is none."""
    file = Path(folder, name)
    return hashlib.sha256(file.read_bytes()).hexdigest() if folder and file.is_file() else ""


def _number(value: Any) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "–"
    return f"{number:.4g}" if math.isfinite(number) else "∞"
