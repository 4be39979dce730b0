"""Everything that /metrics shows, in a registry of its own."""

import platform
from collections import Counter as Tally
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

from closeknit.api.names import ConditionReason, ConditionType, EndReason
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob_status import State, TrainingJobStatus
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.kinds import ClusterObject
from closeknit.controller.leader.leadership import Leadership
from closeknit.controller.sight import Sight
from closeknit.kube.api import Resource
from closeknit.kube.reflector import Reflector
from closeknit.lifecycle.status.conditions import found
from closeknit.lifecycle.status.lost_time import STARTING
from closeknit.lifecycle.topology_status import is_silent
from closeknit.lifecycle.writes.plan import Plan
from closeknit.placement.fragmentation import Fragmentation

OTHER = "Other"
_REASONS = frozenset(ConditionReason)
_CAUSES = frozenset({*EndReason, STARTING})
GPU_STATES = ("free", "held", "unusable", "excluded")


@dataclass(frozen=True, slots=True)
class Totals:
    """What is counted over a whole cluster."""

    jobs: Tally[State]
    gpus: Tally[str]
    """By state."""
    degraded: Tally[str]
    """Those that hold GPUs, by the reason of their condition Degraded."""
    silent_agents: int
    """Nodes that are left out because their agent is silent."""


class Metrics:
    """The operator's metrics. Labels come from closed lists: what tenants or webhooks write is no label's value, for
    each of their words would be one more series, here and in whatever scrapes this. Levels are an admin's words."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        labels = ("version", "python")
        build = Gauge("closeknit_build_info", "Always 1; the labels tell the build.", labels, registry=registry)
        build.labels(version("closeknit"), platform.python_version()).set(1)
        self._leader = Gauge(
            "closeknit_leader_status",
            "1 where this replica leads, 0 where it stands by.",
            registry=registry,
        )
        self._jobs = Gauge("closeknit_jobs", "TrainingJobs by state.", ("state",), registry=registry)
        self._degraded = Gauge(
            "closeknit_degraded_jobs",
            "Jobs that hold GPUs and lack something, by the reason of their condition Degraded.",
            ("reason",),
            registry=registry,
        )
        self._attempts = Counter(
            "closeknit_placement_attempts",
            "Placement decisions that were stored: placed, or refused for a reason that was not the stored one.",
            ("result", "reason"),
            registry=registry,
        )
        self.cycle = Histogram(
            "closeknit_scheduling_cycle_duration_seconds",
            "Time of one decision over the whole queue, without writes.",
            registry=registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
        )
        self.loop_lag = Histogram(
            "closeknit_event_loop_lag_seconds",
            "How much later than asked the event loop came to a timer: what watches, writes and probes wait, too.",
            registry=registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
        )
        self._gpus = Gauge(
            "closeknit_gpus",
            "GPUs by state: free, held by anybody, unusable (broken, or not to be given), or excluded with their node.",
            ("state",),
            registry=registry,
        )
        self._silent = Gauge(
            "closeknit_silent_agents",
            "Nodes that get no job because their agent has given no sign of life for 15 min.",
            registry=registry,
        )
        self._largest = Gauge(
            "closeknit_largest_gang_gpus",
            "GPUs of the largest gang that could be placed now inside one domain of a level; an empty level: anywhere.",
            ("level",),
            registry=registry,
        )
        self._islands = Gauge(
            "closeknit_free_islands",
            "NVLink islands of free GPUs by how many GPUs each has.",
            ("size",),
            registry=registry,
        )
        self._broken = Gauge(
            "closeknit_free_gpus_of_partly_used_nodes",
            "Free GPUs on nodes that are not free as a whole.",
            registry=registry,
        )
        self._quality = Histogram(
            "closeknit_placement_quality_ratio",
            "Predicted to ideal bus bandwidth of each booking.",
            registry=registry,
            buckets=(0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1),
        )
        self._restarts = Counter(
            "closeknit_job_restarts",
            "Times that a gang was to start again, by why its run ended, and whether in the same Pods.",
            ("reason", "in_place"),
            registry=registry,
        )
        self._phases = Histogram(
            "closeknit_restart_phase_seconds",
            "Time from a fault until the gang ran again, by phase: detect, decide, free, bind, start.",
            ("phase",),
            registry=registry,
            buckets=(1, 2, 4, 8, 15, 30, 60, 120, 300, 900, 3600),
        )
        self._lost = Counter(
            "closeknit_lost_gpu_seconds",
            "GPU-seconds that booked jobs did not train, by why the run before had ended; Starting: before the first.",
            ("reason",),
            registry=registry,
        )
        self._age = Gauge(
            "closeknit_reflector_last_event_age_seconds",
            "Seconds since the API server last said anything about a resource, bookmarks included.",
            ("resource",),
            registry=registry,
        )
        self._quarantined = Gauge(
            "closeknit_unreadable_objects",
            "Objects that cannot be read at the moment and are left out; those without a readable name count as one.",
            ("resource",),
            registry=registry,
        )
        self.api_writes = Counter(
            "closeknit_api_writes",
            "Writes sent to the API server; code is ok or the kind of the refusal, for example Conflict.",
            ("verb", "resource", "code"),
            registry=registry,
        )
        self.broken_decisions = Counter(
            "closeknit_broken_decisions",
            "Decisions about one job, its writes, or searches for its nearest changes, that a mistake of ours broke.",
            registry=registry,
        )

    def watch(self, sight: Sight) -> None:
        """Shows the age of each stream, and what it cannot read, from now on."""
        for source, reflector in sight.reflectors.items():
            self._age.labels(source.value).set_function(partial(_silence_s, reflector))
            self._quarantined.labels(source.value).set_function(partial(_unreadable, reflector))

    def watch_leader(self, leadership: Leadership) -> None:
        """Shows from now on whether this process leads."""
        self._leader.set_function(lambda: float(leadership.holds))

    def count_write(self, verb: str, resource: Resource, code: str) -> None:
        """Counts one write that was sent."""
        self.api_writes.labels(verb, str(resource), code).inc()

    def stored(self, plan: Plan, before: TrainingJobStatus) -> None:
        """Counts a decision whose status is stored now."""
        status = plan.status
        if status is None:
            return
        if status.placement is not None and before.placement is None:
            self._attempts.labels("placed", "").inc()
            predicted, ideal = status.placement.predicted_bus_bandwidth_gb_s, status.placement.ideal_bus_bandwidth_gb_s
            if predicted is not None and ideal:
                self._quality.observe(predicted / ideal)
        elif status.pending is not None and (before.pending is None or before.pending.reason != status.pending.reason):
            self._attempts.labels("refused", status.pending.reason).inc()

        self._count_restart(status, before)

    def _count_restart(self, status: TrainingJobStatus, before: TrainingJobStatus) -> None:
        """Counts what the new status says of ends and runs that the one before did not."""
        last = status.attempts[-1] if status.attempts else None
        if last is not None and (status.restarts or 0) > (before.restarts or 0):
            self._restarts.labels(_end(last.reason), "true" if last.in_place else "false").inc()
        was = before.attempts[-1].phases if before.attempts else None
        was_stepped = was is not None and was.first_step is not None
        if last is not None and last.phases is not None and last.phases.start and not (was is not None and was.start):
            for phase, length in last.phases.wire().items():
                self._phases.labels(phase).observe(duration_s(length))
        elif last is not None and last.phases is not None and (step := last.phases.first_step) and not was_stepped:
            self._phases.labels("firstStep").observe(duration_s(step))
        if status.cost is not None and status.cost is not before.cost:
            known = before.cost.lost_gpu_seconds if before.cost is not None else {}
            for reason, lost in status.cost.lost_gpu_seconds.items():
                self._lost.labels(_end(reason)).inc(max(0, lost - known.get(reason, 0)))

    def show(self, totals: "Totals") -> None:
        """Sets the gauges that speak of the whole cluster."""
        for state in State:
            self._jobs.labels(state.value).set(totals.jobs[state])
        self._degraded.clear()
        for reason, count in sorted(totals.degraded.items()):
            self._degraded.labels(reason).set(count)
        for state_name in GPU_STATES:
            self._gpus.labels(state_name).set(totals.gpus[state_name])
        self._silent.set(totals.silent_agents)

    def show_free(self, free: Fragmentation) -> None:
        """Sets the gauges that say how scattered free GPUs are."""
        self._largest.clear()
        for level, gpus in {"": free.largest_gang, **free.largest_inside}.items():
            self._largest.labels(level).set(gpus)
        self._islands.clear()
        for size, count in free.islands.items():
            self._islands.labels(size).set(count)
        self._broken.set(free.broken_gpus)


def totals(cluster: Cluster) -> Totals:
    """Counts every job and node: some ten milliseconds on a large cluster, and nothing for the event loop."""
    jobs = Tally(job.status.state or State.QUEUED for job in cluster.jobs.values())
    held = (job for job in cluster.jobs.values() if cluster.booking_of(job.key) is not None)
    lacking = (found(job.status.conditions, ConditionType.DEGRADED) for job in held)
    degraded = Tally(_closed(each.reason) for each in lacking if each is not None and each.status == "True")
    gpus = Tally[str]()
    for view in cluster.nodes.values():
        known = len(view.machine.gpus) if view.machine else 0
        if view.exclusion is not None:
            gpus["excluded"] += known
            continue
        # It may be unknown which of a device plugin's GPUs are held, or which it would give.
        unnamed = min(len(view.free), view.plugin.unnamed) if view.plugin else 0
        taken = len(view.usable) - len(view.free) + unnamed
        gpus["free"] += view.free_gpus
        gpus["held"] += taken
        gpus["unusable"] += known - view.free_gpus - taken
    return Totals(jobs, gpus, degraded, sum(map(is_silent, cluster.nodes.values())))


def _closed(reason: str) -> str:
    """The reason of a stored condition where it is one of ours."""
    return reason if reason in _REASONS else OTHER


def _end(reason: str) -> str:
    """The cause of lost time where it is one of ours."""
    return reason if reason in _CAUSES else OTHER


def _silence_s(reflector: Reflector[ClusterObject]) -> float:
    return reflector.last_activity_s


def _unreadable(reflector: Reflector[ClusterObject]) -> float:
    return len(reflector.quarantined)
