"""The words about a write that the API server refuses for good: what was refused, why, and what to do."""

from collections.abc import Collection, Mapping, Sequence

from closeknit.api.names import JOB_LABEL, UNRESTRICTED_TEMPLATES_LABEL
from closeknit.cluster.objects.meta import owner_of
from closeknit.cluster.pods.symptoms import Symptom, of_denial
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.writes.plan import Plan
from closeknit.lifecycle.writes.quota_shortfall import shortfalls, words
from closeknit.lifecycle.writes.results import (
    ChildRefused,
    Denial,
    DenialKind,
    Exists,
    Quotas,
    ServiceAccount,
    is_by_quota,
)
from closeknit.placement.values.sentences import listed

RefusedWrite = ChildRefused | Exists | Quotas | ServiceAccount
"""Results that may say that nothing comes of it until somebody changes something."""


def symptom_of(refused: RefusedWrite) -> Symptom:
    """What a refusal shows, for the table of blame."""
    match refused:
        case Quotas():
            return Symptom.QUOTA_USED_UP
        case ServiceAccount():
            return Symptom.ACCOUNT_NOT_USABLE
        case Exists():
            return Symptom.NAME_TAKEN
        case ChildRefused(denial=Denial(failure=DenialKind.NO_RIGHT)):
            return Symptom.NO_RIGHT
        case ChildRefused(denial=Denial(failure=DenialKind.CHANGED)):
            return Symptom.CHANGED_ON_THE_WAY
        case ChildRefused(denial=Denial(failure=DenialKind.NO_ACCOUNT)):
            return Symptom.ACCOUNT_NOT_THERE
        case ChildRefused(denial=denial) if denial.may_last:
            return Symptom.NOT_ANSWERED
        case ChildRefused() if is_by_quota(refused):
            return Symptom.QUOTA_USED_UP
        case ChildRefused(denial=Denial(failure=DenialKind.FORBIDDEN) as denial):
            return of_denial(denial.message)
        case ChildRefused():
            return Symptom.OBJECT_INVALID


_DENIED: Mapping[Symptom, str] = {
    Symptom.NAMESPACE_GOING: (
        "namespace {namespace} is being deleted and takes nothing new; create the job in another namespace"
    ),
    Symptom.ACCOUNT_NOT_THERE: (
        "the API server refuses {title}: {message}; create that ServiceAccount in namespace {namespace}, or have an "
        "administrator see why Kubernetes does not"
    ),
    Symptom.NOT_ANSWERED: (
        "the API server cannot make {title}: {message}; have an administrator see to the webhook, or to whatever else "
        "it names; the job holds nothing, and is tried again from time to time"
    ),
    Symptom.QUOTA_USED_UP: (
        "the API server refuses {title}: {message}; free some of it, change spec.template, or have an administrator "
        "raise it"
    ),
}
"""What to tell of a denial that is the template's fault in nothing."""


def refusal_message(plan: Plan, refused: RefusedWrite) -> str:
    """The message about a refusal: what was refused, why, and what to do."""
    namespace = plan.job.namespace
    if isinstance(refused, Quotas):
        return words(shortfalls(refused.demand, refused.found), namespace)
    if isinstance(refused, ServiceAccount):
        return unusable_words(refused.name, namespace)
    metadata = refused.manifest["metadata"]
    title = f"{refused.manifest['kind']} {metadata['namespace']}/{metadata['name']}"
    if isinstance(refused, Exists):
        if any(owner.is_job(plan.uid) for owner in refused.owners):
            return f"{title} is this job's own, but its labels were changed; delete it"
        return taken_words(title, owner_of(refused.owners))
    symptom = symptom_of(refused)
    if symptom is Symptom.NO_RIGHT:
        return not_served_words(refused.manifest)
    if symptom is Symptom.SYSTEM_NAMESPACE:
        return SYSTEM_NAMESPACE
    if refused.denial.failure is DenialKind.CHANGED:
        return (
            f"the API server makes {title} otherwise than it was sent: {refused.denial.message}; a mutating policy or "
            "webhook of the site changes Pods on their way, and an administrator is to leave out of it what bears the "
            f"label {JOB_LABEL}"
        )
    if words_of := _DENIED.get(symptom):
        return words_of.format(title=title, message=refused.denial.message, namespace=namespace)
    said = f"the API server refuses {title}: {refused.denial.message}"
    if symptom is Symptom.CHANGED_ON_THE_WAY:
        return (
            f"{said}; that is closeknit's own policy: either a mutating policy or webhook of the site changes Pods on "
            f"their way, and an administrator is to leave out of it what bears the label {JOB_LABEL}; or namespace "
            f"{namespace} has lost the label {UNRESTRICTED_TEMPLATES_LABEL}=true since the job was created"
        )
    if refused.manifest["kind"] != "Pod":
        return said  # nothing else that is made comes of the template
    # Of the API server's own admission plugin, in 1.20 to 1.36; the class is the job's, and can always be changed.
    name = refused.manifest["spec"].get("priorityClassName")
    if name and "no PriorityClass with name" in refused.denial.message:
        return unknown_class_words(name)
    return f"{said}; change spec.template, or have an administrator allow it"


def unchanged_message(plan: Plan, refused: RefusedWrite) -> str:
    """The message about a change that was refused, for a job that goes on without it."""
    if not isinstance(refused, ChildRefused):
        return refusal_message(plan, refused)
    metadata = refused.manifest["metadata"]
    title = f"{refused.manifest['kind']} {metadata['namespace']}/{metadata['name']}"
    on_trial = "" if plan.growth else " on trial"
    return f"the API server refuses {title}{on_trial}: {refused.denial.message}"


def unknown_class_words(name: str, there: Collection[str] = ()) -> str:
    """The message about a missing PriorityClass; `there` are the existing ones, if known."""
    known = listed(sorted(there), "and") if there else "none of that name"
    other = "one of these" if there else "another one"
    return (
        f"needs PriorityClass {name}; this cluster has {known}: name {other} in spec.priorityClassName, or have an "
        "administrator create it"
    )


SYSTEM_NAMESPACE = (
    "closeknit makes no Pods in the namespaces of Kubernetes (kube-...) and in its own, where they could reach what "
    "runs the cluster; create the job in another namespace"
)


def not_served_words(manifest: Manifest) -> str:
    """The message about a namespace in which the operator may not make this."""
    namespace = manifest["metadata"]["namespace"]
    return (
        f"the operator has no right to create a {manifest['kind']} in namespace {namespace}; have an administrator add "
        f"{namespace} to rbac.namespaces of closeknit's chart, or create the job in a namespace that is listed there"
    )


def unusable_words(account: str, namespace: str) -> str:
    """The message about a service account that the operator may not use."""
    return (
        f"spec.template.spec.serviceAccountName is {account}, which the operator has no right to use in namespace "
        f"{namespace}; have an administrator give ServiceAccount closeknit-operator the verb use on it, or leave the "
        "name out"
    )


def undeleted_words(pods: Sequence[str], denial: Denial, namespace: str) -> str:
    """The message about Pods that stay though the job gives up its GPUs."""
    first, *others = pods
    more = f" and {len(others)} more could" if others else " could"
    found = f"Pod {first}{more} not be deleted, and may run on and keep GPUs: "
    if denial.failure is DenialKind.NO_RIGHT:
        return (
            f"{found}the operator has no right to delete Pods in namespace {namespace}; have an administrator add "
            f"{namespace} to rbac.namespaces of closeknit's chart again, or delete them yourself"
        )
    return f"{found}{denial.message}; have an administrator see to what forbids that, or delete them yourself"


def taken_words(title: str, owner: str) -> str:
    """The message about a name with another owner."""
    return f"{title} exists and belongs to {owner}; delete it, or delete this job and give it another name"
