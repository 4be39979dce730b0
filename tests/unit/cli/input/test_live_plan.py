"""`closeknit plan` of a running cluster, which is asked for its objects, and by dry runs what it says to the job."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.live import cluster_objects
from closeknit.cli.plan.plan_decision import Placed, PlanRefused
from faults.http_server import serving

EXAMPLES = Path(__file__).parents[4] / "examples"
OBJECTS = list(yaml.safe_load_all((EXAMPLES / "cluster.yaml").read_text()))
PLURALS = {"ClusterTopology": "clustertopologies", "NodeTopology": "nodetopologies"}
INVALID = {"kind": "Status", "code": 422, "reason": "Invalid", "message": 'Pod "x" is invalid: spec.y: Required value'}


@dataclass
class Cluster:
    """An API server with the objects of the examples, which serves no DRA."""

    may_not: tuple[str, ...] = ()
    """Create objects of these kinds."""
    says: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What it answers to the objects of a kind, one after another; else it takes them."""
    made: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    lacks: tuple[str, ...] = ("resourceslices", "resourceclaims", "deviceclasses")
    """Kinds that it does not serve."""

    async def answer(self, request: web.Request) -> web.Response:
        plural = request.path.rpartition("/")[2]
        if request.method == "GET":
            items = [each for each in OBJECTS if PLURALS.get(each["kind"], f"{each['kind'].lower()}s") == plural]
            if plural in self.lacks:
                return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
            if plural == "pods" and "closeknit.dev/job" in request.query.get("labelSelector", "").split(","):
                items = []
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        body = await request.json()
        if plural == "selfsubjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            assert (asked["verb"], asked["namespace"]) == ("create", "of-context")
            return web.json_response({"status": {"allowed": asked["resource"] not in self.may_not}}, status=201)
        assert (request.query["dryRun"], body["metadata"]["namespace"]) == ("All", "of-context")
        self.made.append((plural, body))
        said = self.says.get(plural) or [{}]
        found = said.pop(0) if len(said) > 1 else said[0]
        return web.json_response(found or body, status=found.get("code", 201))


def planned(cluster: Cluster, folder: Path, **spec: Any) -> Placed | PlanRefused:
    made = yaml.safe_load((EXAMPLES / "pytorch-16gpu.yaml").read_text())
    made["spec"] |= spec
    made["metadata"] = {"name": "train", "labels": {"team": "a"}, "resourceVersion": "7", "uid": "of-another-cluster"}
    (folder / "job.yaml").write_text(yaml.safe_dump(made))

    async def main() -> Placed | PlanRefused:
        async with serving(cluster.answer, folder):
            config = json.loads((folder / "kubeconfig").read_text())
            config["contexts"][0]["context"]["namespace"] = "of-context"
            (folder / "kubeconfig").write_text(json.dumps(config))
            return await cluster_objects.plan(folder / "job.yaml", Reach(folder / "kubeconfig"), datetime.now(UTC))

    return asyncio.run(main())


def test_a_job_is_placed_and_offered_to_the_cluster_as_it_would_be_made(tmp_path: Path) -> None:
    """In the namespace of the context. Nothing of ours is on the Pod that is asked about: no user may write it."""
    cluster = Cluster()
    answer = planned(cluster, tmp_path)
    assert isinstance(answer, Placed)
    assert (str(answer.job), answer.placement.node_count) == ("of-context/train", 2)
    assert answer.unchecked == (cluster_objects.NOT_LOOKED_FOR,)
    (first, job), (second, pod) = cluster.made
    assert (first, second) == ("trainingjobs", "pods")
    assert job["metadata"] == {"name": "train", "namespace": "of-context", "labels": {"team": "a"}}
    assert "status" not in job
    assert pod["metadata"]["name"] == "train-a1-worker-00000"
    assert "ownerReferences" not in pod["metadata"]
    assert not [
        key for field in ("labels", "annotations") for key in pod["metadata"].get(field, ()) if "closeknit" in key
    ]
    (trainer,) = pod["spec"]["containers"]
    assert trainer["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert {each["name"]: each.get("value") for each in trainer["env"]}["PET_NNODES"] == "2"


@pytest.mark.parametrize("kind", ["pods", "trainingjobs"])
def test_what_the_api_server_refuses_does_not_fit(tmp_path: Path, kind: str) -> None:
    answer = planned(Cluster(says={kind: [INVALID]}), tmp_path)
    assert isinstance(answer, PlanRefused)
    what = "Pod" if kind == "pods" else "TrainingJob"
    assert (answer.pending.reason, answer.pending.message) == (
        "TemplateInvalid",
        f"the API server refuses its {what}: {INVALID['message']}",
    )


def test_a_name_that_is_taken_is_no_refusal(tmp_path: Path) -> None:
    taken = {"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "already exists"}
    assert isinstance(planned(Cluster(says={"trainingjobs": [taken], "pods": [taken]}), tmp_path), Placed)


def test_what_nobody_may_ask_is_told(tmp_path: Path) -> None:
    cluster = Cluster(may_not=("pods", "trainingjobs"))
    answer = planned(cluster, tmp_path)
    assert isinstance(answer, Placed)
    assert cluster.made == []
    assert answer.unchecked == (
        "what the API server says to its TrainingJob, for you may not create trainingjobs in of-context",
        "what the API server says to its Pod, for you may not create pods in of-context",
        cluster_objects.NOT_LOOKED_FOR,
    )


def test_where_ipc_lock_is_refused_the_pod_goes_without(tmp_path: Path) -> None:
    """As the operator does it."""
    refused = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "violates PodSecurity: IPC_LOCK"}
    cluster = Cluster(says={"pods": [refused, {}]})
    answer = planned(cluster, tmp_path, network={"rdma": "Required"})
    assert isinstance(answer, Placed)
    added = [body["spec"]["containers"][0].get("securityContext", {}) for kind, body in cluster.made if kind == "pods"]
    assert ["IPC_LOCK" in json.dumps(each) for each in added] == [True, False]
    assert answer.lacks is not None and "refuses IPC_LOCK" in answer.lacks.message


def test_a_job_that_does_not_fit_is_not_offered(tmp_path: Path) -> None:
    cluster = Cluster()
    assert isinstance(planned(cluster, tmp_path, gpus=512), PlanRefused)
    assert cluster.made == []


def test_who_may_not_look_is_told_so(tmp_path: Path) -> None:
    class Blind(Cluster):
        async def answer(self, _request: web.Request) -> web.Response:
            return web.json_response(
                {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "nodes is forbidden"}, status=403
            )

    with pytest.raises(NotThere, match="cannot ask the cluster: nodes is forbidden"):
        planned(Blind(), tmp_path)


def test_what_serves_no_nodes_is_no_cluster_without_gpus(tmp_path: Path) -> None:
    """So a way to another server, or to another path of it, shows: an ingress answers 404 to everything."""
    with pytest.raises(NotThere, match="serves no Nodes, as every API server does: is its URL"):
        planned(Cluster(lacks=("nodes", "pods", "nodetopologies", "trainingjobs")), tmp_path)
    ours = ("nodetopologies", "clustertopologies", "trainingjobs")
    answer = planned(Cluster(lacks=ours), tmp_path)
    assert isinstance(answer, PlanRefused)
    assert "no node agent has measured a GPU here" in answer.pending.message
