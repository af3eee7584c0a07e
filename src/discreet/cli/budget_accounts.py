"""``discreet budget open | show | log | verify | backup``: manage budget accounts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.cli.messages import format_count
from discreet.cli.model_options import ModelOptions
from discreet.cli.output import Output
from discreet.errors import ConfigError, DataError
from discreet.privacy.accounting.budget import DEFAULT_DELTA

if TYPE_CHECKING:
    from discreet.privacy.release.budget_store import Account, Balance, BudgetStore
    from discreet.privacy.release.hash_chain import Head

VERBS = ("open", "show", "log", "verify", "backup")
_OF_AN_ACCOUNT = ("epsilon", "delta", "neighboring")


def run(
    verb: str,
    where: str | None,
    choice: ModelOptions,
    others: Mapping[str, Any],
    note: str | None,
    head: str | None,
    folder: str | None,
    to: str | None,
    out: Output,
) -> None:
    """Run a subcommand on a store; options without effect are refused."""
    if where is None:
        raise ConfigError(
            f"no store is given: write for example discreet budget {verb}"
            f" budget.sqlite{':customers' * (verb == 'open')}"
        )
    used = [name for name, value in others.items() if value is not None]
    given = choice.options_used
    allowed = [f"--{name}" for name in _OF_AN_ACCOUNT] if verb == "open" else []
    used += [name for name in given if name not in allowed]
    used += ["--note"] if note is not None and verb != "open" else []
    used += ["--head"] if head is not None and verb != "verify" else []
    used += ["--folder"] if folder is not None and verb != "verify" else []
    used += ["--out"] if to is not None and verb != "backup" else []
    if used:
        raise ConfigError(f"{used[0]} has no effect on budget {verb}: leave it out")
    if verb == "open":
        _open(where, choice, note or "", out)
    elif verb == "show":
        _show(where, out)
    elif verb == "log":
        _log(where, out)
    elif verb == "backup":
        _backup(where, to, out)
    else:
        _verify(where, head, folder, out)


def split_name(where: str) -> tuple[str, str | None]:
    """Split ``budget.sqlite:customers`` into store and account, which is None if missing.

    In ``postgresql://host:5432/database:customers``, the account follows the database.
    """
    from discreet.privacy.release.budget_store_postgres import SCHEMES

    start = 0
    if where.startswith(SCHEMES):
        # after the host, whose port follows a colon as well
        start = (where + "/").index("/", where.index("://") + 3)
    store, colon, name = where[start:].rpartition(":")
    if start and "@" in name:  # of a password with a bare slash, not an account
        return where, None
    return (where[:start] + store, name) if colon and store else (where, None)


def account_at(where: str) -> Account:
    """Return the account that ``--account budget.sqlite:customers`` names."""
    from discreet.privacy.release.budget_store import BudgetStore

    file, name = split_name(where)
    if name is None:
        store = BudgetStore(file).location
        raise ConfigError(f"{store!r} names a store but no account in it: write {store}:customers")
    return BudgetStore(file)[name]


def _store(where: str) -> tuple[BudgetStore, str | None]:
    from discreet.privacy.release.budget_store import BudgetStore

    file, name = split_name(where)
    return BudgetStore(file), name


def _open(where: str, choice: ModelOptions, note: str, out: Output) -> None:
    store, name = _store(where)
    if name is None:
        raise ConfigError(f"the account has no name: write for example {store.location}:customers")
    if choice.epsilon is None:
        raise ConfigError("an account needs a total budget: pass --epsilon, for example 4")
    delta = DEFAULT_DELTA if choice.delta is None else choice.delta
    account = store.open(name, choice.epsilon, delta, choice.neighboring or "add-remove", note)
    balance = account.balance
    out.say(f"Opened the account {name!r} in {store.location}: {_total(balance)}", style="bold")
    out.say("The total cannot be changed. Only a reservation without any release is returned.")
    named = f"{store.location}:{name}"
    out.next_steps([f"discreet train ratings.csv --epsilon 1 --out model/ --account {named}"])
    out.result({"command": "budget open", "store": store.location, "account": balance.to_dict()})


def _show(where: str, out: Output) -> None:
    store, name = _store(where)
    found = [store[name]] if name is not None else store.accounts()
    balances = [account.balance for account in found]
    for balance in balances:
        out.say(f"{balance.account}: {_total(balance)}", style="bold")
        if balance.broken:
            out.say(
                "NOT PRIVATE: a statistic was released without noise, so there is no guarantee.",
                style="bold red",
            )
        rows = [
            ["spent", f"{balance.spent:.6g}", f"{balance.spent / balance.limit:.1%}"],
            ["reserved", f"{balance.reserved:.6g}", f"{balance.reserved / balance.limit:.1%}"],
            ["left", f"{balance.left:.6g}", f"{balance.left / balance.limit:.1%}"],
        ]
        out.table(["", "μ²", "of total"], rows)
        out.say(
            f"{format_count(balance.trainings, 'training')} completed, {balance.unsettled} running"
            f" or crashed; ε = {_number(balance.epsilon_spent)} spent in total. {_fits(balance)}"
        )
    out.result(
        {
            "command": "budget show",
            "store": store.location,
            "accounts": [b.to_dict() for b in balances],
        }
    )


def _log(where: str, out: Output) -> None:
    store, name = _store(where)
    if name is not None:
        name = store[name].name  # raises if there is no such account
    records = store.log(name)
    rows = [
        [
            str(r.sequence),
            r.time,
            r.account,
            r.kind,
            r.reservation,
            f"{r.mu2:+.6g}" if r.kind != "open" else "",
            _about(r.content),
            r.hash[:12],
        ]
        for r in records
    ]
    out.table(
        ["no.", "time", "account", "record", "reservation", "μ²", "details", "hash"],
        rows,
        flush_left=(1, 2, 3, 4, 6),
    )
    out.result(
        {
            "command": "budget log",
            "store": store.location,
            "records": [r.to_dict() for r in records],
        }
    )


def _backup(where: str, to: str | None, out: Output) -> None:
    store, name = _store(where)
    if name is not None:
        raise ConfigError(
            "A backup covers the whole store."
            f" Write budget backup {store.location} --out copy.sqlite."
        )
    if to is None:
        raise ConfigError(
            f"Name a new file for the backup: budget backup {store.location} --out copy.sqlite"
        )
    from discreet.privacy.release.budget_store import BudgetStore

    found = store.backup(to)
    to = BudgetStore(to).location  # without a password
    out.say(f"Wrote {to}: {format_count(found.records, 'record')}, verified", style="bold green")
    out.say(f"The hash of its last record, for budget verify --head: {found.head}")
    out.result({"command": "budget backup", "store": store.location, "out": to, "head": found.head})


def check_folder(account: Account, folder: str) -> None:
    """Refuse an account that lacks the training of the model in a folder."""
    from discreet.models.storage.read_folder import MAPPED, MODEL, read_contents

    if not Path(folder, MODEL).is_file():
        return
    with suppress(DataError):  # a folder that cannot be read says nothing about the account
        account.check_head(read_contents(folder, mapped=MAPPED).account_head)


def _head_in(folder: str) -> Head:
    from discreet.models.storage.read_folder import MAPPED, read_contents

    found = read_contents(folder, mapped=MAPPED).account_head
    if found is None:
        raise DataError(
            f"{folder} was not charged to an account. Name a model that was trained with --account."
        )
    return found


def _verify(where: str, head: str | None, folder: str | None, out: Output) -> None:
    store, name = _store(where)
    if name is not None:
        raise ConfigError(f"verify checks the whole store: write budget verify {store.location}")
    found = store.verify(head)
    if folder is not None:
        store.verify(_head_in(folder))
    out.say(
        f"{store.location} is verified: {format_count(found.records, 'record')} in an unbroken"
        f" chain, {format_count(found.ledgers, 'ledger')} as recorded, no account overspent",
        style="bold green",
    )
    if folder is not None:
        out.say(f"It contains the training of {folder}.")
    out.say(f"Store this hash elsewhere and pass it to --head next time: {found.head}")
    facts = {
        "records": found.records,
        "ledgers": found.ledgers,
        "accounts": list(found.accounts),
        "head": found.head,
    }
    out.result({"command": "budget verify", "store": store.location, **facts})


def _total(balance: Balance) -> str:
    return (
        f"ε = {balance.epsilon:g} at δ = {balance.delta:g} (+ {balance.allowance:.1g} for sampling)"
        f" in total, {balance.neighboring}, μ² ≤ {balance.limit:.6g}"
    )


def describe_left(account: Account) -> str:
    """Say what is left of an account, named without the password of its store."""
    left = account.balance
    return (
        f"Account {account.store.location}:{account.name}: μ² = {left.left:.4g} of"
        f" {left.limit:.4g} is left. {_fits(left)}"
    )


def _fits(balance: Balance) -> str:
    """Describe the largest training that still fits."""
    if balance.epsilon_left == 0:
        return "No further training fits."
    return (
        f"One more training with ε ≤ {balance.epsilon_left:g} at δ = {balance.delta:g} would fit."
    )


def _about(content: Mapping[str, Any]) -> str:
    """Summarize a record."""
    if "what" in content:
        return f"{content['what']}, ε = {content['epsilon']:g} at δ = {content['delta']:g}"
    if "ledger" in content:
        return f"{format_count(content['releases'], 'release')}, ledger {content['ledger'][:12]}"
    return f"ε = {content['epsilon']:g} at δ = {content['delta']:g}. {content['note']}".strip()


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "∞"
