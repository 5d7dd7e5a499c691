"""What the instance counts, at the price of an addition.

Here: Metrics, plain integers that the event loop and the writer add to, and the view of them that
Prometheus scrapes.
Not here: serving them (node/http.py).

Each counter has one thread that adds to it, so none needs a lock: the event loop counts what concerns
clients, the writer thread what concerns commits. A reader may see a counter a moment late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest


def _counter(help: str) -> int:
    made: int = field(default=0, metadata={"help": help, "gauge": False})
    return made


def _gauge(help: str) -> int:
    made: int = field(default=0, metadata={"help": help, "gauge": True})
    return made


@dataclass(slots=True)
class Metrics:
    """The counters of one instance since it started."""

    # Added to by the event loop.
    connections: int = _counter("Clients that connected")
    open_connections: int = _gauge("Clients that are connected")
    statements: int = _counter("Statements that were executed, failed ones too")
    errors: int = _counter("Errors that were sent to clients")
    rows: int = _counter("Rows that were sent to clients")
    point_reads: int = _counter("Reads by key that ran on the event loop")

    # Added to by the writer thread.
    group_commits: int = _counter("Transactions that the writer committed")
    grouped_statements: int = _counter("Statements in these transactions")


class MetricsView:
    """What a scrape gets. It reads the counters only when asked."""

    def __init__(self, metrics: Metrics, uptime_seconds: Callable[[], float]) -> None:
        self._metrics = metrics
        self._uptime_seconds = uptime_seconds
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        for counter in fields(Metrics):
            value: int = getattr(self._metrics, counter.name)
            family = GaugeMetricFamily if counter.metadata["gauge"] else CounterMetricFamily
            yield family(f"shoal_{counter.name}", counter.metadata["help"], value=value)
        yield GaugeMetricFamily(
            "shoal_uptime_seconds", "Seconds since the start", value=self._uptime_seconds()
        )
