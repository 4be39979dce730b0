"""What must be so once nobody disturbs any more: told by one who knows the whole world, and nothing of the operator."""

from collections import Counter
from collections.abc import Iterator

from closeknit.api.names import SPARE_FOR_LABEL, child_named
from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS, SERVICES, TRAINING_JOBS
from closeknit.kube.api import JsonObject
from faults.kinds import NODES
from lives.api_server import FINISHED, RESOURCE_QUOTAS, key_of
from lives.invariants import attempt_of, held_shares, is_ours, is_true, owner, shares
from lives.quota import CPUS, amounts, counted
from lives.scheduler import allocatable, allocated, is_live, pin, requests, tolerates
from lives.world import World

USUAL: JsonObject = {"spec": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}}
QUOTA = "QuotaExceeded"


def complaints(world: World) -> Iterator[str]:
    """Everything that is not as it should be."""
    for job in world.server.view(TRAINING_JOBS).values():
        yield from _of_job(world, job)
    yield from _left_over(world)


def _of_job(world: World, job: JsonObject) -> Iterator[str]:
    name, status = key_of(job), job.get("status", {})
    live = [pod for pod in _pods_of(world, job) if is_live(pod) and not _is_lost(world, pod)]
    if is_true(job, "Succeeded", "Failed"):
        if live:
            yield f"{name} is over and {len(live)} of its Pods are there"
        return
    if job["spec"].get("suspend"):
        if status.get("state") != "Suspended" or live:
            yield f"{name} is to be suspended, is {status.get('state')} and has {len(live)} Pods"
        return
    if status.get("state") == "Suspended":
        yield f"{name} is no longer suspended, and told to be"
    if (booked := shares(job)) and len(held_shares(job)) == len(booked):
        running = [pod for pod in live if pod["status"]["phase"] == "Running" and attempt_of(pod) == status["attempt"]]
        ended = [pod for pod in _pods_of(world, job) if pod["status"]["phase"] == "Succeeded"]
        if not is_true(job, "Running"):
            yield f"{name} is booked and does not run: {_why(status)}"
        placement = status["placement"]
        run = world.sidecars.run_of((job["metadata"]["uid"], status["attempt"]))
        if run is not None and run != placement.get("run", 0):
            yield f"{name} is in run {run} of its Pods, and told to be in {placement.get('run', 0)}"
        if "swapping" in placement:
            yield f"{name} still waits for Pods in place of others, and is told to run"
        if len(running) + len(ended) < len(booked):
            yield f"{name} has {len(booked)} nodes and {len(running)} Pods that run"
        return
    yield from _of_waiting(world, job)


def _of_waiting(world: World, job: JsonObject) -> Iterator[str]:
    name, pending = key_of(job), job.get("status", {}).get("pending")
    gpus = job["spec"].get("elastic", {}).get("minGPUs", job["spec"]["gpus"])  # with so many it would begin
    if pending is None:
        yield f"{name} waits and does not say why: {_why(job.get('status', {}))}"
        return
    reason = pending["reason"]
    free, certain = _free(world, _cpu(world, job))
    is_refused = world.policy.namespace == name.namespace
    is_quota_short = _is_quota_short(world, job, pods=-(-job["spec"]["gpus"] // world.size))
    is_name_taken = any(
        pod["metadata"]["namespace"] == name.namespace
        and pod["metadata"]["name"].startswith(f"{name.name}-a")
        and not (is_ours(pod) and owner(pod) == job["metadata"]["uid"])
        for pod in world.server.view(PODS).values()
    )
    is_behind = reason == "BehindReservation"
    is_room_kept = any(_is_told_of_room(other) for other in world.server.view(TRAINING_JOBS).values())
    if is_behind and not is_room_kept:
        yield f"{name} is told that it would delay another job, and nobody waits for room: {pending['message']}"
    would_delay = is_behind or (is_room_kept and gpus < job["spec"]["gpus"])  # if it began with fewer
    fits = certain >= gpus if gpus % world.size == 0 and not would_delay else False
    if fits and not is_quota_short and not is_name_taken and not is_refused:
        yield f"{name} asks for {gpus} GPUs, {free} are free, and it waits: {reason}: {pending['message']}"
    if reason in {"InsufficientGPUs", "InsufficientResources"} and fits and not is_name_taken:
        yield f"{name} is told {reason}, and {certain} GPUs are free on whole nodes: {pending['message']}"
    if reason == "WaitingForPreferred":
        yield f"{name} still waits for one machine, and nothing has changed for longer than that: {pending['message']}"
    if reason == "NameConflict" and not is_name_taken:
        yield f"{name} is told that a name is taken, and none is: {pending['message']}"
    if reason == QUOTA and not _is_quota_short(world, job, pods=job["spec"]["gpus"]):
        yield f"{name} is told that a quota is too small, and none is: {pending['message']}"
    if reason == "TemplateInvalid" and not is_refused:
        yield f"{name} is told that its template is refused, and it is not: {pending['message']}"


def _is_told_of_room(job: JsonObject) -> bool:
    """Whether a job says when it gets the room that is kept for it, or that some is."""
    return " kept for it" in job.get("status", {}).get("pending", {}).get("message", "")


def _cpu(world: World, job: JsonObject) -> int:
    """CPUs that each Pod of a job asks for; the fifth of one that a sidecar asks for counts whole."""
    pod = _pod(world, job)
    return requests(pod)["cpu"] + ("command" in pod["spec"]["containers"][0])


def _pod(world: World, job: JsonObject) -> JsonObject:
    """A Pod of a job, as far as it asks for CPUs, as admission makes it."""
    namespace, pod = job["metadata"]["namespace"], {"spec": job["spec"]["template"]["spec"]}
    return world.server.defaults.get(namespace, dict)(pod)


def _free(world: World, cpu: int) -> tuple[int, int]:
    """GPUs that are free on nodes that a job may start on: all of them, and those of nodes that are free as a whole.

    Each of its Pods asks for so many CPUs.
    """
    used: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    for pod in world.server.view(PODS).values():
        if is_live(pod) and (node := pod["spec"].get("nodeName") or pin(pod)):
            used[node] += requests(pod)["nvidia.com/gpu"]
            busy[node] += requests(pod)["cpu"]
    for claim in world.server.view(RESOURCE_CLAIMS).values():
        for pool, _ in allocated(claim):
            used[pool] += 1
    jobs = world.server.view(TRAINING_JOBS).values()
    lent = {(share["name"], gpu) for job in jobs for share in held_shares(job) for gpu in share["gpus"]}
    for job in jobs:
        for spare in job["status"]["placement"].get("spares") or () if shares(job) else ():
            used[spare["name"]] += sum((spare["name"], gpu) not in lent for gpu in spare["gpus"])
    free = certain = 0
    for key, node in world.server.view(NODES).items():
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
        taints = [each for each in node["spec"].get("taints") or () if not tolerates(USUAL, each)]
        if not ready or taints or node["spec"].get("unschedulable") or SPARE_FOR_LABEL in node["metadata"]["labels"]:
            continue
        left = int(node["metadata"]["labels"]["test/gpus"]) - used[key.name]
        free += left
        has_room = busy[key.name] + cpu <= allocatable(node)["cpu"]
        certain += left if left == world.size and has_room else 0
    return free, certain


def _is_quota_short(world: World, job: JsonObject, pods: int) -> bool:
    """Whether a quota may be too small for the job in so many Pods."""
    gpus, namespace = job["spec"]["gpus"], job["metadata"]["namespace"]
    sidecar = 200 if "command" in job["spec"]["template"]["spec"]["containers"][0] else 0
    cpus = counted(_pod(world, job))
    asked = Counter({"pods": pods, "requests.nvidia.com/gpu": gpus})
    asked += Counter({name: pods * (cpus[name] + sidecar) for name in CPUS if cpus[name]})
    for key, quota in world.server.view(RESOURCE_QUOTAS).items():
        if key.namespace != namespace:
            continue
        used: Counter[str] = Counter()
        for pod in world.server.view(PODS).values():
            if pod["metadata"]["namespace"] == namespace and is_live(pod):
                used += counted(pod)
        if any(asked[name] > hard - used[name] for name, hard in amounts(quota["spec"]["hard"]).items()):
            return True
    return False


def _left_over(world: World) -> Iterator[str]:
    """Children that nobody needs any more."""
    jobs = {job["metadata"]["uid"]: job for job in world.server.view(TRAINING_JOBS).values()}
    for key, pod in world.server.view(PODS).items():
        if not is_ours(pod) or _is_lost(world, pod):
            continue
        job = jobs.get(owner(pod))
        if job is None:
            yield f"Pod {key} is left of a job that is gone"
        elif attempt_of(pod) != job["status"]["attempt"] and pod["status"]["phase"] not in FINISHED:
            yield f"Pod {key} is left of an attempt that is over"
        elif _is_replaced(job, pod) and pod["status"]["phase"] not in FINISHED:
            yield f"Pod {key} is left though another one has its place"
    pods = {pod["metadata"]["uid"] for pod in world.server.view(PODS).values()}
    for key, claim in world.server.view(RESOURCE_CLAIMS).items():
        if not any(each["uid"] in pods for each in claim["metadata"].get("ownerReferences", ())):
            yield f"ResourceClaim {key} is left of a Pod that is gone"
    for key, service in world.server.view(SERVICES).items():
        if service["metadata"]["ownerReferences"][0]["uid"] not in jobs:
            yield f"Service {key} is left of a job that is gone"


def _is_replaced(job: JsonObject, pod: JsonObject) -> bool:
    """Whether another Pod of the attempt has its place in the gang."""
    child = child_named(pod["metadata"]["name"])
    replaced = (job["status"].get("placement") or {}).get("replaced") or {}
    return child is not None and child.replacement < replaced.get(str(child.index), 0)


def _pods_of(world: World, job: JsonObject) -> list[JsonObject]:
    uid = job["metadata"]["uid"]
    return [pod for pod in world.server.view(PODS).values() if is_ours(pod) and owner(pod) == uid]


def _is_lost(world: World, pod: JsonObject) -> bool:
    """Whether it is told to go, on a machine that will never say that it has gone."""
    kubelet = world.kubelets.get(pod["spec"].get("nodeName") or "")
    return "deletionTimestamp" in pod["metadata"] and kubelet is not None and not kubelet.is_alive


def _why(status: JsonObject) -> str:
    conditions = status.get("conditions", ())
    return "; ".join(f"{each['type']}={each['status']}/{each['reason']} {each['message']}" for each in conditions)
