"""Metrics of the service in the text format of Prometheus, without items, histories or addresses.

With several workers, each writes its counts to a shared folder, and the one that gets the request
for ``/metrics`` adds them up. The counts of the others are at most a second old.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

#: Upper bounds of the histogram's buckets, in seconds.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Requests by route and status, their durations, and the number of open ones."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.classes: Counter[tuple[str, int]] = Counter()
        self.seconds: Counter[str] = Counter()  # type: ignore[assignment]
        self.under_way = 0
        self.reloads = 0  # of other processes; the model registry counts those of this one
        self.failed_reloads = 0
        self.workers = 1

    def add(self, route: str, status: int, seconds: float) -> None:
        """Record one answered request."""
        self.requests[route, status] += 1
        self.classes[
            route, next((at for at, end in enumerate(SECONDS) if seconds <= end), len(SECONDS))
        ] += 1
        self.seconds[route] += seconds  # type: ignore[assignment]

    def merge(self, other: Metrics) -> None:
        """Add the counts of another process."""
        self.requests.update(other.requests)
        self.classes.update(other.classes)
        self.seconds.update(other.seconds)
        self.under_way += other.under_way
        self.reloads += other.reloads
        self.failed_reloads += other.failed_reloads

    def total(self, shelf: Any) -> Metrics:
        """Return the totals, with the reloads of a model registry."""
        made = Metrics()
        made.merge(self)
        made.workers = self.workers
        made.reloads += shelf.reloads
        made.failed_reloads += shelf.failed_reloads
        return made

    def text(self, shelf: Any) -> str:
        """Return all metrics in the format of Prometheus."""
        return self.total(shelf)._text(shelf)

    def _text(self, shelf: Any) -> str:
        lines = [
            "# HELP discreet_requests_total Requests answered, by route and status.",
            "# TYPE discreet_requests_total counter",
        ]
        for (route, status), count in sorted(self.requests.items()):
            lines.append(f'discreet_requests_total{{route="{route}",status="{status}"}} {count}')
        lines += [
            "# HELP discreet_request_seconds Duration of requests.",
            "# TYPE discreet_request_seconds histogram",
        ]
        for route in sorted(self.seconds):
            total = 0
            for at, end in enumerate((*SECONDS, "+Inf")):
                total += self.classes[route, at]
                lines.append(
                    f'discreet_request_seconds_bucket{{route="{route}",le="{end}"}} {total}'
                )
            lines.append(
                f'discreet_request_seconds_sum{{route="{route}"}} {self.seconds[route]:.6f}'
            )
            lines.append(f'discreet_request_seconds_count{{route="{route}"}} {total}')
        lines += [
            "# HELP discreet_requests_under_way Requests being answered.",
            "# TYPE discreet_requests_under_way gauge",
            f"discreet_requests_under_way {self.under_way}",
            "# HELP discreet_reloads_total Models that were replaced while serving.",
            "# TYPE discreet_reloads_total counter",
            f'discreet_reloads_total{{result="ok"}} {self.reloads}',
            f'discreet_reloads_total{{result="failed"}} {self.failed_reloads}',
            "# HELP discreet_workers Worker processes; all numbers are their sums.",
            "# TYPE discreet_workers gauge",
            f"discreet_workers {self.workers}",
            "# HELP discreet_items Items of each model.",
            "# TYPE discreet_items gauge",
        ]
        for name in shelf.names:
            lines.append(f'discreet_items{{model="{_quote(name)}"}} {len(shelf.get(name).scorer)}')
        return "\n".join(lines) + "\n"


class SharedCounters(Metrics):
    """Metrics of one of several workers, which add up to those of all.

    A restarted worker continues from the saved counts, because counters of Prometheus must not
    decrease.

    Parameters
    ----------
    folder : Path
        One file for each worker.
    number, workers : int
        Index of this worker, and their number.
    """

    SAVE_EVERY = 1.0  # seconds

    def __init__(self, folder: Path, number: int, workers: int) -> None:
        super().__init__()
        self.folder = folder
        self.number = number
        self.workers = workers
        self.merge(self._load(number))
        self.under_way = 0

    def total(self, shelf: Any) -> Metrics:
        """Return the totals of all workers."""
        made = super().total(shelf)
        for number in range(self.workers):
            if number != self.number:
                made.merge(self._load(number))
        return made

    async def save_regularly(self, shelf: Any) -> None:
        """Write the counts of this worker once a second, for the others, until cancelled."""
        try:
            while True:
                await asyncio.sleep(self.SAVE_EVERY)
                self.save(shelf)
        finally:
            self.save(shelf)

    def save(self, shelf: Any) -> None:
        """Write the counts of this worker."""
        own = Metrics.total(self, shelf)
        value = {
            "requests": [[*key, count] for key, count in own.requests.items()],
            "classes": [[*key, count] for key, count in own.classes.items()],
            "seconds": own.seconds,
            "under_way": own.under_way,
            "reloads": [own.reloads, own.failed_reloads],
        }
        unfinished = self.folder / f"{self.number}.new"
        with contextlib.suppress(OSError):  # the service goes on without metrics
            unfinished.write_text(json.dumps(value))
            os.replace(unfinished, self._path(self.number))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.json"

    def _load(self, number: int) -> Metrics:
        made = Metrics()
        try:
            value = json.loads(self._path(number).read_text())
        except (OSError, ValueError):  # it has saved no counts yet
            return made
        made.requests.update({(route, status): count for route, status, count in value["requests"]})
        made.classes.update({(route, at): count for route, at, count in value["classes"]})
        made.seconds.update(value["seconds"])
        made.under_way = value["under_way"]
        made.reloads, made.failed_reloads = value["reloads"]
        return made


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
