"""Clusters for tests, from a short picture: nodes by name, each with its machine and a word for each of its GPUs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from closeknit.api.clustertopology import ClusterTopologySpec, Fabric
from closeknit.api.names import HOST_LEVEL, JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ExclusionReason, GpuReason
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.immutable.table import EMPTY
from closeknit.cluster.network.census import Census
from closeknit.cluster.network.levels import Place
from closeknit.cluster.node.node import Exclusion, Holder, HolderKind, MigView, NodeView, PluginOffer, RdmaOffer
from closeknit.cluster.objects.pod_requests import amounts
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind, Taint
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.machine.graph import Machine, machine
from closeknit.placement.values.request import Request, request
from scenarios.machines import MACHINES
from scenarios.manifests import claiming, training_job, volume, volume_claim

EXAMPLES = Path(__file__).parents[2] / "examples/clustertopology"
FAULTS = {
    "x": Fault(FaultKind.UNHEALTHY, "XID79"),
    "fabric": Fault(FaultKind.UNHEALTHY, GpuReason.FABRIC_NOT_READY),
    "mig": Fault(FaultKind.MIG),
}


@cache
def graph(name: str, tag: str = "0") -> Machine:
    """The graph of a machine of tests/scenarios/machines.py; `tag` goes into its uuids."""
    if tag != "0":
        of = graph(name)
        return replace(of, gpus=tuple(replace(gpu, uuid=f"GPU-{tag}-{gpu.index}") for gpu in of.gpus))
    return machine(MACHINES[name](tag))


def node(
    name: str,
    graph: Machine,
    *,
    gpus: str = "",
    holders: Mapping[str, str] | None = None,
    path: tuple[str | None, ...] = (),
    offer: str = "DRA",
    rdma: bool | str = True,
    labels: Mapping[str, str] | None = None,
    taint: str | None = None,
    spare_for: str = "",
    excluded: tuple[str, str] | None = None,
    has: Mapping[str, str] | None = None,
    left: Mapping[str, str] | None = None,
    mig: Mapping[int, str] | None = None,
) -> NodeView:
    """A node. `gpus` has a word for each GPU: its index where it is free, `x` where it is unhealthy, `fabric` where
    its NVSwitches are not ready, `mig` where it is split by MIG, else its holder.

    `path` names its domain at each level, outermost first. `offer` is DRA, plugin, plugin-blind where no kubelet tells
    which GPUs anybody has (those of jobs are where they were foreseen, those of Pods any), replicas where the plugin
    gives each GPU to four Pods, or none where nothing gives Pods any. `rdma` may name the resource that brings NICs
    into Pods. `has` is what else it has, by resource, and `left` says of which less is left; without `has` nobody
    knows. `mig` has of a GPU that is cut the profile, and a word for each MIG device as `gpus` has for a GPU.
    """
    words = gpus.split() or [str(gpu.index) for gpu in graph.gpus]
    if "mig" in words:
        split = [replace(gpu, mig_enabled=word == "mig") for gpu, word in zip(graph.gpus, words, strict=True)]
        graph = replace(graph, gpus=tuple(split))
    held = {
        gpu.index: _holder((holders or {}).get(word, f"job team/{word}"))
        for gpu, word in zip(graph.gpus, words, strict=True)
        if not word.isdecimal() and word not in FAULTS
    }
    unusable = {gpu.index: FAULTS[word] for gpu, word in zip(graph.gpus, words, strict=True) if word in FAULTS}
    unusable |= dict.fromkeys(mig or {}, FAULTS["mig"])
    if offer == "none":
        unusable = {gpu.index: unusable.get(gpu.index, Fault(FaultKind.NOT_OFFERED)) for gpu in graph.gpus}
    usable = tuple(gpu.index for gpu in graph.gpus if gpu.index not in unusable)
    known = [domain for domain in path if domain is not None]
    domains: list[str | None] = []
    for depth in range(len(path)):
        outside = path[: depth + 1]
        domains.append(None if None in outside else "/".join(str(step) for step in outside))
    plugin, unnamed, guessed = None, Counter[Holder](), dict[Holder, tuple[int, ...]]()
    if offer == "replicas":
        count = 4 * len(usable)
        plugin = PluginOffer(count, count, 0, 0, shared=True, is_replicated=True)
    elif offer not in {"DRA", "none"}:
        if offer == "plugin-blind":
            unnamed = Counter(holder for holder in held.values() if holder.kind is HolderKind.POD)
            held = {gpu: holder for gpu, holder in held.items() if holder not in unnamed}
            for gpu, holder in held.items():
                guessed[holder] = (*guessed.get(holder, ()), gpu)
        requested = len(held) + unnamed.total()
        plugin = PluginOffer(len(usable), len(graph.gpus), requested, unnamed.total(), shared=False)
    return NodeView(
        name=name,
        labels=labels or {},
        taints=(Taint(taint, "", "NoSchedule"),) if taint else (),
        domains=(*domains, "/".join([*known, name])),
        exclusion=Exclusion(ExclusionReason(excluded[0]), excluded[1]) if excluded else None,
        machine=graph,
        topology_generation=1,
        usable=usable,
        free=tuple(index for index in usable if index not in held),
        holders=held,
        unusable=unusable,
        dra=offer == "DRA",
        plugin=plugin,
        rdma=RdmaOffer("rdma/hca" if rdma is True else rdma, 100) if rdma else None,
        allocatable=amounts(dict(has)) if has else None,
        spare=amounts({**has, **(left or {})}) if has else None,
        mig=tuple(
            MigView(
                uuid=f"MIG-{name}-{gpu}-{number}",
                profile=drawing.split()[0],
                memory_bytes=None,
                gpu=gpu,
                binding=Binding.DRA if offer == "DRA" else Binding.BEST_EFFORT,
                fault=FAULTS["x"] if word == "x" else None,
                holder=None
                if word.isdecimal() or word == "x"
                else _holder((holders or {}).get(word, f"job team/{word}")),
            )
            for gpu, drawing in sorted((mig or {}).items())
            for number, word in enumerate(drawing.split()[1:])
        ),
        unnamed=unnamed or EMPTY,
        guessed=tuple(sorted(guessed.values())),
        spare_for=spare_for,
    )


def cluster_of(
    *nodes: NodeView, levels: tuple[str, ...] = (), fabric: Mapping[str, Any] | None = None, imex: Iterable[str] = ()
) -> Cluster:
    """A cluster of these nodes; `levels` without host, `imex` the bindings beside which Pods can have IMEX channels."""
    return Cluster(
        levels=(*levels, HOST_LEVEL),
        fabric=Fabric.parse(fabric or {}),
        nodes={view.name: view for view in nodes},
        imex_with=frozenset(map(Binding, imex)),
    )


def wanted(**spec: Any) -> Request:
    """The request of a TrainingJob's spec, by its fields."""
    whole = TrainingJobSpec.parse({"template": {"spec": {"containers": [{"name": "trainer"}]}}, **spec})
    return request(JobKey("team-a", "train"), whole)


def asked(scenario: Mapping[str, Any]) -> Request:
    """The request of a scenario file. `volumes` has of each claim of the job the labels of the nodes that its volume is
    for: `data: {topology.kubernetes.io/zone: [a, b]}`."""
    terms = {
        claim: [{"key": key, "operator": "In", "values": values} for key, values in labels.items()]
        for claim, labels in scenario.get("volumes", {}).items()
    }
    objects = [volume_claim(claim, volume=claim) for claim in terms]
    for claim, expressions in terms.items():
        made = volume(claim, claim=claim)
        made["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
        objects.append(made)
    job = training_job(spec=scenario["job"] | ({"template": claiming(*terms)} if terms else {}))
    found = build(value for each in objects if (value := from_document(each))).volumes_of(TrainingJob.parse(job))
    return replace(wanted(**scenario["job"]), volumes=found.required)


def drawn(picture: Mapping[str, Any]) -> Cluster:
    """The cluster of a scenario file."""
    nodes = [
        node(
            name,
            graph(drawing["machine"], name),
            gpus=drawing.get("gpus", ""),
            holders=picture.get("holders"),
            path=tuple(drawing.get("in", ())),
            offer=drawing.get("offer", "DRA"),
            rdma=drawing.get("rdma", True),
            labels=drawing.get("labels"),
            taint=drawing.get("taint"),
            spare_for=drawing.get("spare", ""),
            excluded=tuple(drawing["excluded"]) if "excluded" in drawing else None,
            has=picture.get("each has"),
            left=drawing.get("left"),
            mig=drawing.get("mig"),
        )
        for name, drawing in picture["nodes"].items()
    ]
    if "levels by" in picture:
        return _labelled(nodes, picture["levels by"], picture.get("imex", ()))
    return cluster_of(
        *nodes,
        levels=tuple(picture.get("levels", ())),
        fabric=picture.get("fabric"),
        imex=picture.get("imex", ()),
    )


def _labelled(nodes: Sequence[NodeView], source: str, imex: Iterable[str]) -> Cluster:
    """The cluster whose levels are read from its nodes' labels: those that an example of a ClusterTopology names, or
    where `source` is `labels` those that are found."""
    found = ClusterTopologySpec()
    if source != "labels":
        found = ClusterTopologySpec.parse(yaml.safe_load((EXAMPLES / f"{source}.yaml").read_text())["spec"])
    places = {view.name: Place(view.labels, None) for view in nodes}
    given = tuple((level.name, level.node_label) for level in found.levels)
    levels = Census().after(given, [(None, place) for place in places.values()], places.values).levels
    standing = [replace(view, domains=levels.domains(view.name, places[view.name])) for view in nodes]
    return replace(cluster_of(*standing, imex=imex), levels=levels.names, fabric=found.fabric)


def held(view: NodeView, *indexes: int) -> NodeView:
    """The node with some of its GPUs held by a job."""
    return replace(
        view,
        free=tuple(index for index in view.free if index not in indexes),
        holders={**view.holders, **dict.fromkeys(indexes, _holder("job team/more"))},
    )


def _holder(words: str) -> Holder:
    """A holder as a picture names it: `job team/train`."""
    kind, _, key = words.partition(" ")
    namespace, _, name = key.partition("/")
    return Holder(HolderKind(kind), namespace, name)
