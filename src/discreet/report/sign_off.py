"""One page for whoever signs: what is promised to whom, what it rests on, and what was done to
check it.

Everything on it comes from the saved model (its ledger, which is public), from the account that
paid, and from the results of an audit and of the conformance kit, where there are any. It looks at
nobody's ratings. What is missing is said to be missing: a page that leaves it out would be read as
if all were well.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.data.safe_io import read_document
from discreet.errors import ConfigError, DataError
from discreet.privacy.accounting import pricing as accounting
from discreet.privacy.accounting.pricing import Event
from discreet.privacy.release.ledger import Entry
from discreet.privacy.release.statement import PrivacyStatement
from discreet.report.html import Html, content_policy, join, power, table, tag
from discreet.report.privacy_section import VERDICTS
from discreet.version import __version__

if TYPE_CHECKING:
    from discreet.auditing.conformance.report import Report
    from discreet.privacy.release.budget_store import Account, Balance

_RELATION = {
    "add-remove": "one person more or less",
    "replace-one": "one person exchanged for another",
}
#: Beyond this ε, the second accountant takes minutes.
_SECOND_UP_TO = 60.0
AUDIT_FORMAT = "discreet-audit/1"


@dataclass(frozen=True)
class Signing:
    """What the page says beside what the model knows of itself.

    Parameters
    ----------
    people : str
        To whom it is promised.
    purpose : str
        For what the model is used.
    said_by : str
        Who vouches for what was taken to be public.
    account : Account, optional
        That paid for the training.
    audit : mapping, optional
        The result of ``discreet audit``, as saved in JSON.
    conformance : Report, optional
        Of the kit in ``discreet.testing``.
    """

    people: str = "everybody whose ratings were used"
    purpose: str = ""
    said_by: str = ""
    account: Account | None = None
    audit: Mapping[str, Any] | None = None
    conformance: Report | None = None


def read_audit(path: str | Path) -> dict[str, Any]:
    """The result of ``discreet audit --json`` or ``--out``, from its file."""
    try:
        found = read_document(Path(path))
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise DataError(f"{path} is not JSON: give what discreet audit has written") from None
    inner = found.get("audit", found) if isinstance(found, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("levels"), list):
        raise DataError(
            f"{path} is not the result of an audit: give what discreet audit has written"
        )
    return inner


def write_sign_off(
    model: Any, path: str | Path, signing: Signing | None = None, folder: str | Path = ""
) -> None:
    """Write the page to a file, whole or not at all.

    Parameters
    ----------
    model : a fitted or loaded model
    path : of the HTML file
    signing : Signing, optional
    folder : where the model was saved, for its checksum
    """
    from discreet.data.download import atomic_write
    from discreet.report import check_target

    text = render(model, signing or Signing(), folder)
    with atomic_write(check_target(path)) as aside:
        aside.write_bytes(text.encode("utf-8"))


def render(model: Any, signing: Signing, folder: str | Path = "") -> str:
    """The page, as text."""
    statement: PrivacyStatement | None = getattr(model, "privacy_", None)
    name = type(model).__name__
    if statement is None:
        raise ConfigError(f"{name} is not a private model: there is no promise to sign")
    parts = [
        tag("header", tag("h1", "Privacy sign-off"), tag("p", _verdict(statement))),
        _not_charged(statement, signing),
        _render_guarantee(model, statement, signing),
        tag("div", _public(statement, signing), _delta(statement), class_="columns"),
        _releases(statement),
        tag("div", _balance(statement, signing), _earlier(model), class_="columns"),
        tag(
            "div",
            _audit(signing.audit, statement),
            _conformance(signing.conformance),
            class_="columns",
        ),
        _identity(model, statement, folder),
        tag(
            "div",
            tag("div", "Name and role"),
            tag("div", "Signature"),
            tag("div", "Date"),
            class_="sign",
        ),
    ]
    style = Html(resources.files("discreet.report").joinpath("sign_off.css").read_text("utf-8"))
    head = join(
        [
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", http_equiv="Content-Security-Policy", content=content_policy(style)),
            tag("title", f"Privacy sign-off: {name}"),
            tag("style", style),
        ]
    )
    return (
        "<!doctype html>\n" + tag("html", tag("head", head), tag("body", *parts), lang="en") + "\n"
    )


# ------------------------------------------------------------ the promise


def _verdict(statement: PrivacyStatement) -> Html:
    good = statement.private
    return tag("span", statement.status.upper(), class_=f"verdict {'good' if good else 'bad'}")


def _render_guarantee(model: Any, statement: PrivacyStatement, signing: Signing) -> Html:
    purpose = signing.purpose or "not said"
    if not statement.finite:
        return tag(
            "p",
            tag("strong", "Nothing is promised to anybody: "),
            "something left without noise, so ε is infinite. Handle the model like the ratings"
            " themselves.",
            class_="promise bad",
        )
    likelier = math.exp(min(statement.epsilon, 30.0))
    times = f"{likelier:.3g}" if likelier < 100 else f"{likelier:,.0f}"
    if statement.epsilon >= 30:
        times = f"e^{statement.epsilon:.3g}"
    verdict = next(words for limit, words in VERDICTS if statement.epsilon <= limit)
    seen = (
        "whatever anybody else can see of this model is nearly as likely with all of your"
        " ratings as "
    )
    if statement.weak:
        seen = (
            "what others can see of this model may be far more likely with all of your ratings"
            " than "
        )
    words = tag(
        "p",
        tag("strong", f"To {signing.people}: "),
        seen,
        (
            "without them. "
            if statement.neighboring == "add-remove"
            else "with those of somebody else in their place. "
        ),
        f"Nothing becomes more than {times} times as likely (ε = {statement.epsilon:.4g}), except"
        f" with a probability of at most δ = {power(statement.delta)}. Neighbors:"
        f" {_RELATION[statement.neighboring]}. {verdict} ",
        tag("strong", "For: "),
        f"{purpose}. ",
        tag("strong", "Model: "),
        f"{type(model).__name__}, {len(model.item_ids_):,} items, goal: {model.goal}. It"
        " holds no user's vector and no rating.",
        class_=f"promise{'' if statement.private else ' bad'}",
    )
    cautions = [tag("li", text) for text in statement.cautions]
    return join(
        [
            words,
            (
                tag("p", tag("strong", "Cautions, for which somebody has to answer:"), class_="bad")
                if cautions
                else None
            ),
            tag("ul", *cautions) if cautions else None,
        ]
    )


def _public(statement: PrivacyStatement, signing: Signing) -> Html:
    who = signing.said_by or "who trained it"
    rows = [
        [a.text, tag("span", "nobody: read from the data", class_="bad") if a.inferred else who]
        for a in statement.assumptions
        if a.name not in ("delta", "filter")
    ]
    filters = [a.text for a in statement.assumptions if a.name == "filter"]
    left_out = (
        "; ".join(filters) + ": decided by exact counts, which no ε pays for"
        if filters
        else "no filter by counts"
    )
    rows.append(["Filters of ratings", tag("span", left_out, class_="bad" if filters else None)])
    return tag(
        "section",
        tag("h2", "Taken to be public, and who said so"),
        table(
            ["what", "said by"], rows, caption="What was taken to be public", words=(1,), quiet=True
        ),
    )


def _delta(statement: PrivacyStatement) -> Html:
    people = statement.ledger.people
    if people is None:
        said = tag(
            "p",
            "The number of people was not released, so δ cannot be held against it here. It should"
            " be well below one over that number.",
        )
    else:
        expected = statement.delta * people
        kind = "good" if expected < 0.1 else "bad"
        said = tag(
            "p",
            f"About {people:,.0f} people, as released with noise. δ × people = ",
            tag("strong", f"{expected:.2g}", class_=kind),
            " is about how many of them the bound may fail for; well below 1 is expected.",
        )
    noise = {
        "secure": "Noise from the operating system's entropy through AES, on exact integers.",
        "seeded": "RESEARCH MODE: noise from a seed, which whoever knows it can subtract.",
    }.get(statement.noise, "No noise that can be trusted.")
    return tag(
        "section",
        tag("h2", f"δ = {power(statement.delta)} against the number of people"),
        said,
        tag("p", noise, class_=None if statement.noise == "secure" else "bad"),
    )


# ------------------------------------------------------------ releases


@dataclass(frozen=True)
class Family:
    """Releases whose names differ by a number only."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def events(self) -> list[Event]:
        return [entry.event for entry in self.entries]


def families(statement: PrivacyStatement) -> list[Family]:
    """The ledger's releases in the order of their first appearance, steps of the same kind
    together.
    """
    found: dict[str, list[Entry]] = {}
    for entry in statement.ledger.entries:
        found.setdefault(re.sub(r" \d+$", "", entry.name), []).append(entry)
    return [Family(name, tuple(entries)) for name, entries in found.items()]


def _releases(statement: PrivacyStatement) -> Html:
    rows = []
    for family in families(statement):
        some = family.entries
        noise = sorted({entry.deviation for entry in some})
        rows.append(
            [
                family.name,
                f"{len(some)}",
                _several(sorted({entry.sensitivity for entry in some})),
                _several(noise),
                *_two(family.events, statement),
            ]
        )
    rows.append(
        [
            tag("strong", "all together"),
            f"{len(statement.ledger.entries)}",
            "",
            "",
            *_totals(statement),
        ]
    )
    chosen = [entry for entry in statement.ledger.entries if entry.law]
    tuned = (
        f" The best of a secret number of trainings ({chosen[0].runs:g} on average)."
        if chosen
        else ""
    )
    return tag(
        "section",
        tag("h2", "Everything that was released, and its price by two accountants"),
        table(
            [
                "release",
                "times",
                "one person moves it by",
                "noise s.d.",
                f"ε, {statement.accountant}",
                "ε, second",
            ],
            rows,
            caption=(
                f"ε at δ = {power(statement.delta)} as if each stood alone; prices do not add up,"
                f" the last row is what all cost. First: {statement.conversion}. Second:"
                f" dp-accounting.{tuned}"
            ),
        ),
    )


def _several(values: list[float]) -> str:
    return (
        f"{values[0]:.3g}"
        if values[-1] <= values[0] * 1.001
        else f"{values[0]:.3g} – {values[-1]:.3g}"
    )


def _two(events: list[Event], statement: PrivacyStatement) -> list[str]:
    """ε by the statement's own accountant, and by the second one where it can say."""
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
    except ConfigError:  # not installed, or nothing to say
        return "–"


def _totals(statement: PrivacyStatement) -> list[Any]:
    first, second = _two(statement.ledger.events(), statement)
    return [tag("strong", first), tag("strong", second)]


# ------------------------------------------------------------ what else was spent


def _not_charged(statement: PrivacyStatement, signing: Signing) -> Html | None:
    if signing.account is None or signing.account.has_ledger(statement.ledger):
        return None
    return tag(
        "p",
        tag(
            "strong",
            f"DOES NOT VERIFY: the account {signing.account.name!r} did not pay for this model. ",
        ),
        "The ledger of this model is not among the trainings of the account, so the balance below"
        " does not cover it.",
        class_="promise bad uncovered",
    )


def _balance(statement: PrivacyStatement, signing: Signing) -> Html:
    head = tag("h2", "All trainings on these people")
    if signing.account is None:
        text = (
            "No account was named: what other trainings on the same people cost is not known here."
        )
        return tag("section", head, tag("p", text, class_="bad"))
    b: Balance = signing.account.balance
    rows = [
        ["in all", f"{b.epsilon:g}", f"{b.limit:.4g}"],
        ["spent", _number(b.epsilon_spent), f"{b.spent + b.reserved:.4g}"],
        ["left", f"{b.epsilon_left:g}", f"{b.left:.4g}"],
    ]
    more = f", {b.unsettled} that never ended and stay spent" if b.unsettled else ""
    verified = signing.account.store.verify()
    charged = signing.account.has_ledger(statement.ledger)
    of_model = (
        "the ledger of this model is among them"
        if charged
        else "the ledger of this model is NOT among them"
    )
    return tag(
        "section",
        head,
        table(
            [f"account {b.account!r}", f"ε at δ = {power(b.delta)}", "μ²"],
            rows,
            caption=f"{b.trainings} settled{more}; the log of {verified.records} records verifies",
        ),
        tag(
            "p",
            f"Compared by ledger id and hash chain: {of_model}.",
            class_="good" if charged else "bad",
        ),
        tag("p", "NOT PRIVATE: something left without noise.", class_="bad") if b.broken else None,
    )


def _earlier(model: Any) -> Html:
    earlier = getattr(model, "earlier_ledgers_", ())
    text = (
        f"{len(earlier)} earlier trainings were saved in this folder; they cost their own ε, and"
        " count beside this one."
        if earlier
        else "No earlier training was saved in this folder."
    )
    return tag("section", tag("h2", "Before this training"), tag("p", text))


# ------------------------------------------------------------ checks


def _audit(found: Mapping[str, Any] | None, statement: PrivacyStatement) -> Html:
    head = tag("h2", "Audit: an adversary against the claim")
    if found is None:
        return tag(
            "section",
            head,
            tag("p", "Not done. discreet audit does it on generated data.", class_="bad"),
        )
    sign = {"mu": "μ", "epsilon": "ε"}
    rows = []
    for level in found["levels"]:
        unit = sign.get(str(level.get("unit")), "")
        refuted = bool(level.get("refuted"))
        verdict = tag(
            "span", "REFUTED" if refuted else "not refuted", class_="bad" if refuted else "good"
        )
        rows.append(
            [
                level.get("name", "?"),
                f"{unit} {_number(level.get('found'))} of {_number(level.get('claimed'))}",
                verdict,
            ]
        )
    claim = found.get("claim") or {}
    same = math.isclose(float(claim.get("epsilon", math.nan)), statement.epsilon, rel_tol=1e-3)
    of = f"{found.get('model', 'a model')}, {found.get('data', '')}".strip(", ")
    return tag(
        "section",
        head,
        table(["level", "found", "claim"], rows, caption=of, words=(1, 2)),
        None if same else tag("p", "It was of another ε than this model has.", class_="bad"),
    )


def _conformance(report: Report | None) -> Html:
    head = tag("h2", "Conformance: rules that every private model keeps")
    if report is None:
        return tag(
            "section",
            head,
            tag("p", "Not checked. --conformance checks it on generated data.", class_="bad"),
        )
    kept = sum(check.passed is True for check in report.checks)
    skipped = [check.rule for check in report.checks if check.passed is None]
    broken = [
        tag("li", f"{check.rule}: {check.text}", class_="bad")
        for check in report.checks
        if check.passed is False
    ]
    text = f"{kept} of {len(report.checks)} rules kept"
    text += f", {len(broken)} broken" if broken else ", none broken"
    text += f"; not applicable: {', '.join(skipped)}" if skipped else ""
    return tag(
        "section",
        head,
        tag("p", f"{text}.", class_="bad" if broken else "good"),
        tag("ul", *broken) if broken else None,
        tag("p", f"Of {report.model}, on generated data.", class_="soft"),
    )


def _identity(model: Any, statement: PrivacyStatement, folder: str | Path) -> Html:
    ledger = statement.ledger.to_dict()
    own = hashlib.sha256(statement.ledger.to_text().encode()).hexdigest()
    checksum = _checksum(folder, "model.json") or "not saved"
    library = ledger["library"]["version"]
    return tag(
        "footer",
        tag(
            "p",
            f"Trained by discreet {library}, page by discreet {__version__}. Parameters:"
            f" {model!r}.",
        ),
        tag(
            "p",
            "ledger.json ",
            tag("code", _checksum(folder, "ledger.json") or own),
            ", model.json ",
            tag("code", checksum),
            " (SHA-256 of the files, as sha256sum and, of the ledger, discreet budget log print"
            " it).",
        ),
        tag(
            "p",
            "This page looks at nobody's ratings. It states what the files say, and is no proof"
            " that they are genuine.",
        ),
    )


def _checksum(folder: str | Path, name: str) -> str:
    """SHA-256 of a file of the model's folder; empty where there is none."""
    file = Path(folder, name)
    return hashlib.sha256(file.read_bytes()).hexdigest() if folder and file.is_file() else ""


def _number(value: Any) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "–"
    return f"{number:.4g}" if math.isfinite(number) else "∞"
