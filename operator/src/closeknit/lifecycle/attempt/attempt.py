"""The current attempt of a job that holds GPUs, with its Pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

import msgspec

from closeknit.api.reasons import ConditionType, EndReason
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.booking.booking import Booking, BookingShare
from closeknit.cluster.node.mig_devices import mig_resource
from closeknit.cluster.pods.gang_runs import run_report
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.frameworks.contract import SuccessOf
from closeknit.launch.frameworks.registry import CONTRACTS
from closeknit.launch.gang import Gang
from closeknit.launch.template import trainer
from closeknit.lifecycle.attempt import launched_gang
from closeknit.lifecycle.attempt.launched_gang import Lost
from closeknit.lifecycle.attempt.own_pods import own_claim
from closeknit.lifecycle.attempt.subject import Subject
from closeknit.lifecycle.status.conditions import is_true, moment
from closeknit.lifecycle.status.pauses import is_between, later

# A Pod that somebody deletes again and again before its gang runs is made again at growing intervals.
_SHORTEST_INTERVAL = timedelta(seconds=1)
_LONGEST_INTERVAL = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt."""

    subject: Subject
    booking: Booking
    pods: tuple[Pod | None, ...] = field(init=False)
    """By node rank, then those of parameter servers, each in the phase of its trainer; None for a missing Pod."""
    present: tuple[Pod, ...] = field(init=False)
    """The existing ones."""
    phases: frozenset[str] = field(init=False)
    """Of the existing ones."""
    missing: tuple[int, ...] = field(init=False)
    """Positions among them without a Pod, except finished ones."""
    replaced: tuple[Pod, ...] = field(init=False)
    """Foreign Pods under names of the gang, owned by the job: they do not request the booked GPUs, or are on another
    node."""
    ending: tuple[Pod, ...] = field(init=False)
    """Pods that are deleted before they succeeded."""
    shares: tuple[BookingShare, ...] = field(init=False)
    """The booked shares, with those whose Pods have succeeded, which is to be stored. The same object while nothing is
    new."""
    begun: datetime | None = field(init=False)
    """When its booking was stored: the end of the last attempt, or when the job last got GPUs."""

    def __post_init__(self) -> None:
        """Reads all Pods once: a starting gang is looked at four times a second."""
        there, shares = self.subject.children.of(self.booking), self.booking.shares
        pods = tuple(map(there.get, range(len(shares))))
        if any(map(_has_ended, there.values())) or any(share.succeeded for share in shares):
            pods = tuple(
                pod if pod is None else _of_rank(pod, share, self.trainer_of(share))
                for pod, share in zip(pods, shares, strict=True)
            )
        present = tuple(pod for pod in pods if pod is not None)
        phases = frozenset([pod.phase for pod in present])
        told = shares
        if "Succeeded" in phases:
            told = tuple(
                replace(share, succeeded=True)
                if pod is not None and pod.phase == "Succeeded" and not share.succeeded
                else share
                for share, pod in zip(shares, pods, strict=True)
            )
        profile = self.subject.job.spec.gpu.mig
        mig = "" if profile is None else mig_resource(profile)
        missing = [index for index, pod in enumerate(pods) if pod is None and not shares[index].succeeded]
        replaced = [
            pod
            for pod, share in zip(pods, shares, strict=True)
            if pod is not None and not pod.is_made_for(share.node, len(share.gpus), share.binding, mig=mig)
        ]
        ending = [pod for pod in present if pod.deletion_timestamp is not None and pod.phase != "Succeeded"]
        facts = {
            "pods": pods,
            "present": present,
            "phases": phases,
            "missing": tuple(missing),
            "replaced": tuple(replaced),
            "ending": tuple(ending),
            "shares": shares if told == shares else told,
            "begun": _begun(self.subject.job.status),
        }
        for name, fact in facts.items():
            object.__setattr__(self, name, fact)

    def trainer_of(self, share: BookingShare) -> str | None:
        """Name of the container whose end is that of a share's rank; None where its kubelet may restart it, so that the
        Pod's phase counts."""
        container = trainer(self.template_of(share))
        is_final = container.get("restartPolicy") in (None, "Never") and not container.get("restartPolicyRules")
        return container["name"] if is_final else None

    def template_of(self, share: BookingShare) -> Mapping[str, Any]:
        """The user's Pod spec for a share: that of the workers, or of the parameter servers."""
        spec = self.subject.job.spec
        servers = spec.parameter_servers
        return (spec.template if share.server is None or servers is None else servers.template).spec

    @property
    def unclaimed(self) -> list[tuple[int, Pod]]:
        """Existing Pods whose claim is missing, with their node ranks."""
        shares = self.booking.shares
        return [
            (index, pod)
            for index, pod in enumerate(self.pods)
            if pod is not None
            and shares[index].is_claimed
            and not pod.node
            and pod.is_live
            and pod.deletion_timestamp is None
            and own_claim(self.subject.cluster, pod) is None
        ]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do: all Pods that the others only serve have succeeded."""
        spec, workers = self.subject.job.spec, self.booking.workers
        match CONTRACTS[spec.framework].ends(spec):
            case SuccessOf.LAUNCHER:
                served = self.shares[:1]
            case SuccessOf.CHIEF:
                served = self.shares[workers : workers + 1]
            case SuccessOf.WORKERS:
                served = self.shares[: workers - self.added]
        return bool(served) and all(share.succeeded for share in served)

    @property
    def has_launcher(self) -> bool:
        """Whether the first Pod launches the ranks of all, so that its end is that of the run."""
        spec = self.subject.job.spec
        return CONTRACTS[spec.framework].ends(spec) is SuccessOf.LAUNCHER

    @property
    def runs(self) -> bool:
        """Whether all its Pods run, as the status says; also while they start again in place, until that is counted."""
        return is_true(self.subject.job.status.conditions, ConditionType.RUNNING)

    @property
    def has_run(self) -> bool:
        """Whether all its Pods have run at once, in this run or one before it. Until then its ranks have not met for
        sure, and a missing Pod may be made again; so may one that is new among Pods that stay."""
        placement = self.subject.job.status.placement
        return self.runs or (placement is not None and bool(placement.run) and not placement.swapping)

    @property
    def is_swapping(self) -> bool:
        """Whether Pods have taken the place of others, or are to, and have not begun a run with those that stay."""
        placement = self.subject.job.status.placement
        return placement is not None and bool(placement.swapping)

    @property
    def is_growing(self) -> bool:
        """Whether its ranks train on until new Pods on added nodes wait for a run with them."""
        ended = self.subject.job.status.attempts[-1:]
        return self.is_swapping and any(each.reason == EndReason.GROWN for each in ended)

    @property
    def added(self) -> int:
        """How many of its last Pods are on nodes that are being added, and have begun no run; 0 where it does not
        grow."""
        if not self.is_growing:
            return 0
        last = zip(reversed(self.pods), reversed(self.shares), strict=True)
        return sum(1 for _ in takewhile(lambda each: self._is_added(*each), last))

    def _is_added(self, pod: Pod | None, share: BookingShare) -> bool:
        if share.succeeded or not share.replacement:
            return False
        if pod is None:
            return True
        report, made = run_report(pod), later(pod.created, None, self.subject.now)
        has_run = report is not None and report.run is not None
        return not has_run and (made is None or self.begun is None or made >= self.begun)

    def before_it_ended_by(self, reason: EndReason) -> int:
        """Number of attempts in a row, just before this one, that ended for this reason."""
        ended = reversed(self.subject.job.status.attempts)
        return sum(1 for _ in takewhile(lambda attempt: attempt.reason == reason, ended))

    @property
    def made_again_at(self) -> datetime | None:
        """When missing Pods may be made again; None for now.

        The attempt is to be twice as old then as it was when its Pods were last made. Its age is read from the status,
        so that the intervals grow though the operator is restarted.
        """
        answers, begun = self.subject.answers, self.begun
        made_at = answers.made_at if answers.made == self.booking.attempt else None
        if made_at is None or begun is None:
            return None
        ready = made_at + min(max(made_at - begun, _SHORTEST_INTERVAL), _LONGEST_INTERVAL)
        return ready if is_between(made_at, self.subject.now, ready) else None

    def gang(self) -> Gang | Lost:
        """The input of launch for its children."""
        subject = self.subject
        # The rest of them is to be like those that are there.
        are_made = [bool(pod.settings) for pod in self.present]
        return launched_gang.gang(
            subject.job,
            self.booking,
            subject.cluster,
            ipc_lock=subject.asks_for_ipc_lock,
            gives_cpus=not subject.answers.cpus_refused,
            has_sidecar=any(are_made) if are_made else not subject.answers.sidecar_refused,
        )


def _has_ended(pod: Pod) -> bool:
    """Whether one of its containers has ended, so its rank may be in another phase than the Pod."""
    return any(container.exit_code is not None and not container.init for container in pod.containers)


def _of_rank(pod: Pod, share: BookingShare, trainer: str | None) -> Pod:
    """The Pod in the phase of its rank. A stored success stays, whatever becomes of the Pod."""
    if share.succeeded and pod.phase != "Succeeded":
        return msgspec.structs.replace(pod, phase="Succeeded")
    return pod if trainer is None else pod.by_trainer(trainer)


def _begun(status: TrainingJobStatus) -> datetime | None:
    moments = [moment(attempt.ended) for attempt in status.attempts[-1:]]
    moments += [
        moment(condition.last_transition_time)
        for condition in status.conditions
        if condition.type == ConditionType.PLACED and condition.status == "True"
    ]
    return max(moments, default=None)
