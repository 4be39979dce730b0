"""What /metrics says of the streams by which the operator follows the API server: read from the reflectors themselves,
which count anyway."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from closeknit.cluster.store.watched_kinds import ClusterObject, Stream
from closeknit.kube.reflector import Reflector


class _Seen(NamedTuple):
    """One reflector, as it was when somebody looked."""

    age_s: float
    relists: int
    errors: int
    unreadable: int


class StreamCollector(Collector):
    """Shows reflectors as they were at the last `look`, for they belong to the event loop, and a scrape is written by a
    thread. What is unreadable is told by the leader alone, or a sum over replicas would count it twice."""

    def __init__(
        self,
        registry: CollectorRegistry,
        reflectors: Callable[[], Mapping[Stream, Reflector[ClusterObject]]],
        leads: Callable[[], bool],
    ) -> None:
        self._reflectors = reflectors
        self._leads = leads
        self._seen: Mapping[Stream, _Seen] = {}
        registry.register(self)

    def look(self) -> None:
        """Takes in how the reflectors are now. On the event loop."""
        leads = self._leads()
        self._seen = {
            source: _Seen(
                reflector.last_activity_s,
                reflector.relists_total,
                reflector.watch_errors_total,
                len(reflector.quarantined) if leads else 0,
            )
            for source, reflector in self._reflectors().items()
        }

    def collect(self) -> Iterable[Metric]:
        """The families as they were then."""
        label = ("resource",)
        age = GaugeMetricFamily(
            "closeknit_reflector_last_event_age_seconds",
            "Seconds since the API server last said anything about a resource to this replica, bookmarks included.",
            labels=label,
        )
        lists = CounterMetricFamily(
            "closeknit_reflector_relists",
            "Times that this replica had to list a resource again, because its watch could not be resumed.",
            labels=label,
        )
        errors = CounterMetricFamily(
            "closeknit_reflector_errors", "Lists and watches of a resource that failed in this replica.", labels=label
        )
        unreadable = GaugeMetricFamily(
            "closeknit_unreadable_objects",
            "Objects that cannot be read at the moment and are left out; those without a readable name count as one.",
            labels=label,
        )
        for source, seen in self._seen.items():
            age.add_metric((source.value,), seen.age_s)
            lists.add_metric((source.value,), seen.relists)
            errors.add_metric((source.value,), seen.errors)
            unreadable.add_metric((source.value,), seen.unreadable)
        return (age, lists, errors, unreadable)

    def describe(self) -> Iterable[Metric]:
        """The families without values."""
        return ()
