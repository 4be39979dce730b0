"""Fleets in which every feature meets, what happens to them, and what jobs ask of them; all of it by chance, by a seed.

Machines of NVLink domains beside others, IMEX channels that come and go, MIG devices, GPUs that replicas share, rails,
NICs that come into Pods in all ways, CPUs, taints, faults, and Pods, claims and jobs that hold parts of nodes. They are
Kubernetes objects, so that what follows events is tested with what is asked.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any

from closeknit.api.affinity import NodeAffinity, NodeRequirement, Operator, Term
from closeknit.api.names import GPU_RESOURCE, IMEX_CHANNELS, MNNVL
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import ObjectChange, change, from_document
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from scenarios.clusters import wanted
from scenarios.machines import MACHINES
from scenarios.manifests import (
    Manifest,
    allocation,
    booked,
    cluster_topology,
    cut,
    device_class,
    nic_claim,
    nic_slice,
    node,
    node_topology,
    pod,
    resource_claim,
    resource_slice,
    told,
    training_job,
)

Key = tuple[str, str, str]
"""Kind, namespace, name."""

LEVELS = ("block", "rack")
FUNCTIONS = ("site.example/rail0", "site.example/rail1")
WAYS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "shared": {"rdma/hca": "16"},
    "another shared": {"rdma/ib": "16"},
    "one shared": {"rdma/hca": "1"},
    "SR-IOV": dict.fromkeys(FUNCTIONS, "4"),
    "one function": {FUNCTIONS[0]: "4"},
    "GKE": {f"networking.gke.io.networks/rdma-{number}": "1" for number in range(2)},
    "DRANET": {},
}
"""How NICs come into Pods: what a node's device plugins offer."""
BINDINGS = (("DRA",), ("DRA",), ("plugin",), ("DRA", "DRA", "plugin"), ("DRA", "DRA", "DRA", "plugin", "replicas"))
"""How the GPUs of nodes are given to Pods, in one fleet and another."""
KINDS = ("gb200-tray", "gb200-tray", "hgx-h200", "hgx-h200", "a100x4", "pcie-only", "pairs8")
"""Machines that are searched in some milliseconds."""
PROFILE = "1g.18gb"
TAINT = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


class Followed:
    """The Cluster that follows a world of objects change by change."""

    def __init__(self) -> None:
        self.cluster = Cluster.empty()
        self._shown: dict[Key, str] = {}
        self._values: dict[Key, ObjectChange] = {}

    def of(self, objects: Mapping[Key, Manifest], now: datetime | None = None) -> Cluster:
        """The Cluster once it has seen what these are, at this moment."""
        changes = []
        for key, manifest in objects.items():
            text = json.dumps(manifest, sort_keys=True)
            if self._shown.get(key) != text and (value := from_document(manifest)) is not None:
                self._values[key] = change(value)
                changes.append(self._values[key])
                self._shown[key] = text
        for key in self._shown.keys() - objects.keys():
            changes.append(replace(self._values.pop(key), new=None))
            del self._shown[key]
        self.cluster = self.cluster.after(changes)
        if now is not None:
            self.cluster = self.cluster.at(now)
        return self.cluster


class Fleet:
    """Some nodes, and what happens to them. `objects` may have others."""

    def __init__(
        self,
        chance: Random,
        objects: dict[Key, Manifest],
        *,
        nodes: int,
        put: Callable[[Manifest], object] | None = None,
    ) -> None:
        """`put` is how somebody makes an object, or changes all of it; without it the object is put as it is."""
        self.chance = chance
        self.objects = objects
        self.put = put or self._put
        self.names = [f"gpu-{number}" for number in range(nodes)]
        # A gang is mostly of one kind of machine, and what tells its nodes apart is how it gets NICs.
        self._machines = chance.sample(KINDS, k=chance.choice((1, 1, 2, 3)))
        self._ways = chance.sample(sorted(WAYS), k=chance.choice((2, 3, len(WAYS))))
        self._bindings = chance.choice(BINDINGS)
        self._is_empty = chance.random() < 0.7
        self._serial = 0
        self._describe()
        self.put(device_class("nics", selectors=['device.driver == "dra.net"']))
        if chance.random() < 0.7:
            self.put(device_class(IMEX_CHANNELS))
        for name in self.names:
            self._stand(name)

    def _put(self, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        self.objects[manifest["kind"], metadata.get("namespace", ""), metadata["name"]] = manifest

    def happen(self) -> None:
        """One event."""
        events: Sequence[Callable[[], None]] = (
            self._hold, self._hold, self._book, self._book, self._end, self._end, self._end, self._end, self._work,
            self._sicken, self._taint, self._move, self._renew, self._renew, self._remove, self._describe,
            self._channels, self._use_nics, self._unplug, self._tell,
        )  # fmt: skip
        self.chance.choice(events)()

    def join_otherwise(self) -> None:
        """Nothing but what joins the nodes is another."""
        self.chance.choice((self._describe, self._channels))()

    def take(self, placement: Placement) -> None:
        """A job is booked where it was placed."""
        shares = [(share.node, share.gpus) for share in placement.shares if not share.mig_device]
        if shares:
            first = placement.shares[0]
            nics, resource = first.nics, first.rdma_resource
            self._booked(booked(*shares, binding=str(first.binding), nics=nics, rdma_resource=resource))

    def _describe(self) -> None:
        """The site says something of its network, another thing than before."""
        chance = self.chance
        fabric: Manifest = {"railIsolated": chance.random() < 0.3}
        if chance.random() < 0.5:
            fabric["levelBandwidthGBps"] = {chance.choice(LEVELS): chance.choice((15, 60, 300))}
        if chance.random() < 0.7:
            networks = [{"resource": each, "network": f"default/{each.partition('/')[2]}"} for each in FUNCTIONS]
            fabric["sriovNetworks"] = networks[: chance.choice((1, 2, 2))]
        levels = chance.choice(((), LEVELS[:1], LEVELS, LEVELS, LEVELS)) if chance.random() < 0.3 else LEVELS
        self.put(cluster_topology(*levels, fabric=fabric))

    def _stand(self, name: str) -> None:
        """A node comes, or another machine in its place."""
        chance = self.chance
        kind, way, binding = chance.choice(self._machines), chance.choice(self._ways), chance.choice(self._bindings)
        labels = {"pool": chance.choice(("a", "b")), "net.example/block": chance.choice(("b1", "b1", "b2"))}
        if chance.random() < 0.9:
            labels["net.example/rack"] = chance.choice(("r1", "r2"))
        spec = MACHINES[kind](name).wire()
        topology = {**node_topology(name), "spec": spec}
        if kind == "gb200-tray":
            nvlink = spec["nvlink"]
            domain = chance.choice((None, 1, 1, 1, 2))
            spec["nvlink"] = {key: value for key, value in nvlink.items() if key != "domain"}
            if domain:
                spec["nvlink"]["domain"] = {**nvlink["domain"], "cliqueID": domain}
        elif kind == "hgx-h200" and chance.random() < 0.2:
            labels["nvidia.com/gpu.clique"] = "c0ffee.1"
        count, offers = len(spec["gpus"]), dict(WAYS[way])
        if kind == "hgx-h200" and chance.random() < 0.2:
            topology = cut(topology, chance.randrange(count), PROFILE)
            count -= 1
            offers[f"nvidia.com/mig-{PROFILE}"] = "7"
        gpus = {"DRA": None, "plugin": count, "replicas": 4 * count}[binding]
        if binding == "replicas":
            labels["nvidia.com/gpu.replicas"] = "4"
        offers |= {"cpu": str(chance.choice((16, 64, 128)))}
        self._clear(name)
        self.put(node(name, gpus=gpus, allocatable=offers, labels=labels))
        self.put(topology)
        if binding == "DRA":
            self.put(resource_slice(name, range(len(spec["gpus"]))))
        if way == "DRANET":
            self.put(nic_slice(name, [nic["pciAddress"] for nic in spec.get("nics", ())]))
        if self._is_empty:
            return
        for _ in range(chance.choice((0, 0, 1, 2))):
            self._hold_on(name)

    def _clear(self, name: str) -> None:
        """A node is gone, with its Pods."""
        for key, manifest in list(self.objects.items()):
            kind, _, known_as = key
            is_of = kind in {"Node", "NodeTopology"} and known_as == name
            is_of = is_of or (kind == "ResourceSlice" and manifest["spec"]["nodeName"] == name)
            if is_of or (kind in {"Pod", "ResourceClaim"} and known_as.startswith(f"{name}-")):
                del self.objects[key]

    def _there(self) -> list[str]:
        return [name for name in self.names if ("Node", "", name) in self.objects]

    def _of(self, kind: str) -> list[Key]:
        return [key for key in self.objects if key[0] == kind and key[2].partition("-")[0] in {"gpu", "held"}]

    def _some(self, name: str) -> list[int]:
        """GPUs of a node, one or two mostly."""
        count = len(self.objects["NodeTopology", "", name]["spec"]["gpus"])
        return sorted(self.chance.sample(range(count), k=self.chance.choice((1, 1, 2, 2, count // 2, count))))

    def _name(self, prefix: str) -> str:
        self._serial += 1
        return f"{prefix}-{self._serial}"

    def _hold(self) -> None:
        if there := self._there():
            self._hold_on(self.chance.choice(there))

    def _hold_on(self, name: str) -> None:
        """Somebody's Pod or claim comes to hold GPUs of a node; which, is told of most Pods."""
        gpus, held = self._some(name), self._name(f"{name}-held")
        topology = self.objects["NodeTopology", "", name]
        if ("ResourceSlice", "", f"{name}-gpu.nvidia.com-1-0") in self.objects:
            self.put(resource_claim(held, *((name, index) for index in gpus)))
            return
        self.put(pod(held, node=name, requests={GPU_RESOURCE: str(len(gpus)), "cpu": "4"}))
        if self.chance.random() < 0.8:
            uuids = [topology["spec"]["gpus"][index]["uuid"] for index in gpus]
            told = topology["status"].get("allocations", [])
            status = {**topology["status"], "allocations": [*told, allocation("ml", held, uuids)]}
            self.put({**topology, "status": status})

    def _tell(self) -> None:
        """A kubelet says in a Pod's status which GPUs it has."""
        for kind, namespace, name in self._of("Pod"):
            node_name = name.partition("-held")[0]
            spec = self.objects["Pod", namespace, name]["spec"]
            if name == node_name or ("NodeTopology", "", node_name) not in self.objects:
                continue
            count = int(spec["containers"][0]["resources"]["requests"][GPU_RESOURCE])
            gpus = self.objects["NodeTopology", "", node_name]["spec"]["gpus"][-count:]
            self.put(told(self.objects[kind, namespace, name], (GPU_RESOURCE, [gpu["uuid"] for gpu in gpus])))

    def _work(self) -> None:
        """A Pod without GPUs takes CPUs."""
        if there := self._there():
            name = self.chance.choice(there)
            requests = {"cpu": str(self.chance.choice((4, 12, 60)))}
            self.put(pod(self._name(f"{name}-work"), node=name, requests=requests))

    def _use_nics(self) -> None:
        """A Pod or a claim takes NICs of a node."""
        if not (there := self._there()):
            return
        name = self.chance.choice(there)
        if ("ResourceSlice", "", f"{name}-dra.net-1-0") in self.objects:
            self.put(nic_claim(self._name(f"{name}-nics"), (name, self.chance.randrange(4))))
            return
        offers = self.objects["Node", "", name]["status"]["allocatable"]
        nics = sorted(each for each in offers if each.startswith(("rdma/", "site.example/", "networking.gke.io")))
        if nics:
            resource = self.chance.choice(nics)
            self.put(pod(self._name(f"{name}-nics"), node=name, requests={resource: offers[resource]}))

    def _book(self) -> None:
        """A job that was there before holds GPUs of some nodes."""
        if there := self._there():
            names = self.chance.sample(there, k=min(len(there), self.chance.randint(1, 2)))
            self._booked(booked(*((name, self._some(name)) for name in names), binding="DRA"))

    def _booked(self, placement: Manifest) -> None:
        name = self._name("held")
        spec = {"gpus": sum(len(share["gpus"]) for share in placement["nodes"])}
        self.put(training_job(name, spec=spec, attempt=1, placement=placement))

    def _end(self) -> None:
        """Who holds something is gone."""
        if keys := [*self._of("Pod"), *self._of("ResourceClaim"), *self._of("TrainingJob")]:
            del self.objects[self.chance.choice(keys)]

    def _sicken(self) -> None:
        """GPUs are unhealthy, or well again."""
        if there := self._there():
            topology = self.objects["NodeTopology", "", self.chance.choice(there)]
            status = dict(topology["status"])
            if not status.pop("gpus", None):
                sick = self._some(topology["metadata"]["name"])[:2]
                status["gpus"] = [{"index": index, "state": "Unhealthy", "reasons": ["XID79"]} for index in sick]
            self.put({**topology, "status": status})

    def _unplug(self) -> None:
        """A NIC is down, or up again."""
        if there := self._there():
            topology = self.objects["NodeTopology", "", self.chance.choice(there)]
            status = dict(topology["status"])
            nics = topology["spec"].get("nics", ())
            if not status.pop("nics", None) and nics:
                status["nics"] = [{"name": self.chance.choice(nics)["name"], "state": "Down"}]
            self.put({**topology, "status": status})

    def _taint(self) -> None:
        """A node is tainted, cordoned, not ready or of another pool, or is well again."""
        if there := self._there():
            before = self.objects["Node", "", self.chance.choice(there)]
            is_plain = not before["spec"] and before["status"]["conditions"][-1]["status"] == "True"
            spec = self.chance.choice(({"taints": [TAINT]}, {"unschedulable": True}, {})) if is_plain else {}
            is_ready = bool(spec) or not is_plain or self.chance.random() < 0.5
            labels = {**before["metadata"]["labels"], "pool": self.chance.choice(("a", "b"))}
            status = {**before["status"], "conditions": [{"type": "Ready", "status": str(is_ready)}]}
            self.put({**before, "metadata": {**before["metadata"], "labels": labels}, "spec": spec, "status": status})

    def _move(self) -> None:
        """A node is in another domain."""
        if there := self._there():
            before = self.objects["Node", "", self.chance.choice(there)]
            labels = {**before["metadata"]["labels"], "net.example/rack": self.chance.choice(("r1", "r2", "r3"))}
            self.put({**before, "metadata": {**before["metadata"], "labels": labels}})

    def _renew(self) -> None:
        self._stand(self.chance.choice(self.names))

    def _remove(self) -> None:
        if len(there := self._there()) > 2:
            self._clear(self.chance.choice(there))

    def _channels(self) -> None:
        """NVIDIA's driver for ComputeDomains comes or goes, or a class that stands for the plugin's GPUs does."""
        name, resource = self.chance.choice(((IMEX_CHANNELS, None), (IMEX_CHANNELS, None), ("gpus", GPU_RESOURCE)))
        key = ("DeviceClass", "", name)
        if key in self.objects:
            del self.objects[key]
        else:
            self.put(device_class(name, resource))


Spec = dict[str, Any]

# Each is one thing that a job may ask, with what else may be asked in its place.
ASKED: Mapping[str, Sequence[Any]] = {
    "gpus": (1, 2, 4, 8, 8, 12, 16, 16, 16, 20, 24, 32),
    "tensor": (1, 1, 1, 2, 4, 8, 16),
    "context": (1, 1, 1, 2),
    "pipeline": (1, 1, 2),
    "expert": (1, 1, 1, 2, 4),
    "nvlink": ("Preferred", "Preferred", "Required", "Ignored"),
    "required": (None, None, None, "block", "rack", "nvlink-domain", "host"),
    "preferred": (None, None, "rack", "host"),
    "patient": (None, None, None, "rack", "host"),
    "gpusPerNode": (None, None, None, None, 1, 2, 4, 8),
    "minBusBandwidthGBps": (None, None, None, 5, 40, 100, 300),
    "products": ((), (), (), (), ("NVIDIA-H200",), ("NVIDIA-GB200",), ("NVIDIA-GB200", "NVIDIA-L40S")),
    "minMemory": (None, None, None, "80Gi"),
    "binding": ("Auto", "Auto", "Auto", "DRA", "WholeNode", "BestEffort"),
    "allowShared": (False, False, True),
    "mig": (None, None, None, None, None, None, PROFILE),
    "rdma": ("Preferred", "Preferred", "Preferred", "Required", "Disabled"),
    "selector": (None, None, None, {"pool": "a"}, {"pool": "b"}),
    "affinity": (None, None, None, "b1"),
    "tolerates": (False, False, True),
    "cpu": (None, None, "2", "12", "60"),
    "names": (None, None, None, None, "rdma/hca", FUNCTIONS[0], GPU_RESOURCE),
    "amount": ("0", "1"),
    "claims": (False, False, True),
    "channels": (False, False, False, True),
    "avoids": ((), (), (), ("gpu-0",), ("gpu-1", "gpu-2")),
    "volumes": (None, None, None, "r1", "r2"),
    "mixes": (True, True, False),
}
"""What jobs ask: values of each thing, the usual ones more often."""
GROUP: Spec = {"gpus": 8, "tensor": 8, "nvlink": "Required"}
"""A group that no tray holds: what IMEX channels are for."""


def spec_by(chance: Random) -> Spec:
    """What a job asks, most of it the usual."""
    return {name: chance.choice(values) if chance.random() < 0.12 else values[0] for name, values in ASKED.items()} | {
        "gpus": chance.choice(ASKED["gpus"])
    }


def varied(spec: Spec, chance: Random) -> Spec:
    """The same but for one or two things: whoever forgets one of them answers both alike."""
    names = chance.sample(sorted(ASKED), k=chance.choice((1, 1, 2)))
    return {**spec, **{name: chance.choice(ASKED[name]) for name in names}}


def template_of(spec: Spec) -> Manifest:
    """The Pod spec of a job that asks this."""
    container: Manifest = {"name": "trainer", "image": "registry.example/train:1"}
    resources = {} if spec["cpu"] is None else {"cpu": spec["cpu"]}
    if spec["names"] is not None:
        resources[spec["names"]] = spec["amount"]
    if resources:
        container["resources"] = {"requests": resources, "limits": resources}
    if spec["channels"]:
        container["env"] = [{"name": MNNVL, "value": "1"}]
    template: Manifest = {"containers": [container]}
    if spec["selector"]:
        template["nodeSelector"] = spec["selector"]
    if spec["affinity"]:
        terms = [{"key": "net.example/block", "operator": "In", "values": [spec["affinity"]]}]
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        template["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if spec["tolerates"]:
        template["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]
    if spec["claims"]:
        template["resourceClaims"] = [{"name": "own", "resourceClaimName": "own"}]
    return template


def job_of(spec: Spec) -> Manifest | None:
    """The spec of a TrainingJob that asks this; None where no API server would take it."""
    axes = {name: spec[name] for name in ("tensor", "context", "pipeline", "expert")}
    each, mig = spec["gpusPerNode"], spec["mig"]
    group, gpus = axes["tensor"] * axes["context"], 1 if mig else spec["gpus"]
    if gpus % (group * axes["pipeline"]) or gpus // (axes["tensor"] * axes["pipeline"]) % axes["expert"]:
        return None
    if each is not None and (gpus % each or each % group):
        return None
    topology = {"gpusPerNode": each, "minBusBandwidthGBps": spec["minBusBandwidthGBps"]}
    gpu = {name: spec[name] for name in ("minMemory", "mig") if spec[name] is not None}
    return {
        "gpus": gpus,
        "parallelism": axes,
        "topology": {
            "nvlink": spec["nvlink"],
            "fabric": {name: spec[name] for name in ("required", "preferred") if spec[name]},
            **{name: value for name, value in topology.items() if value is not None},
        },
        "gpu": {
            "products": list(spec["products"]),
            "binding": spec["binding"],
            "allowShared": spec["allowShared"],
            **gpu,
        },
        "network": {"rdma": spec["rdma"]},
        "template": {"spec": template_of(spec)},
    }


def _in_rack(rack: str) -> NodeAffinity:
    """What a volume requires that is in one rack."""
    return NodeAffinity((Term((NodeRequirement("net.example/rack", Operator.IN, frozenset({rack})),), ()),))


def request_of(spec: Spec) -> Request | None:
    """The request of such a job, with what a decision adds to it."""
    job = job_of(spec)
    if job is None:
        return None
    found = wanted(**job)
    return replace(
        found,
        patient_level=spec["patient"],
        avoided=frozenset(spec["avoids"]),
        volumes=frozenset({_in_rack(spec["volumes"])} if spec["volumes"] else ()),
        mixes_kinds=found.mixes_kinds and spec["mixes"],
    )
