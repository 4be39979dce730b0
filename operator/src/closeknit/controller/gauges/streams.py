"""What /metrics says of the streams by which the operator follows the API server: read from the reflectors themselves,
which count anyway."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from closeknit.cluster.store.kinds import ClusterObject, Stream
from closeknit.kube.reflector import Reflector


class StreamCollector(Collector):
    """Shows reflectors. What is unreadable is told by the leader alone, or a sum over replicas would count it twice."""

    def __init__(
        self,
        registry: CollectorRegistry,
        reflectors: Callable[[], Mapping[Stream, Reflector[ClusterObject]]],
        leads: Callable[[], bool],
    ) -> None:
        self._reflectors = reflectors
        self._leads = leads
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The families as they are now."""
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
        leads = self._leads()
        for source, reflector in self._reflectors().items():
            age.add_metric((source.value,), reflector.last_activity_s)
            lists.add_metric((source.value,), reflector.relists_total)
            errors.add_metric((source.value,), reflector.watch_errors_total)
            unreadable.add_metric((source.value,), len(reflector.quarantined) if leads else 0)
        return (age, lists, errors, unreadable)

    def describe(self) -> Iterable[Metric]:
        """The families without values."""
        return ()
