"""The user's Pod template: which container trains, and what makes a template unusable.

The template's spec is opaque to us and judged by the API server. Checked here is only what launch reads or adds to,
so that `pod` works on every template that passes, whatever JSON it is.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from closeknit.api.affinity import required_node_affinity
from closeknit.api.names import (
    BARRIER_CONTAINER,
    CLAIMED_PREFIX,
    GPU_RESOURCE,
    GROUP,
    MIG_RESOURCE_PREFIX,
    SIDECAR_CONTAINER,
    TRAINER_CONTAINER,
)
from closeknit.api.objects import TrainingJob
from closeknit.api.text.opaque import MalformedError, found, list_at, object_at, objects_at, short
from closeknit.api.trainingjob import MAX_TEMPLATE_BYTES, PackedTemplate, PodTemplate, RdmaPolicy, TemplateMetadata
from closeknit.cluster.job_volumes import CLAIMS, MOST_VOLUMES
from closeknit.cluster.objects.nic_exposure import asked, nic_exposure
from closeknit.cluster.objects.pod_requests import needs

CLAIM = "gpus"  # name of our claim inside the Pod
NIC_CLAIM = "closeknit-nics"  # the same, where it is on NICs alone
IMEX_CLAIM = "closeknit-imex"  # and of that on an IMEX channel
SHM_VOLUME = "closeknit-shm"
GANG_VOLUME = "closeknit-gang"
SIZE_VOLUME = "closeknit-gang-size"
OUR_VOLUMES = (SHM_VOLUME, "closeknit-files", "closeknit-keys", "closeknit-ssh", GANG_VOLUME, SIZE_VOLUME)
SHM_PATH = "/dev/shm"  # noqa: S108 - the mount point that NCCL, PyTorch and POSIX mean
PREFLIGHT = "closeknit-preflight"  # the init container that tries the GPUs
SSH_CONTAINER = "closeknit-ssh"  # the init container that gets ssh ready
OUR_CONTAINERS = (PREFLIGHT, SSH_CONTAINER, SIDECAR_CONTAINER, BARRIER_CONTAINER)
NVIDIA_PREFIX = "nvidia.com/"  # NVIDIA's device plugin hands out GPUs under more names than nvidia.com/gpu
TEMPLATE = "spec.template"
SPEC = f"{TEMPLATE}.spec"
SERVERS_TEMPLATE = "spec.parameterServers.template"
DEFAULT_ACCOUNT = "default"  # Kubernetes' service account of a Pod that names none
SHOWN_NAMES = 5  # of a long list
# Each is compared whenever jobs are told apart, and with the taints, labels or amounts of every node; people write a
# handful. Kubernetes has no bound of its own: 5,000 resources of one template took a decision 4.5 s.
MOST_ENTRIES = 64
# They are kept as long as the job waits. An API server takes nothing longer for the key and for the value of a label.
LONGEST_KEY, LONGEST_VALUE = 253 + 1 + 63, 63

# Fields of the Pod that follow from the placement, and what to do instead of setting them.
OURS = {
    "hostname": "ranks find each other by host names that closeknit gives; remove it",
    "subdomain": "ranks find each other by host names that closeknit gives; remove it",
    "nodeName": "closeknit chooses the nodes; remove it",
    "priorityClassName": "the job's own priority is spec.priorityClassName; set it there",
}
# Prefixes whose labels and annotations steer closeknit or Kueue, which would queue each Pod a second time.
RESERVED_LABELS = (GROUP, "kueue.x-k8s.io")
RESERVED_ANNOTATIONS = (GROUP,)


def check_template(job: TrainingJob) -> str | None:
    """Why no Pod can be made of the job's templates, in one sentence; None where it can."""
    worker, servers = job.spec.template, job.spec.parameter_servers
    fault = _too_large(worker, SPEC) or worker.once(_fault_of_worker)
    if fault is None and job.spec.network.rdma is not RdmaPolicy.DISABLED:
        fault = worker.once(_fault_of_nics)
    if fault is None and servers is not None:
        server, path = servers.template, f"{SERVERS_TEMPLATE}.spec"
        fault = _too_large(server, path) or server.once(_fault_of_server) or _fault_beside(server, worker)
    return fault


def _too_large(template: PackedTemplate, path: str) -> str | None:
    if template.spec_bytes <= MAX_TEMPLATE_BYTES:
        return None
    return (
        f"{path} has {template.spec_bytes} bytes as JSON, more than the {MAX_TEMPLATE_BYTES} that fit beside the job's "
        "status; move what is large into a ConfigMap"
    )


def _fault_of_worker(template: PodTemplate) -> str | None:
    return _told(_check, template, TEMPLATE)


def _fault_of_server(template: PodTemplate) -> str | None:
    return _told(_check, template, SERVERS_TEMPLATE) or _told(_check_placed, template)


def _told(check: Callable[..., None], *of: Any) -> str | None:
    try:
        check(*of)
    except MalformedError as refused:
        return str(refused)
    return None


def _check(template: PodTemplate, path: str) -> None:
    _check_metadata(template.metadata, path)
    _check_pod(template.spec, f"{path}.spec")


def trainer_index(spec: Mapping[str, Any], path: str = SPEC) -> int:
    """Index of the container that gets the GPUs: the one called trainer, or the only one. Raises MalformedError."""
    names = [container["name"] for container in spec["containers"]]
    if len(names) == 1:
        return 0
    if TRAINER_CONTAINER not in names:
        shown = ", ".join(short(name) for name in names[:SHOWN_NAMES]) + (", ..." if len(names) > SHOWN_NAMES else "")
        raise MalformedError(
            f"{path}.containers has {len(names)} containers ({shown}) and none is called {TRAINER_CONTAINER}; "
            f"call the one that gets the GPUs {TRAINER_CONTAINER}"
        )
    return names.index(TRAINER_CONTAINER)


def trainer(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The container that gets the GPUs. Raises MalformedError."""
    container: dict[str, Any] = spec["containers"][trainer_index(spec)]
    return container


def runs_as(spec: Mapping[str, Any]) -> int | None:
    """The user that the trainer runs as: 0 is root, 1 an unknown one that is not; None where the image says it."""
    holders = [trainer(spec).get("securityContext"), spec.get("securityContext")]
    for holder in holders:
        user = holder.get("runAsUser") if isinstance(holder, dict) else None
        if isinstance(user, int) and not isinstance(user, bool):
            return user
    return 1 if any(isinstance(each, dict) and each.get("runAsNonRoot") is True for each in holders) else None


def account(template: PackedTemplate) -> str:
    """The service account of a template that only some may use; empty where it is the one that every Pod may have."""
    return template.once(_account)


def _account(template: PodTemplate) -> str:
    named = template.spec.get("serviceAccountName") or template.spec.get("serviceAccount")  # its old name still works
    return named if isinstance(named, str) and named != DEFAULT_ACCOUNT else ""


def _check_metadata(metadata: TemplateMetadata, path: str) -> None:
    for field, keys, reserved in (
        ("labels", metadata.labels, RESERVED_LABELS),
        ("annotations", metadata.annotations, RESERVED_ANNOTATIONS),
    ):
        for key in sorted(keys):
            domain, slash, _ = key.partition("/")
            if slash and any(domain == prefix or domain.endswith(f".{prefix}") for prefix in reserved):
                raise MalformedError(f"{path}.metadata.{field} has {short(key)}, whose prefix is reserved; remove it")


def _check_pod(spec: dict[str, Any], where: str) -> None:
    """Everything that launch reads, in the order of a Pod's reader: containers first."""
    containers = objects_at(spec, "containers", where)
    if not containers:
        raise MalformedError(f"{where}.containers has no container; give it the one that trains")
    resources: set[str] = set()
    for path, container in _named(containers, f"{where}.containers"):
        resources |= _check_resources(container, path)
    for path, container in _named(objects_at(spec, "initContainers", where), f"{where}.initContainers"):
        resources |= _check_resources(container, path)
    resources |= _check_resources(spec, where)
    if len(resources) > MOST_ENTRIES:
        raise MalformedError(
            f"{where} asks for {len(resources)} different resources, and at most {MOST_ENTRIES} are looked at; "
            "leave some out"
        )
    for resource in sorted(resources):
        _check_length(f"resource {short(resource)} of {where}", resource, LONGEST_KEY)
    index = trainer_index(spec, where)
    _check_trainer(containers[index], f"{where}.containers[{index}]")
    _check_restart_policy(spec, where)
    for field, instead in OURS.items():
        if spec.get(field) not in (None, ""):
            raise MalformedError(f"{where}.{field} is {found(spec[field])}, but {instead}")
    for volume in OUR_VOLUMES:
        _check_no_name(spec, "volumes", volume, where)
    for ours in OUR_CONTAINERS:  # one of the user's would be read as ours, and containers share their names
        _check_no_name(spec, "containers", ours, where)
        _check_no_name(spec, "initContainers", ours, where)
    for claim in (CLAIM, NIC_CLAIM, IMEX_CLAIM):
        _check_no_name(spec, "resourceClaims", claim, where)
    _check_claims(spec, where)
    _check_node_selector(spec, where)
    _check_tolerations(spec, where)
    required_node_affinity(spec, where)


def _check_claims(spec: dict[str, Any], where: str) -> None:
    claims = [each for each in objects_at(spec, "volumes", where) if CLAIMS & each.keys()]
    if len(claims) > MOST_VOLUMES:
        raise MalformedError(
            f"{where}.volumes has {len(claims)} claims, and at most {MOST_VOLUMES} are looked at; leave some out"
        )


def _check_tolerations(spec: dict[str, Any], where: str) -> None:
    tolerations = objects_at(spec, "tolerations", where)
    _check_count(f"{where}.tolerations", tolerations)
    for index, entry in enumerate(tolerations):
        for field in ("key", "operator", "value", "effect"):
            longest = LONGEST_KEY if field == "key" else LONGEST_VALUE
            _check_length(f"{where}.tolerations[{index}].{field}", entry.get(field), longest)


def _check_placed(template: PodTemplate) -> None:
    """What the Pod of a parameter server may not have beside what no Pod may: it runs on the node of a worker."""
    server, path = template.spec, f"{SERVERS_TEMPLATE}.spec"
    for field, value in (
        ("nodeSelector", server.get("nodeSelector")),
        ("affinity.nodeAffinity", object_at(server, "affinity", path).get("nodeAffinity")),
    ):
        if value:
            raise MalformedError(
                f"{path}.{field} is {found(value)}; parameter servers run on the nodes of their workers: remove it, or "
                f"set it in {SPEC}"
            )


def _fault_beside(server: PackedTemplate, worker: PackedTemplate) -> str | None:
    """What a parameter server's template may not have beside that of the workers; None where nothing is wrong."""
    path = f"{SERVERS_TEMPLATE}.spec"
    size = server.spec_bytes + worker.spec_bytes
    if size > MAX_TEMPLATE_BYTES:
        return (
            f"{path} and {SPEC} have {size} bytes as JSON together, more than the {MAX_TEMPLATE_BYTES} that fit beside "
            "the job's status; move what is large into a ConfigMap"
        )
    if account(server) != account(worker):
        return (
            f"{path}.serviceAccountName is {short(account(server)) or DEFAULT_ACCOUNT}, and that of the workers is "
            f"{short(account(worker)) or DEFAULT_ACCOUNT}; give both the same"
        )
    return None


def _check_trainer(container: dict[str, Any], path: str) -> None:
    for entry_path, entry in _named(objects_at(container, "env", path), f"{path}.env"):
        if not isinstance(entry.get("value"), str | None):
            raise MalformedError(f"{entry_path}.value is {found(entry['value'])}; write it as a string, in quotes")
    for index, mount in enumerate(objects_at(container, "volumeMounts", path)):
        if not isinstance(mount.get("mountPath"), str):
            raise MalformedError(
                f"{path}.volumeMounts[{index}].mountPath is {found(mount.get('mountPath'))}; give it a path"
            )
    security = object_at(container, "securityContext", path)
    capabilities = object_at(security, "capabilities", f"{path}.securityContext")
    list_at(capabilities, "add", f"{path}.securityContext.capabilities")


def _check_resources(holder: dict[str, Any], path: str) -> set[str]:
    """The names of what it asks for. Raises MalformedError."""
    resources = object_at(holder, "resources", path)
    objects_at(resources, "claims", f"{path}.resources")
    names: set[str] = set()
    for field in ("limits", "requests"):
        named = object_at(resources, field, f"{path}.resources")
        names.update(named)
        for resource in sorted(named):
            if resource.startswith(NVIDIA_PREFIX):
                raise MalformedError(f"{path}.resources.{field} asks for {short(resource)}; {_instead(resource)}")
    return names


def _instead(resource: str) -> str:
    """What to do where a template asks for what closeknit asks for itself. NVIDIA's network operator calls functions of
    NICs by the prefix of its GPUs."""
    if resource.startswith((GPU_RESOURCE, MIG_RESOURCE_PREFIX)):
        return "closeknit asks for the job's GPUs itself: remove it and set spec.gpus"
    return (
        f"GPUs of any name under {NVIDIA_PREFIX} closeknit asks for itself, and functions of NICs where "
        "ClusterTopology default declares them: remove it, set spec.gpus, and have an administrator add such functions "
        "to spec.fabric.sriovNetworks"
    )


def _fault_of_nics(template: PodTemplate) -> str | None:
    """Whether the template of a job that may talk over RDMA asks for none of what it would be given."""
    wanted = {name for name, _ in needs(template.spec)}
    for resource in sorted({*asked(template.spec)} - wanted):
        if nic_exposure(resource) is not None and not resource.startswith(CLAIMED_PREFIX):
            return (
                f"{SPEC} asks for none of {short(resource)}, which closeknit gives to Pods that talk over RDMA: remove "
                "it, and set network.rdma: Disabled for a job without"
            )
    return None


def _check_restart_policy(spec: dict[str, Any], where: str) -> None:
    policy = spec.get("restartPolicy")
    if policy not in (None, "Never"):
        raise MalformedError(
            f"{where}.restartPolicy is {found(policy)}; a rank that is restarted alone never meets the others again: "
            "set Never, or leave it out"
        )


def _check_count(field: str, entries: Collection[Any]) -> None:
    if len(entries) > MOST_ENTRIES:
        raise MalformedError(
            f"{field} has {len(entries)} entries, and at most {MOST_ENTRIES} are looked at; leave some out"
        )


def _check_length(what: str, word: object, longest: int) -> None:
    length = len(str(word))
    if length > longest:
        raise MalformedError(f"{what} has {length} characters, and at most {longest} are taken; shorten it")


def _check_node_selector(spec: dict[str, Any], where: str) -> None:
    selector = object_at(spec, "nodeSelector", where)
    _check_count(f"{where}.nodeSelector", selector)
    for key, value in selector.items():
        if not isinstance(value, str):
            raise MalformedError(
                f"{where}.nodeSelector[{short(key)}] is {found(value)}; write it as a string, in quotes"
            )
        _check_length(f"the key of {where}.nodeSelector[{short(key)}]", key, LONGEST_KEY)
        _check_length(f"{where}.nodeSelector[{short(key)}]", value, LONGEST_VALUE)


def _check_no_name(spec: dict[str, Any], field: str, name: str, where: str) -> None:
    for path, entry in _named(objects_at(spec, field, where), f"{where}.{field}"):
        if entry["name"] == name:
            raise MalformedError(f"{path}.name is {name}, a name that closeknit uses itself; choose another")


def _named(entries: list[dict[str, Any]], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each entry with its path. Raises MalformedError at the first without a name."""
    for index, entry in enumerate(entries):
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise MalformedError(f"{path}[{index}].name is {found(name)}; give it a name")
        yield f"{path}[{index}]", entry
