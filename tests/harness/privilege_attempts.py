"""Writes that RBAC lets through and admission judges: one of each sort, as the privilege audit tries them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PODS = "/api/v1/namespaces/{team}/pods"
_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{team}/resourceclaims"
_CONFIG_MAPS = "/api/v1/namespaces/{team}/configmaps"
_SECRETS = "/api/v1/namespaces/{team}/secrets"
_JOBS = "/apis/closeknit.dev/v1alpha1/namespaces/{team}/trainingjobs"
_LABELS = {"closeknit.dev/job": "gone", "closeknit.dev/attempt": "1"}
_MEMBER = {**_LABELS, "closeknit.dev/role": "worker", "closeknit.dev/index": "0"}
_OWNER = {
    "apiVersion": "closeknit.dev/v1alpha1",
    "kind": "TrainingJob",
    "name": "gone",
    "uid": "b3e7a5c0-0000-4000-8000-000000000000",
    "controller": True,
}
# What Pod Security's level restricted admits, so that a namespace that enforces it leaves the answer to us.
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_SERVICE_OWNER = {**_OWNER, "apiVersion": "v1", "kind": "Service", "name": "gone-a1"}
_NAME = "gone-a1-worker-00000"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One write, sent as a dry run."""

    who: str
    what: str
    path: str
    body: Mapping[str, Any] | None = None
    method: str = "POST"
    content_type: str = "application/json"


def _pod(owners: Sequence[Any] = (), **container: Any) -> dict[str, Any]:
    trainer = {"name": "trainer", "image": "registry.example/train:1", **container}
    metadata = {"name": _NAME, "ownerReferences": list(owners)} | ({"labels": _MEMBER} if owners else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [trainer]}}


def _service(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "gone-a1", "labels": _LABELS, "ownerReferences": [_OWNER]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": _LABELS, **spec}}


def _config_map(owners: Sequence[Any]) -> dict[str, Any]:
    metadata = {"name": "gone-a1-0123456789", "labels": _LABELS, "ownerReferences": list(owners)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": {"hostfile": ""}}


def _secret(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"closeknit.dev/job": "gone"}, "ownerReferences": [_OWNER]}
    data = {"ssh-privatekey": "", "ssh-publickey": ""}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "immutable": True, "data": data}


def _claim(**exactly: Any) -> dict[str, Any]:
    owner = {**_OWNER, "apiVersion": "v1", "kind": "Pod", "name": _NAME}
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", **exactly}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": _NAME, "labels": _MEMBER, "ownerReferences": [owner]},
        "spec": {"devices": {"requests": [request]}},
    }


_ADDRESS = "device.attributes['dra.net'].pciAddress"
_PINNED = f"device.driver == 'dra.net' && has({_ADDRESS}) && {_ADDRESS} in ['0000:1a:00.0']"
_NICS = {"selectors": [{"cel": {"expression": _PINNED}}]}


def _job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}], **spec}}
    body = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "train"}}
    return {**body, "spec": {"gpus": 1, "template": template}}


_TOPOLOGY = {
    "apiVersion": "closeknit.dev/v1alpha1",
    "kind": "NodeTopology",
    "metadata": {"name": "another"},
    "spec": {"source": {"method": "Simulated"}, "gpus": []},
}
_MERGE = "application/merge-patch+json"
ATTEMPTS = (
    Attempt("operator", "a Pod that is a job's child", _PODS, _pod([_OWNER])),
    Attempt("operator", "a Pod that is nobody's", _PODS, _pod()),
    Attempt("operator", "a privileged child", _PODS, _pod([_OWNER], securityContext={"privileged": True})),
    Attempt("operator", "a child in kube-system", "/api/v1/namespaces/kube-system/pods", _pod([_OWNER])),
    Attempt(
        "operator",
        "a child in its own namespace",
        "/api/v1/namespaces/{own}/pods",
        _pod([_OWNER], securityContext=_RESTRICTED),
    ),
    Attempt("operator", "the end of another's Pod", f"{_PODS}/bank", method="DELETE"),
    Attempt(
        "operator", "a headless Service of a job", "/api/v1/namespaces/{team}/services", _service(clusterIP="None")
    ),
    Attempt(
        "operator",
        "a Service with an externalIP",
        "/api/v1/namespaces/{team}/services",
        _service(clusterIP="None", externalIPs=["203.0.113.7"]),
    ),
    Attempt("operator", "a claim of a child", _CLAIMS, _claim()),
    Attempt("operator", "a claim of another device class", _CLAIMS, _claim(deviceClassName="another.example.com")),
    Attempt("operator", "a claim of NICs by PCI address", _CLAIMS, _claim(deviceClassName="dranet", **_NICS)),
    Attempt("operator", "the files of an attempt", _CONFIG_MAPS, _config_map([_SERVICE_OWNER])),
    Attempt("operator", "a ConfigMap that is nobody's", _CONFIG_MAPS, _config_map([])),
    Attempt("operator", "the key pair of a job", _SECRETS, _secret(f"gone-ssh-{_OWNER['uid']}")),
    Attempt("operator", "a Secret under another name", _SECRETS, _secret("bank")),
    Attempt("operator", "the end of a TrainingJob that is not over", f"{_JOBS}/bank", method="DELETE"),
    Attempt("operator", "the end of another's Secret", f"{_SECRETS}/bank", method="DELETE"),
    Attempt(
        "agent",
        "a label of another node",
        "/api/v1/nodes/{node}",
        {"metadata": {"labels": {"closeknit.dev/health": "healthy"}}},
        "PATCH",
        _MERGE,
    ),
    Attempt("agent", "a NodeTopology of another node", "/apis/closeknit.dev/v1alpha1/nodetopologies", _TOPOLOGY),
    Attempt("test", "a TrainingJob in its own namespace", _JOBS.replace("{team}", "{own}"), _job()),
    Attempt("tenant", "a TrainingJob", _JOBS, _job()),
    Attempt("tenant", "a TrainingJob on the host's network", _JOBS, _job(hostNetwork=True)),
    Attempt(
        "tenant", "a TrainingJob with a service account that it may not use", _JOBS, _job(serviceAccountName="strong")
    ),
    Attempt("tenant", "a Pod", _PODS, _pod()),
    Attempt("tenant", "a Pod with the operator's labels", _PODS, _pod([_OWNER])),
    Attempt("tenant", "a claim with the operator's labels", _CLAIMS, _claim()),
    Attempt(
        "tenant",
        "an annotation of GPUs on a Pod",
        f"{_PODS}/bank",
        {"metadata": {"annotations": {"closeknit.dev/gpus": "GPU-0"}}},
        "PATCH",
        _MERGE,
    ),
    Attempt("scraper", "a TrainingJob", _JOBS, _job()),
    Attempt("stranger", "a TrainingJob", _JOBS, _job()),
)
