"""What the service counts of itself, in the text format of Prometheus: never an item, a history or an address."""

from __future__ import annotations

from collections import Counter
from typing import Any

#: Upper ends of the classes of the histogram, in seconds.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Counters:
    """Requests by route and status, how long they took, and how many are under way."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.classes: Counter[tuple[str, int]] = Counter()
        self.seconds: Counter[str] = Counter()  # type: ignore[assignment]
        self.under_way = 0

    def add(self, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self.requests[route, status] += 1
        self.classes[route, next((at for at, end in enumerate(SECONDS) if seconds <= end), len(SECONDS))] += 1
        self.seconds[route] += seconds  # type: ignore[assignment]

    def text(self, shelf: Any) -> str:
        """Everything, as Prometheus reads it."""
        lines = [
            "# HELP discreet_requests_total Requests answered, by route and status.",
            "# TYPE discreet_requests_total counter",
        ]
        for (route, status), count in sorted(self.requests.items()):
            lines.append(f'discreet_requests_total{{route="{route}",status="{status}"}} {count}')
        lines += [
            "# HELP discreet_request_seconds How long answers took.",
            "# TYPE discreet_request_seconds histogram",
        ]
        for route in sorted(self.seconds):
            total = 0
            for at, end in enumerate((*SECONDS, "+Inf")):
                total += self.classes[route, at]
                lines.append(f'discreet_request_seconds_bucket{{route="{route}",le="{end}"}} {total}')
            lines.append(f'discreet_request_seconds_sum{{route="{route}"}} {self.seconds[route]:.6f}')
            lines.append(f'discreet_request_seconds_count{{route="{route}"}} {total}')
        lines += [
            "# HELP discreet_requests_under_way Requests being answered.",
            "# TYPE discreet_requests_under_way gauge",
            f"discreet_requests_under_way {self.under_way}",
            "# HELP discreet_reloads_total Models that were replaced while serving.",
            "# TYPE discreet_reloads_total counter",
            f'discreet_reloads_total{{result="ok"}} {shelf.reloads}',
            f'discreet_reloads_total{{result="failed"}} {shelf.failed_reloads}',
            "# HELP discreet_items Items of each model.",
            "# TYPE discreet_items gauge",
        ]
        for name in shelf.names:
            lines.append(f'discreet_items{{model="{_quoted(name)}"}} {len(shelf.get(name).scorer)}')
        return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
