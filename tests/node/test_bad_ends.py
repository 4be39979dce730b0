"""What goes wrong with a gang on real kubelets: what is told of it, how it ends, and that nothing is left."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.api.names import UNRESTRICTED_TEMPLATES_LABEL
from harness.node.trainers import DEBIAN
from node.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("nothing_is_left")]

WAIT = "exec sleep 600"
TOLD_TO = "crash"  # the file in /reports that a rank waits for
CRASH = (
    f"echo ready; case $HOSTNAME in *1) until [ -e /reports/{TOLD_TO} ]; do sleep 0.1; done; "
    f"echo out of tea > /dev/termination-log; exit 3;; esac; {WAIT}"
)
# /dev/shm stays when all containers of a Pod start again.
CRASH_ONCE = (
    "if [ -e /dev/shm/again ]; then sleep 1; exit 0; fi; touch /dev/shm/again; "
    f"case $HOSTNAME in *-*1) sleep 1; echo out of tea > /dev/termination-log; exit 3;; *) {WAIT};; esac"
)
END_SOON_S = 60  # a grace period of one second, and a start; others may need the cores, too
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 1; done"
GRACE_S = 1


@pytest.fixture(scope="module", autouse=True)
def claims(jobs: Jobs) -> Iterator[None]:
    with jobs.stand.claims():
        yield


def test_the_crash_of_a_rank_fails_the_job_beside_whatever_runs_on_and_every_rank_keeps_its_log(jobs: Jobs) -> None:
    """The other rank, and an exporter in each Pod, would go on: kubelets end them, and so their GPUs are free."""
    jobs.begin("crash")
    train_beside_an_exporter(jobs, CRASH)
    jobs.wait_for_state("Running")
    for node in jobs.stand.nodes:
        (node.reports / TOLD_TO).touch()
    jobs.wait_for_end("Failed")
    message = "container trainer of Pod train-a1-worker-00001 on node node-2 ended with exit code 3: out of tea"
    failed = jobs.condition("Failed")
    assert (failed["reason"], failed["message"]) == ("PodFailed", message)
    jobs.wait_for_told("Placed", "PodFailed")
    assert stopped(jobs) == {"train-a1-worker-00000": "ready", "train-a1-worker-00001": "ready"}


def test_a_gang_of_which_a_rank_has_crashed_runs_again_and_tells_what_that_took(jobs: Jobs) -> None:
    jobs.begin("again")
    jobs.train(["sh", "-c", CRASH_ONCE], gpus=16, restart={"limit": 1})
    status = jobs.wait_for_end("Succeeded")
    first, last = status["attempts"]
    assert (first["reason"], first["charged"], last["reason"]) == ("PodFailed", True, "Succeeded")
    (said,) = first["exits"]
    assert (said["pod"], said["exitCode"], said["message"]) == ("train-a1-worker-00001", 3, "out of tea")
    assert (status["restarts"], len(status["charges"]), first["inPlace"]) == (1, 1, True)
    assert set(first["phases"]) == {"detect", "decide", "free", "bind", "start"}
    assert sum(int(length[:-1]) for length in first["phases"].values()) < END_SOON_S


def test_a_job_whose_trainers_are_done_is_over_beside_whatever_runs_on(jobs: Jobs) -> None:
    jobs.begin("done")
    train_beside_an_exporter(jobs, "echo done")
    jobs.wait_for_end("Succeeded")
    assert stopped(jobs) == {"train-a1-worker-00000": "done", "train-a1-worker-00001": "done"}


def train_beside_an_exporter(jobs: Jobs, script: str) -> None:
    names = {"exporter": WAIT, "trainer": script}
    containers = [{"name": name, "image": DEBIAN.image, "command": ["sh", "-c", names[name]]} for name in names]
    jobs.submit("train", gpus=16, template={"spec": {"terminationGracePeriodSeconds": 1, "containers": containers}})


def stopped(jobs: Jobs) -> dict[str, str]:
    """What the trainer of each Pod has said, once none of its containers runs any more."""
    jobs.cluster.wait_for(lambda: not jobs.live_pods(), "all Pods to have ended", 30)
    for pod in jobs.all("pods"):
        assert not any("running" in each["state"] for each in pod["status"]["containerStatuses"])
    here = f"--namespace={jobs.namespace}"
    return {pod: jobs.cluster.kubectl("logs", pod, "--container=trainer", here).strip() for pod in jobs.names("pods")}


def test_an_image_without_the_program_fails_the_job(jobs: Jobs) -> None:
    jobs.begin("wrong")
    jobs.train(["/no/such/program"], gpus=16)
    jobs.wait_for_end("Failed")
    message = jobs.condition("Failed")["message"]
    assert "ended with exit code 128 (StartError)" in message and "/no/such/program" in message
    jobs.wait_for_told("Placed", "PodFailed")


def test_an_image_that_cannot_be_pulled_is_told(jobs: Jobs) -> None:
    jobs.begin("unpullable")
    jobs.train(["true"], image="127.0.0.1:1/nothing:1", gpus=16)  # where nobody listens
    jobs.cluster.wait_for(lambda: jobs.condition("Running").get("reason") == "NotStarting", "that to be told")
    message = jobs.condition("Running")["message"]
    assert "does not start: container trainer waits for ErrImagePull" in message
    assert "127.0.0.1:1/nothing:1" in message
    jobs.wait_for_told("Placed", "NotStarting")
    assert jobs.job()["status"].get("attempts", []) == []


def test_a_container_that_ignores_its_end_is_gone_after_its_grace_period(jobs: Jobs) -> None:
    jobs.begin("stubborn")
    jobs.train(["sh", "-c", STUBBORN], gpus=16)
    jobs.wait_for_state("Running")
    jobs.change("trainingjob", "train", {"spec": {"suspend": True}})
    jobs.wait_for_state("Suspended")
    jobs.cluster.wait_for(lambda: not jobs.names("pods"), "its Pods to be gone", GRACE_S + 20)
    assert not jobs.names("resourceclaims")
    jobs.change("trainingjob", "train", {"spec": {"suspend": False}})
    jobs.wait_for_state("Running")  # on the same GPUs, which are free


def test_what_never_starts_is_told_and_leaves_nothing(jobs: Jobs) -> None:
    """Two jobs on a node each, side by side, for the first takes a while: a claim that stays pending, one of the
    template's own which no device can meet, and a Pod that never becomes ready, for which there is no ConfigMap."""
    jobs.begin("stalled", **{UNRESTRICTED_TEMPLATES_LABEL: "true"})
    jobs.cluster.apply(impossible("extra", jobs.namespace))
    claims = {"resourceClaims": [{"name": "extra", "resourceClaimName": "extra"}]}
    submit(jobs, "pending", {"resources": {"claims": [{"name": "extra"}]}}, claims)
    submit(jobs, "train", {"envFrom": [{"configMapRef": {"name": "settings"}}]}, {})

    jobs.cluster.wait_for(lambda: jobs.condition("Running").get("reason") == "NotStarting", "that to be told")
    running = jobs.condition("Running")["message"]
    assert "does not start: container trainer waits for CreateContainerConfigError" in running
    assert 'configmap "settings" not found' in running
    assert jobs.job()["status"].get("attempts", []) == []  # somebody may yet make it
    metadata = {"name": "settings", "namespace": jobs.namespace}
    jobs.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}})
    jobs.wait_for_state("Running")

    (ended,) = jobs.cluster.wait_for(lambda: jobs.job("pending")["status"].get("attempts"), "it to end", 60)
    assert (ended["reason"], ended["charged"]) == ("Unschedulable", False)
    assert "cannot be scheduled on node" in ended["message"] and "cannot allocate all claims" in ended["message"]
    expected = ["NotStarting", "Placed", "Placed", "Unschedulable"]
    jobs.cluster.wait_for(lambda: [each for each in sorted(jobs.told()) if each in expected] == expected, "the Events")


def test_a_pod_that_runs_and_never_becomes_ready_is_told(jobs: Jobs) -> None:
    """After ten minutes. They are not waited for: that it has run and not been ready for longer is put into the status
    of job and Pod, where the kubelet has its own right again within ten seconds."""
    jobs.begin("unready")
    submit(jobs, "train", {"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}}, {})
    jobs.wait_for_state("Running")
    (pod,) = jobs.all("pods")
    jobs.cluster.patch("trainingjob", "train", aged(jobs.job(), "Running"), jobs.namespace, "status")
    jobs.cluster.patch("pod", pod["metadata"]["name"], aged(pod, "Ready"), jobs.namespace, "status")
    jobs.wait_for_told("Placed", "PodsNotReady")
    (told,) = (each for each in jobs.all("events.events.k8s.io") if each["reason"] == "PodsNotReady")
    assert told["note"] == "train-a1-worker-00000 not ready for 10 min: containers with unready status: [trainer]"
    status = jobs.job()["status"]
    assert (status["state"], status.get("attempts", [])) == ("Running", [])  # nothing ends by it


def aged(of: dict[str, Any], kind: str) -> dict[str, Any]:
    """The status with this condition as old as if that had been eleven minutes ago."""
    long_ago = f"{datetime.now(UTC) - timedelta(minutes=11):%Y-%m-%dT%H:%M:%SZ}"
    conditions = of["status"]["conditions"]
    changed = [each | ({"lastTransitionTime": long_ago} if each["type"] == kind else {}) for each in conditions]
    return {"status": {"conditions": changed}}


def test_a_claim_on_gpus_that_somebody_takes_ends_the_attempt(jobs: Jobs) -> None:
    """He asks for them behind our back; the job waits until he has gone."""
    jobs.begin("thief")
    jobs.cluster.apply(*thief(jobs.namespace, "node-1"))
    jobs.cluster.wait_for(lambda: phase(jobs, "thief") == "Running", "the thief to have them")
    jobs.train(["sh", "-c", WAIT], gpus=16)
    jobs.wait_for_reason("InsufficientGPUs")
    assert jobs.names("pods") == ["thief"]
    jobs.cluster.kubectl("delete", "pod,resourceclaim", "thief", f"--namespace={jobs.namespace}")
    jobs.wait_for_state("Running")


def test_a_node_that_boots_anew_is_charged_to_nobody(jobs: Jobs) -> None:
    """containerd then finds the record of a container and no process, and calls that exit code 255."""
    jobs.begin("reboot")
    jobs.train(["sh", "-c", WAIT], gpus=8)
    jobs.wait_for_state("Running")
    (node,) = (each for each in jobs.stand.nodes if each.site.name == jobs.nodes_of_pods()[0])
    node.reboot()
    status = jobs.cluster.wait_for(
        lambda: jobs.job()["status"] if jobs.job()["status"].get("attempts") else None, "it to end", 60
    )
    (ended,) = status["attempts"]
    assert (ended["reason"], ended["charged"]) == ("NodeLost", False)
    assert ended["message"].startswith(f"node {node.site.name} lost a container of Pod train-a1-worker-00000")
    assert jobs.wait_for_state("Running")["attempt"] == 2
    jobs.cluster.wait_for(lambda: len(jobs.cluster.get("resourceslices")["items"]) == 2, "its GPUs to be offered", 60)


def phase(jobs: Jobs, pod: str) -> str | None:
    status: dict[str, str] = jobs.cluster.get("pod", pod, jobs.namespace).get("status", {})
    return status.get("phase")


def thief(namespace: str, node: str) -> list[dict[str, object]]:
    """A Pod with a claim on one GPU of a node."""
    metadata = {"name": "thief", "namespace": namespace}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}
    container = {
        "name": "main",
        "image": "closeknit.dev/inmate:1",
        "args": ["pause"],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "thief"}],
        "containers": [container],
    }
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    return [
        {**claim, "spec": {"devices": {"requests": [request]}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    ]


def submit(jobs: Jobs, name: str, container: dict[str, Any], spec: dict[str, Any]) -> None:
    """A job of one node, with this in its container and in its Pod."""
    trainer = {"name": "trainer", "image": DEBIAN.image, "command": ["sh", "-c", WAIT], **container}
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [trainer], **spec}}
    jobs.submit(name, gpus=8, template=template)


def impossible(name: str, namespace: str) -> dict[str, Any]:
    """A claim on a GPU that no node has."""
    selector = {"cel": {"expression": "device.attributes['gpu.nvidia.com'].uuid == 'of nobody'"}}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1, "selectors": [selector]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": [request]}},
    }
