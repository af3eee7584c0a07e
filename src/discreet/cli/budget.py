"""``discreet budget``: compute the privacy cost of a planned model or of a ledger.

The subcommands for budget accounts are in `discreet.cli.budget_accounts`.
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
from discreet.errors import ConfigError, DataError, NotInstalled, PrivacyError

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
    """Releases of a plan or of a ledger, with their costs.

    Attributes
    ----------
    of : the model or the file
    epsilon, delta : total cost
    neighboring : relation between neighboring data sets
    accountant : name of the accountant
    events : releases, for accountants
    releases : releases, for tables and JSON
    spare : part of δ that is reserved for the noise sampler
    notes : remarks to print
    """

    of: str
    epsilon: float
    delta: float
    neighboring: str
    accountant: str
    events: list[Event]
    releases: list[dict[str, Any]]
    spare: float
    notes: list[str] = field(default_factory=list)

    @property
    def for_releases(self) -> float:
        """Part of δ that is left for the releases."""
        return max(0.0, self.delta - self.spare)


@command(
    "discreet budget --factors 32 --epsilon 1 --delta 1e-6 --items 20000",
    "discreet budget --model dpals --epsilon 1 --items 20000 --set item_fraction=0.2 --plot"
    " budget.png",
    "discreet budget model/",
    "discreet budget model/ledger.json --accountant rdp",
    "discreet budget open budget.sqlite:customers --epsilon 4 --delta 1e-6",
    "discreet budget show budget.sqlite",
    "discreet budget log budget.sqlite:customers",
    "discreet budget verify budget.sqlite --folder model/",
    "discreet budget backup budget.sqlite --out copy.sqlite",
)
def budget(
    choice: ModelOptions,
    out: Output,
    what: Annotated[
        str | None,
        typer.Argument(
            help=(
                "Folder of a private model, or its ledger.json; or one of open, show, log, verify,"
                " backup, followed by STORE."
            ),
            metavar="LEDGER",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Argument(
            help="File or PostgreSQL database of budget accounts, with an account:"
            " budget.sqlite:customers, postgresql://user@host/database:customers.",
            metavar="STORE",
        ),
    ] = None,
    items: Annotated[
        int | None, typer.Option(help="Number of items in the catalog.", min=1, metavar="N")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            help="Plot ε over δ, the noise over ε, and the share of each release.",
            metavar="FILE.png",
        ),
    ] = None,
    note: Annotated[
        str | None,
        typer.Option(
            help="With open: a note for the log, such as which users and who decided.",
            metavar="TEXT",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            help="With verify: an earlier hash that the file must still contain.", metavar="HASH"
        ),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(
            help="With verify: a model whose training the file must contain.", metavar="FOLDER"
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--out", "-o", help="With backup: the new file to write.", metavar="FILE"),
    ] = None,
) -> None:
    """Compute the privacy cost of a model before training, or verify the ledger of a trained one.

    Without LEDGER: list the releases of a model with these options, with their sensitivity, noise
    and share of the budget. No data are read. With LEDGER: check that the file is unchanged, and
    recompute the cost of its releases, also with an independent accountant.

    With STORE: keep one budget for all trainings on the same users. open creates an account with a
    fixed total --epsilon and --delta; show prints the balance; log lists every training; verify
    checks the whole file. discreet train --account charges it. backup copies the file safely even
    while trainings use it; a copy by other means may be damaged or lack recent costs.
    """
    if what in budget_accounts.VERBS:
        budget_accounts.run(
            what, store, choice, {"--items": items, "--plot": plot}, note, head, folder, to, out
        )
        return
    if any(option is not None for option in (store, note, head, folder, to)):
        raise ConfigError(
            f"a STORE needs one of {', '.join(budget_accounts.VERBS)}: write for example discreet"
            " budget show budget.sqlite"
        )
    check_plot(plot)
    bill = _of_plan(choice, items) if what is None else _of_ledger(what, choice, items)
    with out.progress("Computing the cost"):
        prices, independent = _prices(bill, choice.accountant)
        noise = _noise_at(bill)
    _show(bill, prices, independent, noise, out)
    if independent is not None and independent["epsilon"] > bill.epsilon + 1e-6:
        raise PrivacyError(
            f"ε = {bill.epsilon:.8g} is stated, but the independent accountant computes "
            f"{independent['epsilon']:.8g} at δ = {bill.delta:g}: do not rely on this ledger"
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
            "the number of items is missing: pass --items, for example --items 20000, or name a"
            " ledger"
        )
    model = choice.make(default=PRIVATE)
    if not hasattr(model, "plan"):
        raise ConfigError(
            f"{type(model).__name__} is not private and has no budget: use --model {PRIVATE}"
        )
    plan = model.plan(items)
    every = model.price_list(items)
    rows = [r for r in every if "part_of" not in r]
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
            "ratings are assumed to lie between 1 and 5: set another range with --rating-range"
        )
    _note_triangles(bill, [r["name"] for r in rows if r["symmetric"]])
    for whole in dict.fromkeys(r["part_of"] for r in every if "part_of" in r):
        parts = ", ".join(r["name"] for r in every if r.get("part_of") == whole)
        bill.notes.append(f"{whole}: may be divided, at the same cost, into {parts}")
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
            f"{what}: symmetric matrices, whose off-diagonal entries have 1/√2 of that noise"
        )


def _note_weak(bill: Bill) -> None:
    from discreet.privacy.accounting.budget import LARGE_DELTA, WEAK_EPSILON

    if bill.epsilon > WEAK_EPSILON:
        bill.notes.append(f"an ε above {WEAK_EPSILON:g} is a weak guarantee")
    if bill.delta > LARGE_DELTA:
        bill.notes.append(
            f"a δ above {LARGE_DELTA:g} is a weak guarantee: it may fail entirely with that"
            " probability"
        )


# ------------------------------------------------------------ from a ledger


def _of_ledger(what: str, choice: ModelOptions, items: int | None) -> Bill:
    others = [name for name in choice.options_used if name != "--accountant"] + (
        ["--items"] if items is not None else []
    )
    if others:
        raise ConfigError(
            f"{others[0]} is for a model before training, and {what} is a ledger: leave it out"
        )
    ledger = _read(Path(what))
    if not ledger.private:
        unsafe = sorted({entry.name for entry in ledger.entries if entry.unsafe})
        why = f"{', '.join(unsafe)} released without noise" if unsafe else "no noise was added"
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
    bill.notes.append(f"the hash chain of {records} records and the stated ε and δ are verified")
    if ledger.noise == "seeded":
        bill.notes.append(
            "RESEARCH MODE: the noise came from a seed, and can be subtracted with that seed"
        )
    _note_weak(bill)
    bill.notes += [f"CAUTION: {a.text}" for a in ledger.assumptions if a.name == "delta"]
    bill.notes += [
        f"CAUTION, read from the data: {a.text}" for a in ledger.assumptions if a.inferred
    ]
    return bill


def _read(path: Path) -> Ledger:
    """Read and verify the ledger in a file or in the folder of a model."""
    from discreet.models.storage.ledger_history import LEDGER
    from discreet.models.storage.read_folder import MODEL
    from discreet.privacy.release.ledger import Ledger

    file = path / LEDGER if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        found = (path / MODEL).is_file()
        why = "its model is not private" if found else "it is not a saved model"
        raise DataError(f"{path} holds no {LEDGER}: {why}")
    if not file.is_file():
        raise DataError(
            f"{path} does not exist: name the folder of a private model, or its {LEDGER}"
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
            f"{file} was changed after it was saved with the model: its checksum differs"
        )


# ------------------------------------------------------------ costs


def _mu(bill: Bill) -> float | None:
    from discreet.privacy.accounting import pricing as accounting

    return accounting.price(bill.events, bill.for_releases, bill.accountant).mu


def _prices(bill: Bill, wanted: str | None) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Compute ε by the bill's, the papers' and the chosen accountant, and by an independent one."""
    from discreet.privacy.accounting import pricing as accounting

    also = [] if wanted in (None, "auto") else [wanted]  # "auto" was resolved in the bill
    names = dict.fromkeys([bill.accountant, "gdp", "rdp", *also])
    prices = [accounting.price(bill.events, bill.for_releases, name).to_dict() for name in names]
    if bill.epsilon > INDEPENDENT_UP_TO:
        bill.notes.append(
            f"above ε = {INDEPENDENT_UP_TO:g} the independent accountant takes minutes and is"
            " skipped"
        )
        return prices, None
    try:
        found = accounting.independent_epsilon(bill.events, bill.for_releases)
    except NotInstalled:
        bill.notes.append(
            "no independent accountant: to have one, run pip install 'discreet[accounting]'"
        )
        return prices, None
    except ConfigError as error:
        bill.notes.append(f"no independent accountant: {error}")
        return prices, None
    return prices, {
        "epsilon": found,
        "by": "dp-accounting, privacy loss distributions of every release",
    }


def _noise_at(bill: Bill) -> dict[str, float]:
    """Compute the noise at a quarter to four times the ε, relative to the planned noise."""
    from discreet.privacy.accounting import pricing as accounting

    factors = (0.25, 0.5, 1.0, 2.0, 4.0)
    return {
        f"{f * bill.epsilon:.6g}": noise_factor(bill, f * bill.epsilon, accounting) for f in factors
    }


def noise_factor(bill: Bill, epsilon: float, accounting: Any) -> float:
    """Return the factor on all noise at which the releases cost that ε."""
    # "pld" takes a second per evaluation, and equals "gdp" if all noise is Gaussian
    quick = bill.accountant == "pld" and all(
        e.mechanism == "gaussian" and e.rate == 1 for e in bill.events
    )
    return float(
        accounting.calibrate(
            bill.events, epsilon, bill.for_releases, "gdp" if quick else bill.accountant
        )
    )


def curve(bill: Bill, deltas: Sequence[float], accountant: str = "gdp") -> list[dict[str, float]]:
    """Compute ε at each δ."""
    from discreet.privacy.accounting import pricing as accounting

    if bill.accountant == "pld" and any(event.rate < 1 for event in bill.events):
        accountant = "pld"  # the only one with amplification by sampling
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
    from discreet.privacy.release.plan import title_of

    out.say(bill.of, style="bold")
    cells = [
        [
            title_of(r["name"], r["shape"]),
            str(r["count"]),
            (
                "depends on earlier releases"
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
    total = f"ε = {bill.epsilon:.6g} at δ = {bill.delta:g}, for {RELATION[bill.neighboring]}"
    mu = _mu(bill)
    out.say(total if mu is None else f"{total}; total μ = {mu:.4g}", style="bold")
    out.say()
    rows = [[p["accountant"], _number(p["epsilon"]), p["conversion"]] for p in prices]
    if independent is not None:
        rows.append(["independent", _number(independent["epsilon"]), independent["by"]])
    out.table(["accountant", "ε", "how"], rows, flush_left=(0, 2))
    half, double = (noise[f"{f * bill.epsilon:.6g}"] for f in (0.5, 2.0))
    out.say(
        f"Half the ε ({bill.epsilon / 2:.4g}) needs {half:.3g} times the noise, and thus about"
        f" {half:.3g} times as many users for the same signal-to-noise ratio. Twice the ε needs"
        f" {double:.3g} times the noise."
    )
    found = ", ".join(f"{c['epsilon']:.4g} at {c['delta']:.0e}" for c in curve(bill, DELTAS[::2]))
    out.say(f"The same releases at another δ: ε = {found}.")
    for note in bill.notes:
        out.say(f"Note: {note}")


def _number(value: float) -> str:
    return f"{value:.7f}" if math.isfinite(value) else "∞"
