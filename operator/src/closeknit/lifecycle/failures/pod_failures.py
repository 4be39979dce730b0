"""The symptoms of a gang's Pods that have failed: the cause first, and the words about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from closeknit.api.reasons import ExclusionReason
from closeknit.api.trainingjob_status import Exit
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.objects.pod_requests import MEMORY, PodResourceSpec
from closeknit.cluster.pods.gang_runs import gave_up
from closeknit.cluster.pods.pod import DISRUPTION_TARGET, ContainerState, Pod
from closeknit.cluster.pods.symptoms import Said, Symptom, are_of_one_that_waited, failed_container, of_pod
from closeknit.launch.template import trainer
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.failures.device_health import ill_devices, words
from closeknit.lifecycle.status.blame import TABLE, WAITED_AT_LEAST, Blame, Row
from closeknit.lifecycle.status.conditions import stated
from closeknit.lifecycle.status.degraded import FIXED
from closeknit.lifecycle.status.pauses import lasted, later
from closeknit.lifecycle.transitions.ends import EndFacts
from closeknit.placement.values.sentences import count

# Symptoms by a device of the gang; the end of the attempt blames that one alone.
BY_DEVICES = frozenset({Symptom.GPU_DEAD, Symptom.GPU_ILL_AT_EXIT, Symptom.NIC_DOWN_AT_EXIT})


_BY_SIGNAL = 128  # a shell's and a runtime's exit code of a program that a signal ended is this and the signal


KEPT_EXITS = 8  # of one end, as the schema bounds them


EXIT_REASON_MAX_LENGTH = 64


EXIT_MESSAGE_MAX_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Failure:
    """The symptom of one Pod of a gang that has failed, or is being ended."""

    pod: Pod
    share: BookingShare
    trainer: str | None
    """Name of the container that decides."""
    said: Said
    is_launcher: bool = False
    """Whether the others only serve its container, as with MPI."""

    @property
    def row(self) -> Row:
        """Whose fault it is, and what follows."""
        return TABLE[self.said.symptom]


def failures(attempt: Attempt) -> list[Failure]:
    """Symptoms of the gang's Pods that have failed, or are being ended; the most to blame comes first.

    What is not the job's fault stands before what is, for the others fail with it, and Kubernetes' own mark before
    all. Of its own what has a name of its own, as want of memory, stands before a mere exit code, then a launcher
    before those whom it launches, and what ended earlier before what ended later. The end of a Pod that somebody
    deletes or stops is no cause.
    """
    found: list[Failure] = []
    for pod, share in zip(attempt.pods, attempt.booking.shares, strict=True):
        decides = attempt.trainer_of(share)
        if pod is not None and (said := of_pod(pod, decides)) is not None:
            if why := gave_up(pod):
                said = Said(Symptom.EXITED, why)
            is_served = attempt.has_launcher and share.first_rank == 0 and share.server is None
            found.append(Failure(pod, share, decides, said, is_launcher=is_served))
    found = by_others(attempt, found)
    # Where one of the gang is over, a rank that failed beside it can never start again in its Pod: that is its own end.
    if found and not any(share.succeeded for share in attempt.shares) and all(gave_up(each.pod) for each in found):
        found = [replace(each, said=Said(Symptom.RANK_NOT_STARTED, each.said.words)) for each in found]
    if found and all(each.row.blame is Blame.JOB for each in found):
        late = _not_started(attempt)
        if late is not None and all(map(_has_waited, found)):
            found = [replace(each, said=Said(Symptom.RANK_NOT_STARTED, late)) for each in found]
    return sorted(found, key=_weight)


def by_others(attempt: Attempt, found: list[Failure], *, runs_again: bool = False) -> list[Failure]:
    """The failures, of which a silent node or an ill device of the gang takes the blame. `runs_again`: all its Pods
    have told of the next run since, so that no node of it was dead."""
    if found and all(each.row.blame is Blame.JOB for each in found):
        if not runs_again and (silent := silent_nodes(attempt)):
            words = next(iter(silent.values()))
            return [replace(each, said=Said(Symptom.NODE_NOT_READY, words)) for each in found]
        if (ill := _ill_at_exit(attempt, found)) is not None:
            return [ill]
    return found


def _weight(failure: Failure) -> tuple[bool, bool, bool, bool, bool, str, bool]:
    container = failed_container(failure.pod, failure.trainer)
    symptom = failure.said.symptom
    return (
        failure.row.blame is Blame.JOB,
        symptom is not Symptom.DISRUPTED,
        symptom is Symptom.EXITED,
        _was_told_to_end(failure.pod),
        not failure.is_launcher,
        "" if container is None else container.ended,
        container is not None and (container.exit_code or 0) > _BY_SIGNAL,
    )


def _was_told_to_end(pod: Pod) -> bool:
    """Whether somebody deletes or stops the Pod: its exit code is that of a signal, and no cause."""
    return pod.deletion_timestamp is not None or pod.is_stopped


def silent_nodes(attempt: Attempt) -> dict[str, str]:
    """The nodes of the gang that are gone or not Ready, each with the message: then failures on them, or beside them,
    prove nothing about the job."""
    found: dict[str, str] = {}
    for share in attempt.booking.shares:
        view = attempt.subject.cluster.nodes.get(share.node)
        if view is None:
            found[share.node] = f"node {share.node} is no longer there"
        elif view.exclusion is not None and view.exclusion.reason is ExclusionReason.NOT_READY:
            found[share.node] = f"node {share.node} is not ready: {view.exclusion.message}"
    return found


def _ill_at_exit(attempt: Attempt, found: Sequence[Failure]) -> Failure | None:
    """The failure by a device of the gang that is not well, where its ranks ended with mere exit codes."""
    ill = ill_devices(attempt) if all(each.said.symptom is Symptom.EXITED for each in found) else ()
    if not ill:
        return None
    failed = {each.share.node for each in found}
    worst = min(ill, key=lambda each: (not each.is_dead, each.share.node not in failed, not each.is_gpu))
    symptom = Symptom.GPU_ILL_AT_EXIT if worst.is_gpu else Symptom.NIC_DOWN_AT_EXIT
    near = next((each for each in found if each.share.node == worst.share.node), found[0])
    return replace(near, share=worst.share, said=Said(Symptom.GPU_DEAD if worst.is_dead else symptom, words(ill)))


def _not_started(attempt: Attempt) -> str | None:
    """The message that a Pod of the gang has not started: the started ones wait for it in vain."""
    late = [pod for pod in attempt.present if pod.phase in {"", "Pending"}]
    if not late:
        return None
    waiting = next((each.reason for each in late[0].containers if each.waiting and each.reason), "")
    where = f" on node {late[0].node}" if late[0].node else ""
    more = f" ({count(len(late) - 1, 'more Pod')} likewise)" if len(late) > 1 else ""
    return f"Pod {late[0].name}{where} had not started{f' ({waiting})' if waiting else ''}{more}"


def _has_waited(failure: Failure) -> bool:
    """Whether a container that ended with an error may have waited for another rank: it says so, or ran for long."""
    container = failed_container(failure.pod, failure.trainer)
    if container is None or failure.said.symptom is not Symptom.EXITED:
        return False
    ran = lasted(container.began, container.ended)
    return are_of_one_that_waited(container.message) or (ran is not None and ran >= WAITED_AT_LEAST)


def failure_words(failure: Failure) -> str:
    """The message about the cause that ended a Pod and is not the job's fault."""
    pod, told = failure.pod, failure.said.words
    said = f": {told}" if told else ""
    match failure.said.symptom:
        case Symptom.DISRUPTED:
            where = f" of node {pod.node}" if pod.node else ""
            return f"Pod {pod.name}{where} was disrupted{said}"
        case Symptom.SHUT_DOWN | Symptom.PREEMPTED | Symptom.EVICTED:
            return f"node {pod.node} ended Pod {pod.name}{said}"
        case Symptom.CONTAINER_LOST:
            return f"node {pod.node} lost a container of Pod {pod.name}, as it does when it is restarted{said}"
        case Symptom.RANK_NOT_STARTED:
            return f"Pod {pod.name} on node {pod.node} gave up while {told}"
        case Symptom.NODE_NOT_READY:
            return f"Pod {pod.name} on node {pod.node} failed while {told}"
        case Symptom.GPU_DEAD | Symptom.GPU_ILL_AT_EXIT | Symptom.NIC_DOWN_AT_EXIT:
            return f"Pod {pod.name} on node {pod.node} failed beside {told}"
        case Symptom.DEVICES_NOT_GIVEN | Symptom.GPU_NOT_GIVEN:
            return f"node {pod.node} cannot give Pod {pod.name} its devices{said}"
        case _:
            return f"node {pod.node} refused Pod {pod.name}{said}"


def own_end(attempt: Attempt, found: Sequence[Failure]) -> str:
    """The message about Pods that failed by the job's own fault, the cause first."""
    message = _own_end(found[0], attempt.template_of(found[0].share))
    return message if len(found) == 1 else f"{message}; {len(found) - 1} more failed"


def trainers_exit_code(attempt: Attempt, failure: Failure) -> int | None:
    """The exit code of the Pod's trainer, whatever failed beside or before it; None where it has none."""
    container = failure.pod.container(trainer(attempt.template_of(failure.share))["name"])
    return None if container is None else container.exit_code or None


def end_facts(attempt: Attempt, found: Sequence[Failure]) -> EndFacts:
    """What the Pods that failed said last, the cause first, and when that was."""
    containers = [(each, failed_container(each.pod, each.trainer)) for each in found[:KEPT_EXITS]]
    exits = tuple(_exit(each, container) for each, container in containers)
    cause = containers[0][1]
    mark = found[0].pod.condition(DISRUPTION_TARGET)
    told = mark.last_transition_time if found[0].said.symptom is Symptom.DISRUPTED and mark is not None else None
    written = told or ("" if cause is None else cause.ended)
    return EndFacts(exits, later(written, None, attempt.subject.now))


def _exit(failure: Failure, container: ContainerState | None) -> Exit:
    pod = failure.pod
    reason = pod.reason or ("" if container is None or container.reason == "Error" else container.reason)
    message = pod.message or ("" if container is None else container.message)
    return Exit(
        pod=pod.name,
        node=pod.node or None,
        exit_code=None if container is None else container.exit_code,
        reason=stated(reason, EXIT_REASON_MAX_LENGTH) or None,
        message=stated(message.strip(), EXIT_MESSAGE_MAX_LENGTH) or None,
    )


def _own_end(failure: Failure, template: Mapping[str, Any]) -> str:
    """How a Pod of this template failed by the job's own fault, and what to do if that is known."""
    pod, said = failure.pod, failure.said
    where = f"Pod {pod.name} on node {pod.node or '(none)'}"
    match said.symptom:
        case Symptom.OVER_ITS_STORAGE:
            return f"{where} was ended for the disk that it uses itself: {said.words}; {_raise('that limit')}"
        case Symptom.PAST_ITS_DEADLINE:
            told = f"{where} ran longer than activeDeadlineSeconds of its template allows: {said.words}"
            return f"{told}; raise it, or leave it out; {FIXED}"
    container = failed_container(pod, failure.trainer)
    if container is None:
        return f"{where} failed before a container ended"
    why = f" ({container.reason})" if container.reason not in {"", "Error"} else ""
    words = f": {said.words}" if said.words else ""
    if said.symptom is Symptom.OUT_OF_MEMORY:
        words = f"{words}; {_memory_words(template, container.name)}"
    return f"container {container.name} of {where} ended with exit code {container.exit_code}{why}{words}"


def _memory_words(template: Mapping[str, Any], container: str) -> str:
    """Advice for a container that was killed for its memory: by its own limit, or without one in the template by its
    node's memory, or a LimitRange."""
    try:
        asked = msgspec.convert(template, PodResourceSpec)
    except msgspec.ValidationError:  # no API server makes a Pod of it
        asked = PodResourceSpec()
    every = (*(asked.containers or ()), *(asked.init_containers or ()))
    holders = (asked.resources, *(each.resources for each in every if each.name == container))
    if any(each is not None and MEMORY in (each.limits or {}) for each in holders):
        return f"it used more memory than it may: {_raise('resources.limits.memory of the template')}"
    return (
        "its template sets no limit, so that its node had no more memory, or a LimitRange of the namespace sets one: "
        f"give resources.requests.memory and resources.limits.memory what it needs, or use less; {FIXED}"
    )


def _raise(limit: str) -> str:
    """Advice for a limit of the job's own that its Pods have exceeded."""
    return f"raise {limit}, or use less; {FIXED}"
