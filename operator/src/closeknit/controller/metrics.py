"""Everything that /metrics shows, in a registry of its own."""

import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionReason, ConditionType, EndReason, ExclusionReason, PendingReason
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob_status import EndedAttempt, Phases, State, TrainingJobStatus
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.pods.pod import Pod
from closeknit.controller.gauges.ranks import RankInfo
from closeknit.controller.gauges.streams import StreamCollector
from closeknit.controller.gauges.totals import (
    GPU_STATES,
    LEMONS,
    VERIFICATIONS,
    WAITING_REASONS,
    Totals,
)
from closeknit.controller.leader.leadership import Leadership
from closeknit.controller.watched_cluster import WatchedCluster
from closeknit.kube.api import Resource
from closeknit.lifecycle.overview.counts import OTHER, waits_since
from closeknit.lifecycle.status.conditions import found, is_true
from closeknit.lifecycle.status.lost_time import STARTING, launch, runs_first
from closeknit.lifecycle.status.pauses import later
from closeknit.lifecycle.writes.plan import Plan
from closeknit.placement.fragmentation import Fragmentation

SEARCH_BUDGET = "SearchBudget"
"""The fallback of a placement whose search ended at its budget of steps."""
_CAUSES = frozenset({*EndReason, STARTING})
_PENDING = frozenset(PendingReason)
_LACKS = frozenset(ConditionReason)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_START_S = (1, 2, 4, 8, 15, 30, 60, 120, 300, 900, 3600)
_WAIT_S = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 3 * 24 * 3600)


def utc_now() -> datetime:
    """The moment, in UTC."""
    return datetime.now(UTC)


class Metrics:
    """The operator's metrics. Labels come from closed lists: what tenants or webhooks write is no label's value, for
    each of their words would be one more series, here and in whatever scrapes this. Levels are an admin's words. Only
    closeknit_rank_info, which is bounded as a whole, has names of jobs.

    What is said of the cluster and of decisions is said by the leader alone, so that a sum over replicas counts it
    once: who stands by decides nothing, and is shown no totals.
    """

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self.registry = CollectorRegistry()
        self._now = now
        self._ranks = RankInfo(0, b"")
        self._oldest_wait: datetime | None = None
        self._streams: StreamCollector | None = None
        ProcessCollector(registry=self.registry)
        labels = ("version", "python")
        build = self._gauge("closeknit_build_info", "Always 1; the labels tell the build.", *labels)
        build.labels(version("closeknit"), platform.python_version()).set(1)
        self._leader = self._gauge("closeknit_leader_status", "1 where this replica leads, 0 where it stands by.")
        self._of_the_cluster()
        self._of_decisions()
        self._of_runs()
        self._of_the_process()
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Makes the series of closed lists, for a rate does not see a counter that begins with 1."""
        self._attempts.labels("placed", "")
        for waits in (*sorted(_PENDING), OTHER):
            self._attempts.labels("refused", waits)
        for cause in (*sorted(_CAUSES), OTHER):
            self._lost.labels(cause)
            if cause != STARTING:
                self._ended.labels(cause)
                self._restarts.labels(cause, "true")
                self._restarts.labels(cause, "false")
        for phase in Phases.model_fields:
            self._phases.labels(phase)
        for phase in ("free", "bind", "start"):
            self._starts.labels(phase)

    def _of_the_cluster(self) -> None:
        self._jobs = self._gauge("closeknit_jobs", "TrainingJobs by state.", "state")
        self._waiting = self._gauge(
            "closeknit_waiting_jobs",
            "TrainingJobs that wait for GPUs, by why, as status.pending.reason says; Undecided: submitted just now.",
            "reason",
        )
        self._waiting_gpus = self._gauge("closeknit_waiting_gpus", "GPUs that the waiting TrainingJobs ask for.")
        self._gauge(
            "closeknit_oldest_wait_seconds",
            "How long the TrainingJob has waited that has waited longest; 0 where none waits.",
        ).set_function(self._oldest_wait_s)
        self._degraded = self._gauge(
            "closeknit_degraded_jobs",
            "Jobs that hold GPUs and lack something, by the reason of their condition Degraded.",
            "reason",
        )
        self._verified = self._gauge(
            "closeknit_verified_jobs",
            "Jobs that hold GPUs by whether their Pods got the planned ones: Verified, NotReported, or Mismatch.",
            "result",
        )
        self._gpus = self._gauge(
            "closeknit_gpus",
            "GPUs by state: free, held by anybody, mig (in MIG mode), unusable (broken, not to be given), or excluded.",
            "state",
        )
        self._nodes = self._gauge("closeknit_nodes", "Nodes with GPUs, excluded ones among them.")
        self._excluded = self._gauge(
            "closeknit_excluded_nodes",
            "Nodes with GPUs that get no job, by why; NoTopology: no node agent has reported.",
            "reason",
        )
        self._silent = self._gauge(
            "closeknit_silent_agents",
            "Nodes that get no job because their agent has given no sign of life for 15 min.",
        )
        self._lemons = self._gauge(
            "closeknit_lemons",
            "Nodes, and single GPUs of other nodes, by which runs ended again and again: jobs avoid them if they can.",
            "kind",
        )
        self._largest = self._gauge(
            "closeknit_largest_gang_gpus",
            "GPUs of the largest gang that could be placed now inside one domain of a level; an empty level: anywhere.",
            "level",
        )
        self._islands = self._gauge(
            "closeknit_free_islands", "NVLink islands of free GPUs by how many GPUs each has.", "size"
        )
        self._broken = self._gauge(
            "closeknit_free_gpus_of_partly_used_nodes", "Free GPUs on nodes that are not free as a whole."
        )
        self._shown_ranks = self._gauge(
            "closeknit_ranks",
            "Ranks whose Pod is bound to a node. closeknit_rank_info is left out while they are more than its limit.",
        )

    def _of_decisions(self) -> None:
        self._attempts = self._counter(
            "closeknit_placement_attempts",
            "Placement decisions that were stored: placed, or refused for a reason that was not the stored one.",
            "result",
            "reason",
        )
        self.cycle = self._histogram(
            "closeknit_scheduling_cycle_duration_seconds",
            "Time of one decision over the whole queue, without writes.",
            _SECONDS,
        )
        self._wait = self._histogram(
            "closeknit_job_wait_seconds",
            "Time that a job waited for GPUs, from its submission, or the loss of its former ones, to its booking.",
            _WAIT_S,
        )
        self._quality = self._histogram(
            "closeknit_placement_quality_ratio",
            "Predicted bus bandwidth of each booking to the best that this cluster could give if it were empty.",
            (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1),
        )
        self._domains = self._histogram(
            "closeknit_placement_domains",
            "How many domains of a level, racks say, each booking spans: 1 is best.",
            (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512),
            "level",
        )
        self._fallbacks = self._counter(
            "closeknit_fallbacks",
            "Times that a gang got less than it could have: the reason of its condition Degraded, or SearchBudget "
            "where a search for its place ended at its budget.",
            "reason",
        )
        self._mismatches = self._counter(
            "closeknit_placement_mismatches", "Gangs whose Pods were found to have other GPUs than planned."
        )
        self.broken_decisions = self._counter(
            "closeknit_broken_decisions",
            "Decisions about one job, its writes, or searches for its nearest changes, that a mistake of ours broke.",
        )

    def _of_runs(self) -> None:
        self._starts = self._histogram(
            "closeknit_gang_start_phase_seconds",
            "Time from a job's first booking until all its ranks ran, by phase: free (until its first Pod was made), "
            "bind (until the last was bound), start (until all ran).",
            _START_S,
            "phase",
        )
        self._ended = self._counter(
            "closeknit_attempts_ended", "Ends of a gang's runs, by why, those with success among them.", "reason"
        )
        self._restarts = self._counter(
            "closeknit_job_restarts",
            "Times that a gang was to start again, by why its run ended, and whether in the same Pods.",
            "reason",
            "in_place",
        )
        self._phases = self._histogram(
            "closeknit_restart_phase_seconds",
            "Time from a fault until the gang ran again, by phase: detect, decide, free, bind, start; and first_step, "
            "from then until the first sign of progress.",
            _START_S,
            "phase",
        )
        self._lost = self._counter(
            "closeknit_lost_gpu_seconds",
            "GPU-seconds that booked jobs did not train, by why the run before had ended; Starting: before the first.",
            "reason",
        )

    def _of_the_process(self) -> None:
        self.loop_lag = self._histogram(
            "closeknit_event_loop_lag_seconds",
            "How much later than asked the event loop came to a timer: what watches, writes and probes wait, too.",
            _SECONDS,
        )
        self._requests = self._counter(
            "closeknit_api_requests",
            "Requests to the API server; code is ok or the kind of the error, for example Conflict.",
            "verb",
            "resource",
            "code",
        )
        self._request_s = self._histogram(
            "closeknit_api_request_duration_seconds",
            "Time until the API server answered; of a watch until it was accepted.",
            (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            "verb",
        )
        self.api_writes = self._counter(
            "closeknit_api_writes",
            "Writes that decisions sent, dry runs among them; code is ok or the kind of the refusal.",
            "verb",
            "resource",
            "code",
        )

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(name, help_text, labels, registry=self.registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, help_text, labels, registry=self.registry, buckets=buckets)

    @property
    def text(self) -> bytes:
        """What a scrape gets besides the registry: lines that are written already."""
        return self._ranks.text

    def watch(self, watched: WatchedCluster, leadership: Leadership) -> None:
        """Shows the streams, and whether this process leads, from now on."""
        self._streams = StreamCollector(self.registry, lambda: watched.reflectors, lambda: leadership.holds)
        self._leader.set_function(lambda: float(leadership.holds))

    async def refresh(self) -> None:
        """Takes in what belongs to the event loop, before a scrape is written."""
        if self._streams is not None:
            self._streams.look()

    def count_write(self, verb: str, resource: Resource, code: str) -> None:
        """Counts one write that was sent."""
        self.api_writes.labels(verb, str(resource), code).inc()

    def count_request(self, verb: str, resource: Resource, code: str, seconds: float) -> None:
        """Counts one request, and its time."""
        self._requests.labels(verb, str(resource), code).inc()
        self._request_s.labels(verb).observe(seconds)

    def stored(self, plan: Plan, job: TrainingJob | InvalidJob, pods: Sequence[Pod] = ()) -> None:
        """Counts a decision whose status is stored now. `job` is as it was before, `pods` are those of its name."""
        status, before = plan.status, job.status
        if status is None:
            return
        if status.placement is not None and before.placement is None:
            self._count_booking(status, job)
        elif status.pending is not None and (before.pending is None or before.pending.reason != status.pending.reason):
            reason = status.pending.reason
            self._attempts.labels("refused", reason if reason in _PENDING else OTHER).inc()
        self._count_findings(status, before)
        self._count_end(status, before)
        self._count_run(status, before, [pod for pod in pods if pod.attempt == status.attempt])
        if status.cost is not None and status.cost is not before.cost:
            known = before.cost.lost_gpu_seconds if before.cost is not None else {}
            for cause, lost in status.cost.lost_gpu_seconds.items():
                self._lost.labels(_end(cause)).inc(max(0, lost - known.get(cause, 0)))

    def _count_booking(self, status: TrainingJobStatus, job: TrainingJob | InvalidJob) -> None:
        booked = status.placement
        assert booked is not None  # noqa: S101 - the caller's promise, for the type checker
        self._attempts.labels("placed", "").inc()
        predicted, ideal = booked.predicted_bus_bandwidth_gb_s, booked.ideal_bus_bandwidth_gb_s
        if predicted is not None and ideal:
            self._quality.observe(predicted / ideal)
        for level, domains in (booked.levels or {}).items():
            self._domains.labels(level).observe(domains)
        if booked.ended_at_budget:
            self._fallbacks.labels(SEARCH_BUDGET).inc()
        now = self._now()
        last = job.status.attempts[-1] if job.status.attempts else None
        since = waits_since(job, now)
        if job.status.pending is None and last is not None:
            since = later(last.ended, since, now)
        if since is not None:
            self._wait.observe(max(0.0, (now - since).total_seconds()))

    def _count_findings(self, status: TrainingJobStatus, before: TrainingJobStatus) -> None:
        """What the gang lacks since this status."""
        lacks, lacked = (found(each.conditions, ConditionType.DEGRADED) for each in (status, before))
        if lacks is not None and lacks.status == "True":
            known = lacked.reason if lacked is not None and lacked.status == "True" else None
            if lacks.reason != known:
                self._fallbacks.labels(lacks.reason if lacks.reason in _LACKS else OTHER).inc()
        has_others, had_others = (_is_mismatched(each) for each in (status, before))
        if has_others and not had_others:
            self._mismatches.inc()

    def _count_end(self, status: TrainingJobStatus, before: TrainingJobStatus) -> None:
        """Ends that the status before did not have: its last, of which one may be rewritten as the gang runs again. The
        end by a growth in place counts once that cannot be taken back any more."""
        open_now, open_before = _open_growth(status), _open_growth(before)
        known = {_identity(each) for each in before.attempts if each is not open_before}
        new = [each for each in status.attempts if _identity(each) not in known and each is not open_now]
        for each in new:
            self._ended.labels(_end(each.reason)).inc()
        last = status.attempts[-1] if status.attempts else None
        has_grown = open_before is not None and _identity(open_before) in map(_identity, new)
        counted = [open_before] if open_before is not None and has_grown else []
        if last is not None and last is not open_now and (status.restarts or 0) > (before.restarts or 0):
            counted.append(last)
        for each in counted:
            self._restarts.labels(_end(each.reason), "true" if each.in_place else "false").inc()

    def _count_run(self, status: TrainingJobStatus, before: TrainingJobStatus, pods: Sequence[Pod]) -> None:
        """Where the time went of a gang that has begun to run."""
        last, was = (each.attempts[-1].phases if each.attempts else None for each in (status, before))
        if last is not None and last.start:
            known = _lengths(was) if was is not None and was.start else {}
            for phase, length in _lengths(last).items():
                if phase not in known:
                    self._phases.labels(phase).observe(duration_s(length))
        if is_true(status.conditions, ConditionType.RUNNING):
            now = self._now()
            first = runs_first(before, launch(pods, now), now)
            for phase, length in _lengths(first).items() if first is not None else ():
                self._starts.labels(phase).observe(duration_s(length))

    def show(self, totals: Totals) -> None:
        """Sets the gauges that speak of the whole cluster."""
        for state in State:
            self._jobs.labels(state.value).set(totals.jobs[state])
        for reason in WAITING_REASONS:
            self._waiting.labels(reason).set(totals.waiting[reason])
        self._waiting_gpus.set(totals.waiting_gpus)
        self._oldest_wait = totals.oldest_wait
        self._degraded.clear()
        for lack, count in sorted(totals.degraded.items()):
            self._degraded.labels(lack).set(count)
        for result in VERIFICATIONS:
            self._verified.labels(result.value).set(totals.verified[result.value])
        for state_name in GPU_STATES:
            self._gpus.labels(state_name).set(totals.gpus[state_name])
        self._nodes.set(totals.nodes)
        for why in ExclusionReason:
            self._excluded.labels(why.value).set(totals.excluded[why])
        self._silent.set(totals.silent_agents)
        for kind in LEMONS:
            self._lemons.labels(kind).set(totals.lemons[kind])

    def show_ranks(self, ranks: RankInfo) -> None:
        """Shows which rank has which GPU."""
        self._ranks = ranks
        self._shown_ranks.set(ranks.ranks)

    def show_free(self, free: Fragmentation) -> None:
        """Sets the gauges that say how scattered free GPUs are."""
        self._largest.clear()
        for level, gpus in {"": free.largest_gang, **free.largest_inside}.items():
            self._largest.labels(level).set(gpus)
        for level in free.largest_inside:
            self._domains.labels(level)
        self._islands.clear()
        for size, count in free.islands.items():
            self._islands.labels(str(size)).set(count)
        self._broken.set(free.broken_gpus)

    def _oldest_wait_s(self) -> float:
        since = self._oldest_wait
        return 0.0 if since is None else max(0.0, (self._now() - since).total_seconds())


def _end(reason: str) -> str:
    """The cause of lost time where it is one of ours."""
    return reason if reason in _CAUSES else OTHER


def _open_growth(status: TrainingJobStatus) -> EndedAttempt | None:
    """The last end, by a growth in place whose new Pods are to come; None of any other."""
    last = status.attempts[-1] if status.attempts else None
    is_swapping = status.placement is not None and bool(status.placement.swapping)
    return last if is_swapping and last is not None and last.reason == EndReason.GROWN else None


def _identity(ended: EndedAttempt) -> tuple[int, str, str]:
    return ended.number, ended.ended, ended.reason


def _is_mismatched(status: TrainingJobStatus) -> bool:
    verified = found(status.conditions, ConditionType.PLACEMENT_VERIFIED)
    return verified is not None and verified.reason == ConditionReason.MISMATCH


def _lengths(phases: Phases) -> dict[str, str]:
    return {phase: length for phase, length in phases if length is not None}
