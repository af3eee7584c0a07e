"""Many processes that spend from one store of budgets, and are killed at random moments.

Each worker makes reservations, writes down the ones that it was given, settles some of them and
leaves the others. The parent kills workers with SIGKILL, whatever they are doing, and starts them
again. Afterwards the store is compared with what the workers had written down: nothing that was
given may be missing, nothing may be overspent, and the log has to verify. Run as a program it
prints the table of docs/budgets.md, for SQLite or for empty PostgreSQL databases (one per row)::

    python -m benchmarks.store_stress [postgresql://… postgresql://…]
"""

from __future__ import annotations

import math
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.errors import BudgetExceeded
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.release.budget_store import BudgetStore
from discreet.privacy.release.ledger import Ledger
from discreet.privacy.release.plan import Plan, Release

RELEASES = 4
#: Of single trainings, and so small that about half of all attempts find room.
EPSILONS = (0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Stressed:
    """What was found in the store after all processes were done.

    ``given`` reservations were returned to a worker, ``unsaid`` are in the log of a worker killed
    before it could write them down, ``missing`` were given and are not in the log: there must be
    none. ``largest_use`` is the largest share of its limit that any account came to.
    """

    processes: int
    accounts: int
    attempts: int
    kills: int
    given: int
    refused: int
    settled: int
    unsaid: int
    missing: int
    largest_use: float
    seconds: float


def stress(
    folder: Path,
    processes: int = 8,
    reservations: int = 200,
    accounts: int = 1,
    kills: int = 60,
    seed: int = 0,
    url: str | None = None,
) -> Stressed:
    """Run the workers in a new store in `folder`, or at a URL, and compare. Raises `PrivacyError`
    if the log does not verify.
    """
    where = url or str(folder / "people.sqlite")
    store = BudgetStore(where)
    names = [f"population {at}" for at in range(accounts)]
    for name in names:
        store.open(name, epsilon=EPSILONS[1] * math.sqrt(processes * reservations / accounts))
    rng = random.Random(seed)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    begun = time.perf_counter()
    workers: dict[int, Any] = {}
    # by the number of attempts so far
    moments = sorted(rng.randrange(processes * reservations) for _ in range(kills))
    while True:
        for at in range(processes):
            alive = at in workers and workers[at].is_alive()
            if not alive and _lines(folder, at, "tried") < reservations:
                arguments = (where, folder, at, names, reservations, rng.getrandbits(32))
                workers[at] = context.Process(target=_work, args=arguments, daemon=True)
                workers[at].start()
        running = [worker for worker in workers.values() if worker.is_alive()]
        if not running and all(
            _lines(folder, at, "tried") >= reservations for at in range(processes)
        ):
            break
        time.sleep(rng.uniform(0.0, 0.02))
        if (
            moments
            and running
            and sum(_lines(folder, at, "tried") for at in range(processes)) > moments[0]
        ):
            rng.choice(running).kill()
            moments.pop(0)
    seconds = time.perf_counter() - begun
    return _compared(store, folder, processes, accounts, kills - len(moments), seconds)


def _compared(
    store: BudgetStore, folder: Path, processes: int, accounts: int, kills: int, seconds: float
) -> Stressed:
    store.verify()
    said = Counter(line for at in range(processes) for line in _read(folder, at, "given"))
    settled = [line for at in range(processes) for line in _read(folder, at, "settled")]
    records = store.log()
    reserved = {record.reservation for record in records if record.kind == "reserve"}
    ended = {record.reservation for record in records if record.kind == "settle"}
    balances = [account.balance for account in store.accounts()]
    return Stressed(
        processes=processes,
        accounts=accounts,
        attempts=sum(_lines(folder, at, "tried") for at in range(processes)),
        kills=kills,
        given=len(said),
        refused=sum(_lines(folder, at, "refused") for at in range(processes)),
        settled=len(ended),
        unsaid=len(reserved - set(said)),
        missing=len(set(said) - reserved) + len(set(settled) - ended),
        largest_use=max(1 - balance.left / balance.limit for balance in balances),
        seconds=seconds,
    )


def _work(
    where: str, folder: Path, at: int, names: list[str], reservations: int, seed: int
) -> None:
    """Reserve and settle until there were enough attempts, also by the workers before that were
    killed.
    """
    rng = random.Random(seed)
    store = BudgetStore(where)
    while _lines(folder, at, "tried") < reservations:
        _note(folder, at, "tried", "")
        plan = Plan.calibrate([Release("sums", RELEASES)], Budget(rng.choice(EPSILONS)))
        try:
            held = store[rng.choice(names)].reserve(plan, "secure", "stress")
        except BudgetExceeded:
            _note(folder, at, "refused", "")
            continue
        _note(folder, at, "given", held.id)
        if rng.random() < 0.7:  # the others are as if they had died
            held.settle(_ledger(plan, rng.randint(0, RELEASES)))
            _note(folder, at, "settled", held.id)


def _ledger(plan: Plan, made: int) -> Ledger:
    """What a training leaves that made so many of the planned releases."""
    ledger = Ledger(plan, "secure")
    for _ in range(made):
        ledger.record(
            "sums",
            mechanism="gaussian",
            sensitivity=1.0,
            norm="l2",
            noise_multiplier=plan.noise_multiplier("sums"),
            shape=(1,),
            where="stress",
        )
    return ledger


def _note(folder: Path, at: int, what: str, text: str) -> None:
    with open(folder / f"{at}.{what}", "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def _read(folder: Path, at: int, what: str) -> list[str]:
    file = folder / f"{at}.{what}"
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


def _lines(folder: Path, at: int, what: str) -> int:
    return len(_read(folder, at, what))


def main() -> None:
    """Print the table of docs/budgets.md."""
    head = [
        "processes",
        "accounts",
        "attempts",
        "kills",
        "given",
        "refused",
        "settled",
        "not said",
        "lost",
        "used",
        "s",
    ]
    print(f"| {' | '.join(head)} |")
    print("|---" * len(head) + "|")
    for accounts in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            url = sys.argv[accounts] if len(sys.argv) > accounts else None
            f = stress(Path(folder), accounts=accounts, seed=accounts, url=url)
        counts = [
            f.processes,
            f.accounts,
            f.attempts,
            f.kills,
            f.given,
            f.refused,
            f.settled,
            f.unsaid,
            f.missing,
        ]
        print(f"| {' | '.join(map(str, counts))} | {f.largest_use:.2%} | {f.seconds:.0f} |")


if __name__ == "__main__":
    main()
