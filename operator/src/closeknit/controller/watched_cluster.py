"""What the operator sees: a reflector for each stream of objects, and the Cluster that follows them."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from datetime import datetime
from functools import partial

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.job import InvalidJob, is_whole, without_templates
from closeknit.cluster.capacity.placeholder import CapacityRefusal, FirstAsk
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.kueue.flavors import ServedKind
from closeknit.cluster.kueue_objects import WORKLOADS_SERVED
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.objects.silence import NODE_LEASES, POLL_S, SignsOfLife, renewal
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.requested_capacity import PROVISIONING_SERVED
from closeknit.cluster.store.watched_kinds import BY_STREAM, KINDS, ClusterObject, Kind, ObjectChange, Stream
from closeknit.controller.templates import Templates
from closeknit.controller.worker import Worker
from closeknit.controller.writes.resources import TRAINING_JOBS
from closeknit.kube.api import Api, Key, Resource
from closeknit.kube.errors import ApiError, NotFound
from closeknit.kube.lease import LEASES, counted
from closeknit.kube.reflector import Event, Reflector
from closeknit.machine.graph import Machine

KNOWN_MACHINES = 1024  # kinds of machines; more of them than any site has, and a bound for invented ones
# What a leader writes, and his successor must have seen before he gives any of it away.
WRITTEN = (Stream.TRAINING_JOBS, Stream.CHILD_PODS, Stream.RESOURCE_CLAIMS)
# What is heard of the Pods and claims of a job that is being written changes nothing before all is written, but that
# one may have ended and its node be free: that is looked at with whatever else comes, or so much later.
UNHURRIED_S = 1.0

_log = logging.getLogger(__name__)


class WatchedCluster:
    """Keeps up with the API server in `run`; `on_change` is called after every batch of changes, and must be quick: at
    once, or after UNHURRIED_S where all of them are of the Pods and claims of jobs that are assumed.

    A job that is `assumed` is shown as given, whatever its stream says, until it is `settled`.
    """

    def __init__(
        self, api: Api, on_change: Callable[[], None], sidecar_image: str = "", *, force_deletes: bool = False
    ) -> None:
        self.reflectors: Mapping[Stream, Reflector[ClusterObject]] = {
            kind.stream: self._reflector(api, kind, self._job if kind.stream is Stream.TRAINING_JOBS else kind.decode)
            for kind in KINDS
        }
        self.cluster = Cluster.empty(sidecar_image, force_deletes=force_deletes)
        """As of the last look."""
        self._ahead: Cluster | None = None
        self._api = api
        self._templates = Templates()
        self._on_change = on_change
        self._changes: list[ObjectChange] = []
        self._assumed: set[JobKey] = set()
        self._machines: dict[str, Machine | None] = {}
        self._later: asyncio.TimerHandle | None = None

    @property
    def is_synced(self) -> bool:
        """Whether every stream was read completely once."""
        return all(reflector.synced.is_set() for reflector in self.reflectors.values())

    @property
    def highest_epoch(self) -> int:
        """The highest with which a job that is shown was booked; 0 without any."""
        jobs = self.reflectors[Stream.TRAINING_JOBS].objects.values()
        return max((counted(job.status.epoch) for job in jobs if isinstance(job, TrainingJob | InvalidJob)), default=0)

    async def synced(self) -> None:
        """Returns once every stream was read completely."""
        for reflector in self.reflectors.values():
            await reflector.synced.wait()

    async def catch_up(self) -> None:
        """Returns once the next look shows all bookings, Pods and claims that were written before the call."""
        async with asyncio.TaskGroup() as readers:
            for source in WRITTEN:
                readers.create_task(self.reflectors[source].read_again(), name=f"catching up with {source}")

    async def look(self, worker: Worker, now: datetime) -> Cluster:
        """The cluster as the streams have shown it by the moment of asking, judged at `now`. One look at a time."""
        changes, self._changes = self._changes, []
        before, self._ahead = self._ahead or self.cluster, None
        if changes:
            self.cluster = await worker.run(lambda: before.after(changes).at(now))
        else:
            self.cluster = before.at(now)
        return self.cluster

    def assume(self, job: TrainingJob) -> None:
        """From now on the job is as given."""
        self._assumed.add(job.key)
        self._changes.append(ObjectChange(Stream.TRAINING_JOBS, (job.key.namespace, job.key.name), job))

    def go_on_from(self, booked: Cluster) -> None:
        """Has the next look follow from this: from the last one with bookings of jobs that are all assumed by now. What
        the decision has worked out of each of their nodes is not worked out again."""
        self._ahead = booked

    def note_asking(self, notes: Sequence[CapacityRefusal | FirstAsk], forgotten: Sequence[JobKey]) -> None:
        """Shows why nothing is asked of autoscalers for some jobs, or since when; of each job the last of these, and
        nothing of the forgotten ones."""
        news: dict[JobKey, CapacityRefusal | FirstAsk | None] = dict.fromkeys(forgotten)
        news.update({each.job: each for each in notes})
        if news:
            self._changes += [ObjectChange(Stream.CAPACITY_NOTES, (*job,), new) for job, new in news.items()]
            self._on_change()

    def settle(self, job: JobKey) -> None:
        """From now on the job is as its stream shows it."""
        if job in self._assumed:
            self._assumed.discard(job)
            key = Key(job.namespace, job.name)
            shown = self.reflectors[Stream.TRAINING_JOBS].objects.get(key)
            self._changes.append(ObjectChange(Stream.TRAINING_JOBS, key, shown))

    def has_seen(self, source: Stream, version: str) -> bool:
        """Whether the stream has passed this resourceVersion. Versions of one resource are decimal and count up."""
        last = self.reflectors[source].last_rv
        return not (version.isdecimal() and last.isdecimal()) or int(last) >= int(version)

    def is_there(self, job: JobKey, name: str, uid: str) -> bool:
        """Whether a Pod, or the job, of this uid is there and not being deleted."""
        pod = self.reflectors[Stream.CHILD_PODS].objects.get(Key(job.namespace, name))
        if isinstance(pod, Pod) and pod.uid == uid:
            return pod.deletion_timestamp is None
        stored = self.reflectors[Stream.TRAINING_JOBS].objects.get(Key(job.namespace, name))
        if isinstance(stored, TrainingJob) and stored.metadata.uid == uid:
            return stored.metadata.deletion_timestamp is None
        return False

    def is_shown(self, job: JobKey, name: str, uid: str) -> bool:
        """Whether its stream still shows the Pod of this uid, being deleted or not."""
        pod = self.reflectors[Stream.CHILD_PODS].objects.get(Key(job.namespace, name))
        return isinstance(pod, Pod) and pod.uid == uid

    @property
    def has_new_machine(self) -> bool:
        """Whether `new_machine` has one to give."""
        return any(machine is not None for machine in self._machines.values())

    def new_machine(self) -> Machine | None:
        """A machine of a kind that was not given before; None where there is none."""
        for kind, machine in self._machines.items():
            if machine is not None:
                self._machines[kind] = None
                return machine
        return None

    async def run(self) -> None:
        """Reads for ever."""
        async with asyncio.TaskGroup() as readers:
            for source, reflector in self.reflectors.items():
                readers.create_task(reflector.run(), name=f"reflector {source}")
            readers.create_task(self._listen(), name="leases")

    async def _listen(self) -> None:
        """Lists the Leases of kubelets again and again, and takes in which nodes are silent. Without the right, and on
        a cluster without Leases, nothing is known of that."""
        before, reported = SignsOfLife(), ""
        while True:
            try:
                page = await self._api.list(LEASES, namespace=NODE_LEASES, cached=True)
            except ApiError as error:
                if str(error) != reported:
                    _log.warning("Leases of nodes cannot be listed", extra={"error": str(error)})
                    reported = str(error)
            else:
                reported = ""
                renewals = dict(filter(None, map(renewal, page.items)))
                reports = self.reflectors[Stream.NODE_TOPOLOGIES].objects
                beats = {
                    key.name: report.heartbeat for key, report in reports.items() if isinstance(report, AgentReport)
                }
                now = before.after(renewals, beats, asyncio.get_running_loop().time())
                news = [ObjectChange(Stream.SILENCES, ("", node), new) for node, new in now.news_since(before).items()]
                before = now
                if news:
                    self._changes += news
                    self._on_change()
            await asyncio.sleep(POLL_S)

    def keep_templates(self, wanted: Collection[JobKey], unwanted: Set[JobKey]) -> None:
        """Lets those of `unwanted` jobs go, and has room for those of the `wanted` ones, which are read by `read`."""
        self._templates.wanted = wanted
        shown = self.reflectors[Stream.TRAINING_JOBS].objects
        dropped = [job for job in self._templates.counted & unwanted if job not in self._assumed]
        for job in dropped:
            found = shown.get(Key(job.namespace, job.name))
            self._templates.forget(job)
            if isinstance(found, TrainingJob):
                self._show(without_templates(found))
        if dropped:
            self._on_change()

    async def read(self, job: JobKey) -> bool:
        """Reads a job whose templates were dropped. Whether there is no more to read of it; one that has changed
        meanwhile stays as its stream shows it. Raises ApiError."""
        if not self._is_unread(job):
            return True
        try:
            document = await self._api.get(TRAINING_JOBS, job.name, namespace=job.namespace)
        except NotFound:
            return False
        read = BY_STREAM[Stream.TRAINING_JOBS].convert(document)
        shown = self.reflectors[Stream.TRAINING_JOBS].objects.get(Key(job.namespace, job.name))
        if not isinstance(read, TrainingJob) or not isinstance(shown, TrainingJob) or not self._is_unread(job):
            return False
        if read.metadata.resource_version != shown.metadata.resource_version:
            return False
        kept = self._templates.kept(read)
        if not is_whole(kept):
            return False
        self._show(kept)
        self._on_change()
        return True

    def _is_unread(self, job: JobKey) -> bool:
        """Whether the stream's copy is shown, and lacks the job's templates."""
        shown = self.reflectors[Stream.TRAINING_JOBS].objects.get(Key(job.namespace, job.name))
        return isinstance(shown, TrainingJob) and not is_whole(shown) and job not in self._assumed

    def _show(self, job: TrainingJob) -> None:
        key = Key(job.key.namespace, job.key.name)
        self.reflectors[Stream.TRAINING_JOBS].put(key, job)
        self._changes.append(ObjectChange(Stream.TRAINING_JOBS, key, job))

    def _job(self, document: bytes) -> ClusterObject | None:
        found = BY_STREAM[Stream.TRAINING_JOBS].decode(document)
        return self._templates.kept(found) if isinstance(found, TrainingJob) else found

    def _reflector(
        self, api: Api, kind: Kind, decode: Callable[[bytes], ClusterObject | None]
    ) -> Reflector[ClusterObject]:
        versions = tuple(Resource(kind.group, version, kind.plural, kind.namespaced) for version in kind.versions)
        return Reflector(
            api,
            versions if kind.may_be_unserved else versions[0],
            decode,
            partial(self._take, kind.stream),
            on_quarantine=partial(_report, kind.stream),
            on_served=partial(self._take_served, kind.plural),
            field_selector=kind.field_selector,
            label_selector=kind.label_selector,
        )

    def _take(self, source: Stream, events: Sequence[Event[ClusterObject]]) -> None:
        may_wait = bool(self._assumed)
        for event in events:
            if isinstance(event.new, TrainingJob):
                self._templates.count(event.new)
            elif source is Stream.TRAINING_JOBS:
                self._templates.forget(JobKey(*event.key))
            if source is Stream.TRAINING_JOBS and self._assumed and JobKey(*event.key) in self._assumed:
                continue
            if isinstance(event.new, AgentReport) and event.new.machine is not None:
                self._note(event.new.machine)
            self._changes.append(ObjectChange(source, (event.key.namespace, event.key.name), event.new))
            may_wait = may_wait and _job_of(event) in self._assumed
        if not may_wait:
            self._on_change()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(UNHURRIED_S, self._hurry)

    def _take_served(self, plural: str, is_served: bool) -> None:
        if plural in {WORKLOADS_SERVED, PROVISIONING_SERVED}:
            self._changes.append(ObjectChange(Stream.SERVED, ("", plural), ServedKind(plural) if is_served else None))
            self._on_change()

    def _hurry(self) -> None:
        self._later = None
        if self._changes:
            self._on_change()

    def _note(self, machine: Machine) -> None:
        if machine.topology_class not in self._machines and len(self._machines) < KNOWN_MACHINES:
            self._machines[machine.topology_class] = machine


def _job_of(event: Event[ClusterObject]) -> JobKey | None:
    """The job whose Pod or claim has changed; None of anything else."""
    changed = event.new or event.old
    return changed.job if isinstance(changed, Pod | ResourceClaim) else None


def _report(source: Stream, key: Key, reason: str) -> None:
    facts = {"resource": source, "object": str(key) or "nobody can tell which", "error": reason}
    _log.warning("an object cannot be read and is left out", extra=facts)
