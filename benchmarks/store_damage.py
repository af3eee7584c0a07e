"""Random damage to the files of a budget store: flipped bits, cut files, swapped and emptied pages.

Stores in several states are damaged, one change at a time, and then used. No account may offer more
than it had, a reservation may only be made in a store that verifies, and every refusal must be an
error that is raised on purpose. Run as a program it prints the table of docs/budgets.md::

    python -m benchmarks.store_damage 5000
"""

from __future__ import annotations

import math
import random
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.store_stress import _ledger
from discreet.errors import DiscreetError
from discreet.privacy.accounting import gdp
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.budget_store import Balance, BudgetStore
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import Plan, Release

NAME = "people.sqlite"
PAGE = 4096
#: Smaller than what any state has left, so that an undamaged store grants it.
SMALL = 0.01
#: What one damaged store can come to; all but the first two are faults, of which there may be
#: several.
OUTCOMES = (
    "as before",
    "refused",
    "balance raised",
    "balance raised, verify passes",
    "reserved in a store that does not verify",
    "reserved more than there was",
    "unexpected exception",
)


def _plan(epsilon: float) -> Plan:
    return Plan.calibrate([Release("sums", 4)], Budget(epsilon))


def make_states(folder: Path) -> list[Path]:
    """Make stores in several states, each in a folder of its own."""
    makers = {"new": _make_new, "used": _make_used, "long": _make_long, "killed": _make_killed}
    found = []
    for name, make in makers.items():
        (folder / name).mkdir()
        make(folder / name)
        found.append(folder / name)
    return found


def _make_new(folder: Path) -> None:
    BudgetStore(folder / NAME).open("customers", 4.0, note="one account, no training")


def _make_used(folder: Path) -> None:
    store = BudgetStore(folder / NAME)
    for name in ("customers", "others"):
        account = store.open(name, 4.0)
        for made in range(5):
            account.reserve(_plan(0.3), "secure", "settled").settle(_ledger(_plan(0.3), made))
        account.reserve(_plan(0.2), "secure", "crashed")


def _make_long(folder: Path) -> None:
    """So many records that every table has several pages."""
    account = BudgetStore(folder / NAME).open("customers", 4.0)
    for made in range(25):
        account.reserve(_plan(0.1), "secure", "settled").settle(_ledger(_plan(0.1), made % 5))


def _make_killed(folder: Path) -> None:
    """As a process leaves it that is killed while it commits: the file is half written, with
    its journal or log.
    """
    whole = folder.with_name("before")
    whole.mkdir()
    _make_used(whole)
    base = sqlite3.connect(whole / NAME, isolation_level=None)
    base.execute("PRAGMA cache_size = 1")  # so that pages are written before the commit
    base.execute("BEGIN IMMEDIATE")
    for at in range(3):
        base.execute("INSERT INTO ledgers VALUES (?, ?, ?)", (f"lost {at}", "", "x" * 3 * PAGE))
    for file in whole.iterdir():
        shutil.copy(file, folder)
    base.close()
    shutil.rmtree(whole)


# ------------------------------------------------------------------ damage


def damage(folder: Path, rng: random.Random) -> str:
    """Change one thing in one file of a store; returns what."""
    files = sorted(file for file in folder.iterdir() if file.stat().st_size)
    file = rng.choices(files, [file.stat().st_size for file in files])[0]
    content = bytearray(file.read_bytes())
    kind = rng.choices(("flip", "cut", "swap", "empty"), (85, 5, 5, 5))[0]
    pages = range(0, len(content), PAGE)
    if kind == "flip":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del content[rng.randrange(len(content)) :]
    elif kind == "swap":
        one, other = rng.choice(pages), rng.choice(pages)
        first, second = content[one : one + PAGE], content[other : other + PAGE]
        content[one : one + PAGE] = second
        content[other : other + PAGE] = first
    else:
        one = rng.choice(pages)
        content[one : one + PAGE] = bytes(len(content[one : one + PAGE]))
    file.write_bytes(content)
    return kind


class Inspection:
    """Uses of a damaged store, and what was found wrong with them."""

    def __init__(self, folder: Path, left: dict[str, float]):
        self.store = BudgetStore(folder / NAME)
        self.left = left
        self.errors: list[Exception] = []

    def attempt(self, use: Callable[[], Any]) -> Any:
        """What a use of the store returns; None where it is refused."""
        try:
            return use()
        except DiscreetError:
            return None
        except Exception as error:
            self.errors.append(error)
            return None

    def read_balance(self, name: str) -> Balance:
        return self.store[name].balance

    def read_ledgers(self, name: str) -> list[Ledger]:
        return self.store[name].ledgers()

    def reserve(self, name: str, epsilon: float) -> bool:
        plan = _plan(epsilon)
        return self.attempt(lambda: self.store[name].reserve(plan, "secure", "x")) is not None

    def run(self) -> set[str]:
        """Use the store in every way; returns some of `OUTCOMES`."""
        verified = self.attempt(self.store.verify) is not None
        balances = [self.attempt(partial(self.read_balance, name)) for name in self.left]
        pairs = zip(balances, self.left.values(), strict=True)
        raised = any(balance is not None and balance.left > most for balance, most in pairs)
        self.attempt(self.store.log)
        for name in self.left:
            self.attempt(partial(self.read_ledgers, name))
        too_much = [self.reserve(name, _too_much(most)) for name, most in self.left.items()]
        reserved = [self.reserve(name, SMALL) for name in self.left]
        sound = verified and self.attempt(self.store.verify) is not None
        self.attempt(lambda: self.store.open("more", 1.0))
        found = {
            "balance raised": raised,
            "balance raised, verify passes": raised and verified,
            "reserved more than there was": any(too_much),
            "reserved in a store that does not verify": any(reserved) and not sound,
            "unexpected exception": bool(self.errors),
        }
        faults = {name for name, is_so in found.items() if is_so}
        return faults or {"as before" if sound and all(reserved) else "refused"}


def _too_much(left: float) -> float:
    return 1.02 * gdp.epsilon(math.sqrt(left), 1e-6)


def run(number: int, seed: int = 0) -> dict[str, Counter[str]]:
    """Damage stores so many times; returns how often each outcome was found, by state."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        states = {state: Counter[str]() for state in make_states(Path(place))}
        left = {state: found_left(state, Path(place) / "whole") for state in states}
        for at in range(number):
            state = list(states)[at % len(states)]
            copy = Path(place) / "copy"
            shutil.copytree(state, copy)
            damage(copy, rng)
            inspection = Inspection(copy, left[state])
            states[state].update(inspection.run())
            for error in inspection.errors:
                print(f"{at}: {error!r}", file=sys.stderr)
            shutil.rmtree(copy)
    return {state.name: found for state, found in states.items()}


def found_left(state: Path, copy: Path) -> dict[str, float]:
    """What every account of an undamaged store has left; asked of a copy, because asking
    repairs a killed one.
    """
    shutil.copytree(state, copy)
    left = {account.name: account.balance.left for account in BudgetStore(copy / NAME).accounts()}
    shutil.rmtree(copy)
    return left


def main() -> None:
    found = run(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
    print("| outcome | " + " | ".join(found) + " | all |")
    print("|---" * (len(found) + 2) + "|")
    for outcome in OUTCOMES:
        counts = [counter[outcome] for counter in found.values()]
        print(f"| {outcome} | " + " | ".join(f"{n:,}" for n in (*counts, sum(counts))) + " |")


if __name__ == "__main__":
    main()
