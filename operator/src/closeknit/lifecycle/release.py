"""The release of a gang, all of it at once."""

from datetime import timedelta

from closeknit.api.trainingjob_status import Binding
from closeknit.launch.claim import claim
from closeknit.launch.pod import release_patch
from closeknit.lifecycle.attempt import Attempt
from closeknit.lifecycle.book import create_others
from closeknit.lifecycle.children import is_left_over
from closeknit.lifecycle.ending import node_changed
from closeknit.lifecycle.gangs import Lost
from closeknit.lifecycle.pauses import is_between
from closeknit.lifecycle.plan import Action, Create, Plan, Release
from closeknit.lifecycle.subject import seconds_until

# A rank that cannot be scheduled so long after its release has lost its GPUs. The scheduler says so within 1.5 s, and a
# device that was just freed is taken within 0.05 s (measured on Kubernetes 1.36).
LOST_AFTER = timedelta(seconds=2)
RELEASE_AGAIN_AFTER = timedelta(seconds=2)


def release(attempt: Attempt) -> Plan:
    """Lets all Pods of the gang go: every one of them exists.

    What is not released though we did so may be on its way out, its claim collected before its Pod is seen to go: a
    release is not said twice within two seconds.
    """
    subject = attempt.subject
    released_at = subject.answers.released_at if subject.answers.released == subject.attempt else None
    if released_at is not None and is_between(released_at, subject.now, released_at + RELEASE_AGAIN_AFTER):
        return subject.plan(wake_after_s=seconds_until(released_at + RELEASE_AGAIN_AFTER, subject.now))
    gang = attempt.gang()
    if isinstance(gang, Lost):
        return node_changed(attempt, gang)
    actions: list[Action] = []
    if subject.answers.service_of != subject.attempt:
        actions += create_others(gang)
    for index, pod in enumerate(attempt.present):
        if attempt.is_released(index):
            continue
        if gang.members[index].binding is Binding.DRA:
            there = subject.cluster.claims.get(pod.key)
            if there is not None and is_left_over(there, subject.job):
                return subject.plan()  # of a Pod that had the name before; the decision after its end releases them all
            actions.append(Create(claim(gang, index, pod.uid)))
        else:
            actions.append(Release(pod.name, release_patch(pod.uid, pod.gates)))
    return subject.plan(actions=tuple(actions))
