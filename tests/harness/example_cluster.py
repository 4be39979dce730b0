"""`python -m harness.example_cluster` writes examples/cluster.yaml: a small cluster for the first taste of closeknit.

Machines are the agent's profiles, less what no decision looks at, so that a person can read the file.
"""

from pathlib import Path
from typing import Any

import yaml

from closeknit.agent.discovery.topology import discover
from closeknit.api.names import API_VERSION, GPU_DRA_DRIVER
from closeknit.api.nodetopology import Method
from harness.machines import node_object, readings, resource_slices

FILE = Path(__file__).parents[2] / "examples" / "cluster.yaml"
RACK_LABEL = "example.com/rack"
HELD = (2, 5)  # of gpu-03: the first four that are left have no NVLink ring, a better four has

_HEAD = """\
# A small cluster to try `closeknit plan` on, as `kubectl get -o yaml` would print it, with less around it:
#
#   rack r1   gpu-01  gpu-05   8 x H200 behind NVSwitch, a 400 Gb/s InfiniBand NIC beside each GPU; device plugin
#   rack r2   gpu-02           the same machine
#             gpu-03           DGX-1: 8 x V100 in a cube of single and double NVLinks; DRA; 2 GPUs are taken
#             gpu-04           8 x RTX A6000, bridged in pairs; device plugin
#
#   closeknit plan -f examples/tensor-4.yaml --cluster examples/cluster.yaml
#
# Written by tests/harness/example_cluster.py from the machine profiles that the agent simulates.
"""
_MAP, _SEQUENCE = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"
_DROPPED = {
    "gpus": ("minor", "mig", "architecture"),
    "nics": ("netdev", "virtualFunction", "pciAddress"),
    "source": ("driverVersion", "cudaVersion", "kernelModule", "virtualized"),
}


def text() -> str:
    """The file."""
    levels = {"levels": [{"name": "rack", "nodeLabel": RACK_LABEL}], "fabric": {"levelBandwidthGBps": {"rack": 25}}}
    parts = [
        ("The network: racks, told by a label of the nodes; between racks a node reaches 25 GB/s.", _level(levels)),
        ("", _node("gpu-01", "r1", "hgx-h200", rdma=True)),
        ("", _topology("gpu-01", "hgx-h200")),
        ("", _node("gpu-02", "r2", "hgx-h200", rdma=True)),
        ("", _topology("gpu-02", "hgx-h200")),
        ("", _node("gpu-03", "r2", "dgx1-v100", dra=True)),
        ("", _topology("gpu-03", "dgx1-v100")),
        ("What NVIDIA's DRA driver says of the same GPUs: claims can name them.", _slice("gpu-03", "dgx1-v100")),
        ("Somebody's notebook holds two of them.", _claim("gpu-03")),
        ("", _node("gpu-04", "r2", "pcie-bridges-8")),
        ("", _topology("gpu-04", "pcie-bridges-8")),
        ("", _node("gpu-05", "r1", "hgx-h200", rdma=True)),
        ("", _topology("gpu-05", "hgx-h200")),
    ]
    documents = [(f"# {comment}\n" if comment else "") + _dumped(body) for comment, body in parts]
    return _HEAD + "---\n" + "---\n".join(documents)


def _level(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "ClusterTopology", "metadata": {"name": "default"}, "spec": spec}


def _node(name: str, rack: str, profile: str, *, dra: bool = False, rdma: bool = False) -> dict[str, Any]:
    made = node_object(name, profile, plugin=not dra, rdma=8 if rdma else 0)
    made["metadata"] = {"name": name, "labels": {RACK_LABEL: rack}}
    made["status"] = {
        "allocatable": made["status"]["allocatable"],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return made


def _topology(name: str, profile: str) -> dict[str, Any]:
    spec = discover(readings(name, profile), Method.SIMULATED).spec.wire()
    for field, dropped in _DROPPED.items():
        for each in spec[field] if isinstance(spec[field], list) else [spec[field]]:
            for key in dropped:
                each.pop(key, None)
    kept = {key: _without_empty(value) for key, value in spec.items()}
    metadata = {"name": name, "generation": 1}
    body = {key: value for key, value in kept.items() if value not in ([], {})}
    return {"apiVersion": API_VERSION, "kind": "NodeTopology", "metadata": metadata, "spec": body}


def _without_empty(value: Any) -> Any:
    return {key: each for key, each in value.items() if each not in ([], {})} if isinstance(value, dict) else value


def _slice(name: str, profile: str) -> dict[str, Any]:
    (made,) = resource_slices(name, profile)
    for device in made["spec"]["devices"]:
        device["attributes"] = {key: device["attributes"][key] for key in ("type", "uuid")}
        del device["capacity"]
    return made


def _claim(node: str) -> dict[str, Any]:
    results = [{"request": "gpus", "driver": GPU_DRA_DRIVER, "pool": node, "device": f"gpu-{index}"} for index in HELD]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "notebook", "namespace": "team-b"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


class _Line(dict[str, Any]):
    """A mapping that is written in one line."""


class _Rows(list[str]):
    """A list that is written one entry a line."""


class _Dumper(yaml.SafeDumper):
    """Entries of lists in one line each, other mappings as blocks."""


_Dumper.add_representer(_Line, lambda dumper, body: dumper.represent_mapping(_MAP, body, flow_style=True))
_Dumper.add_representer(_Rows, lambda dumper, body: dumper.represent_sequence(_SEQUENCE, body, flow_style=False))


def _dumped(body: dict[str, Any]) -> str:
    return yaml.dump(_styled(body), Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=1000)


def _styled(value: Any) -> Any:
    match value:
        case dict():
            return {key: _styled(each) for key, each in value.items()}
        case [str() as first, *_] if " " in first:
            return _Rows(value)
        case list():
            return [_Line(each) if isinstance(each, dict) else each for each in value]
        case _:
            return value


if __name__ == "__main__":
    FILE.write_text(text())
