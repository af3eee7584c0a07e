"""``discreet budget``: what a private model will cost, before any data, and what one has cost, from
its ledger.

The verbs about accounts, which last longer than one training, are in
`discreet.cli.budget_accounts`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import budget_accounts
from discreet.cli.app import command
from discreet.cli.evaluation_plot import check_plot
from discreet.cli.model_options import PRIVATE, ModelOptions
from discreet.cli.output import Output
from discreet.errors import ConfigError, DataError, PrivacyError

if TYPE_CHECKING:
    from discreet.privacy.accounting.pricing import Event
    from discreet.privacy.release.ledger import Ledger

#: Where the curve of ε over δ is evaluated, for tables and JSON.
DELTAS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
#: Beyond this ε, the independent accountant takes minutes.
INDEPENDENT_UP_TO = 60.0
RELATION = {"add-remove": "one user more or less", "replace-one": "one user replaced by another"}
COLUMNS = (
    "release",
    "times",
    "numbers each",
    "sensitivity",
    "noise multiplier",
    "noise s.d.",
    "share of budget",
)


@dataclass
class Bill:
    """Releases with their prices: of a plan, or of a ledger."""

    of: str
    epsilon: float
    delta: float
    neighboring: str
    accountant: str
    events: list[Event]
    releases: list[dict[str, Any]]
    spare: float  # of δ, for the sampler
    notes: list[str] = field(default_factory=list)

    @property
    def for_releases(self) -> float:
        """δ without what the sampler uses."""
        return max(0.0, self.delta - self.spare)


@command(
    "discreet budget --factors 32 --epsilon 1 --delta 1e-6 --items 20000",
    "discreet budget --model dpals --epsilon 1 --items 20000 --set item_fraction=0.2 --plot"
    " budget.png",
    "discreet budget model/",
    "discreet budget model/ledger.json --accountant rdp",
    "discreet budget open people.sqlite:customers --epsilon 4 --delta 1e-6",
    "discreet budget show people.sqlite",
    "discreet budget log people.sqlite:customers",
    "discreet budget verify people.sqlite --folder model/",
    "discreet budget backup people.sqlite --out copy.sqlite",
)
def budget(
    choice: ModelOptions,
    out: Output,
    what: Annotated[
        str | None,
        typer.Argument(
            help=(
                "Folder of a private model, or its ledger.json; or open, show, log, verify, backup"
                " for a STORE."
            ),
            metavar="LEDGER",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Argument(
            help="A file of accounts, and one of them: people.sqlite:customers.", metavar="STORE"
        ),
    ] = None,
    items: Annotated[
        int | None, typer.Option(help="Number of items in the catalog.", min=1, metavar="N")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            help="Plot ε against δ, the noise against ε, and the shares.", metavar="FILE.png"
        ),
    ] = None,
    note: Annotated[
        str | None,
        typer.Option(
            help="With open: who these people are and who decided, for the log.", metavar="TEXT"
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            help="With verify: a hash from earlier, which must still be there.", metavar="HASH"
        ),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(
            help="With verify: a model whose training must still be there.", metavar="FOLDER"
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--out", "-o", help="With backup: the new file to write.", metavar="FILE"),
    ] = None,
) -> None:
    """Price a private model before it sees any data, or check the ledger of a trained one.

    Without LEDGER: what a model with these options will release, how often, how far one user can
    move each release, how much noise hides that, and what half the ε would mean. With LEDGER: check
    that the file was not changed, and price what it lists again, also with an independent
    accountant.

    With STORE: one budget for all trainings on the same people. open makes an account with its
    total --epsilon and --delta, which cannot be changed; show prints what is left; log every
    training; verify checks the whole file. discreet train --account takes from it. backup copies
    the file, also while trainings use it: a copy made by other means, without the -journal or -wal
    file next to it, can be damaged or lack spending.
    """
    if what in budget_accounts.VERBS:
        budget_accounts.run(
            what, store, choice, {"--items": items, "--plot": plot}, note, head, folder, to, out
        )
        return
    if any(option is not None for option in (store, note, head, folder, to)):
        raise ConfigError(
            f"a store goes with one of {', '.join(budget_accounts.VERBS)}, such as budget show"
            " people.sqlite"
        )
    check_plot(plot)
    bill = _of_plan(choice, items) if what is None else _of_ledger(what, choice, items)
    with out.progress("Pricing"):
        prices, independent = _prices(bill, choice.accountant)
        noise = _noise_at(bill)
    _show(bill, prices, independent, noise, out)
    if independent is not None and independent["epsilon"] > bill.epsilon + 1e-6:
        raise PrivacyError(
            f"ε = {bill.epsilon:.8g} is stated, and the independent accountant finds "
            f"{independent['epsilon']:.8g} at δ = {bill.delta:g}"
        )
    if plot is not None:
        from discreet.cli.budget_plot import draw_budget

        draw_budget(bill, independent, Path(plot))
        out.say(f"Wrote {plot}")
    out.result(
        {
            "command": "budget",
            "of": bill.of,
            "epsilon": bill.epsilon,
            "delta": bill.delta,
            "neighboring": bill.neighboring,
            "accountant": bill.accountant,
            "mu": _mu(bill),
            "releases": bill.releases,
            "prices": prices,
            "independent": independent,
            "noise_at": noise,
            "curve": curve(bill, DELTAS),
            "notes": bill.notes,
            "plot": plot,
        }
    )


# ------------------------------------------------------------ before any data


def _of_plan(choice: ModelOptions, items: int | None) -> Bill:
    from discreet.privacy.release.plan import RESERVE

    if items is None:
        raise ConfigError(
            "say how many items the catalog has, such as --items 20000, or name a ledger to price"
        )
    model = choice.make(default=PRIVATE)
    if not hasattr(model, "plan"):
        raise ConfigError(
            f"{type(model).__name__} is not private, so it has no budget: use --model {PRIVATE}"
        )
    plan = model.plan(items)
    rows = model.price_list(items)
    of = f"{model!r} on {items:,} items"
    priced = [_row(r["name"], r["count"], r) for r in rows]
    bill = Bill(
        of,
        plan.epsilon(),
        plan.budget.delta,
        plan.budget.neighboring,
        plan.accountant,
        plan.events,
        priced,
        RESERVE,
    )
    if model.goal == "rating" and getattr(model, "rating_range", ()) is None:
        bill.notes.append(
            "ratings are taken to lie between 1 and 5: say otherwise with --rating-range"
        )
    _note_triangles(bill, [r["name"] for r in rows if r["symmetric"]])
    _note_weak(bill)
    return bill


def _row(name: str, count: int, r: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "count": count,
        "mechanism": r["mechanism"],
        "shape": None if r["shape"] is None else list(r["shape"]),
        "norm": r["norm"],
        "sensitivity": r["sensitivity"],
        "noise_multiplier": r["noise_multiplier"],
        "deviation": r["deviation"],
        "share": r["share"],
    }


def _note_triangles(bill: Bill, names: Sequence[str]) -> None:
    if names:
        what = " and ".join(names)
        bill.notes.append(
            f"{what}: symmetric matrices, with 1/√2 of that noise on the entries off the diagonal"
        )


def _note_weak(bill: Bill) -> None:
    from discreet.privacy.accounting.budget import LARGE_DELTA, WEAK_EPSILON

    if bill.epsilon > WEAK_EPSILON:
        bill.notes.append(f"an ε above {WEAK_EPSILON:g} is weak: little is promised by it")
    if bill.delta > LARGE_DELTA:
        bill.notes.append(
            f"a δ above {LARGE_DELTA:g} is weak: the promise may fail altogether with that"
            " probability"
        )


# ------------------------------------------------------------ from a ledger


def _of_ledger(what: str, choice: ModelOptions, items: int | None) -> Bill:
    others = [name for name in choice.options_used if name != "--set accountant"] + (
        ["--items"] if items is not None else []
    )
    if others:
        raise ConfigError(
            f"{others[0]} is for a model that is still to be trained, and {what} is a ledger"
        )
    ledger = _read(Path(what))
    if not ledger.private:
        unsafe = sorted({entry.name for entry in ledger.entries if entry.unsafe})
        why = f"{', '.join(unsafe)} left without noise" if unsafe else "no noise was added"
        raise PrivacyError(
            f"{what} is the ledger of a model that is NOT PRIVATE: {why}, so its ε is infinite"
        )
    price = ledger.price()
    total = sum(entry.event.share_mu**2 for entry in ledger.entries)
    groups: dict[Any, list[Any]] = {}
    for entry in ledger.entries:
        groups.setdefault((entry.name, entry.sensitivity, entry.event, entry.shape), []).append(
            entry
        )
    rows = [
        _row(
            name,
            len(same),
            vars(same[0])
            | {
                "deviation": same[0].deviation,
                "share": len(same) * event.share_mu**2 / total,
            },
        )
        for (name, _, event, _), same in groups.items()
    ]
    records = len(ledger.entries) + len(ledger.assumptions)
    bill = Bill(
        what,
        price.epsilon,
        price.delta,
        ledger.plan.budget.neighboring,
        price.accountant,
        ledger.events(),
        rows,
        ledger.noise_delta,
    )
    bill.notes.append(f"the chain of {records} records is unbroken, and the seal on ε and δ fits")
    if ledger.noise == "seeded":
        bill.notes.append(
            "RESEARCH MODE: the noise came from a seed, and whoever knows it can subtract it"
        )
    _note_weak(bill)
    bill.notes += [f"CAUTION: {a.text}" for a in ledger.assumptions if a.name == "delta"]
    bill.notes += [
        f"CAUTION, read from the data: {a.text}" for a in ledger.assumptions if a.inferred
    ]
    return bill


def _read(path: Path) -> Ledger:
    """The ledger in a file, or in the folder of a model, verified."""
    from discreet.models.storage.ledger_history import LEDGER
    from discreet.models.storage.read_folder import MODEL
    from discreet.privacy.release.ledger import Ledger

    file = path / LEDGER if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        found = (path / MODEL).is_file()
        why = "its model is not private" if found else "it is no saved model"
        raise DataError(f"{path} holds no {LEDGER}: {why}")
    if not file.is_file():
        raise DataError(
            f"{path} does not exist: give the folder of a private model, or its {LEDGER}"
        )
    if path.is_dir() and (path / MODEL).is_file():
        _check_sum(path, file)
    return Ledger.load(file)


def _check_sum(folder: Path, file: Path) -> None:
    from discreet.data.safe_io import read_document, read_regular
    from discreet.models.storage.read_folder import MODEL

    try:
        known = read_document(folder / MODEL)["sha256"][file.name]
    except (ValueError, LookupError, TypeError):
        raise DataError(f"{folder / MODEL} is damaged: it does not list {file.name}") from None
    if hashlib.sha256(read_regular(file)).hexdigest() != known:
        raise PrivacyError(
            f"{file} was changed after it was saved with the model: its checksum is another one"
        )


# ------------------------------------------------------------ prices


def _mu(bill: Bill) -> float | None:
    from discreet.privacy.accounting import pricing as accounting

    return accounting.price(bill.events, bill.for_releases, bill.accountant).mu


def _prices(bill: Bill, wanted: str | None) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """ε by the bill's own accountant, the papers' and the one asked for; and by the independent
    one, if it can say.
    """
    from discreet.privacy.accounting import pricing as accounting

    also = [] if wanted in (None, "auto") else [wanted]  # auto has become the bill's own
    names = dict.fromkeys([bill.accountant, "gdp", "rdp", *also])
    prices = [accounting.price(bill.events, bill.for_releases, name).to_dict() for name in names]
    if bill.epsilon > INDEPENDENT_UP_TO:
        bill.notes.append(
            f"above ε = {INDEPENDENT_UP_TO:g} the independent accountant takes minutes, and is not"
            " asked"
        )
        return prices, None
    try:
        found = accounting.independent_epsilon(bill.events, bill.for_releases)
    except ConfigError as error:  # dp-accounting is an extra
        bill.notes.append(f"no independent price: {error}")
        return prices, None
    return prices, {
        "epsilon": found,
        "by": "dp-accounting, privacy loss distributions of every release",
    }


def _noise_at(bill: Bill) -> dict[str, float]:
    """How much noise a quarter of the ε, half of it, and so on would take, relative to the
    noise planned.
    """
    from discreet.privacy.accounting import pricing as accounting

    factors = (0.25, 0.5, 1.0, 2.0, 4.0)
    return {
        f"{f * bill.epsilon:.6g}": noise_factor(bill, f * bill.epsilon, accounting) for f in factors
    }


def noise_factor(bill: Bill, epsilon: float, accounting: Any) -> float:
    """The factor on all noise with which the releases cost that ε."""
    # "pld" takes a second for every attempt, and comes to the same as "gdp" where all noise is
    # Gaussian
    quick = bill.accountant == "pld" and all(
        e.mechanism == "gaussian" and e.rate == 1 for e in bill.events
    )
    return float(
        accounting.calibrate(
            bill.events, epsilon, bill.for_releases, "gdp" if quick else bill.accountant
        )
    )


def curve(bill: Bill, deltas: Sequence[float], accountant: str = "gdp") -> list[dict[str, float]]:
    """ε over δ."""
    from discreet.privacy.accounting import pricing as accounting

    if bill.accountant == "pld" and any(event.rate < 1 for event in bill.events):
        accountant = "pld"  # the only one that counts that batches are random
    spent = [
        accounting.epsilon(bill.events, max(0.0, delta - bill.spare), accountant)
        for delta in deltas
    ]
    return [
        {"delta": delta, "epsilon": epsilon} for delta, epsilon in zip(deltas, spent, strict=True)
    ]


# ------------------------------------------------------------ showing


def _show(
    bill: Bill,
    prices: list[dict[str, Any]],
    independent: dict[str, Any] | None,
    noise: dict[str, float],
    out: Output,
) -> None:
    out.say(bill.of, style="bold")
    cells = [
        [
            r["name"],
            str(r["count"]),
            (
                "by what was released"
                if r["shape"] is None
                else " × ".join(f"{n:,}" for n in r["shape"])
            ),
            f"{r['sensitivity']:.4g} ({r['norm']})",
            f"{r['noise_multiplier']:.4g}",
            f"{r['deviation']:.4g}",
            f"{r['share']:.1%}",
        ]
        for r in bill.releases
    ]
    out.table(COLUMNS, cells)
    promise = f"ε = {bill.epsilon:.6g} at δ = {bill.delta:g}, for {RELATION[bill.neighboring]}"
    mu = _mu(bill)
    out.say(promise if mu is None else f"{promise}; together μ = {mu:.4g}", style="bold")
    out.say()
    rows = [[p["accountant"], _number(p["epsilon"]), p["conversion"]] for p in prices]
    if independent is not None:
        rows.append(["independent", _number(independent["epsilon"]), independent["by"]])
    out.table(["accountant", "ε", "how"], rows, flush_left=(0, 2))
    half, double = (noise[f"{f * bill.epsilon:.6g}"] for f in (0.5, 2.0))
    out.say(
        f"Half the ε ({bill.epsilon / 2:.4g}) takes {half:.3g} times the noise, and so about"
        f" {half:.3g} times as many users for the same signal over noise; twice the ε takes"
        f" {double:.3g} times the noise."
    )
    found = ", ".join(f"{c['epsilon']:.4g} at {c['delta']:.0e}" for c in curve(bill, DELTAS[::2]))
    out.say(f"The same releases at another δ: ε = {found}.")
    for note in bill.notes:
        out.say(f"Note: {note}")


def _number(value: float) -> str:
    return f"{value:.7f}" if math.isfinite(value) else "∞"
