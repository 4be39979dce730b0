"""Annotations by which a Pod's networks are set up: the template's own win, and to those of Multus ours are added."""

import json
from collections.abc import Iterator

from closeknit.api.names import Role
from closeknit.launch.gang import MULTUS_NETWORKS, Gang
from closeknit.launch.member import Member

EGRESS = "kubernetes.io/egress-bandwidth"  # of the CNI bandwidth plugin, which shapes with tc
GKE_DEFAULT = "networking.gke.io/default-interface"
GKE_INTERFACES = "networking.gke.io/interfaces"
_JSON = '[{"'  # Multus takes a value with one of these for JSON, and any other for names and commas
_FIRST_INTERFACE = 2  # eth1 is that of a second network of the node, where there is one


def network_annotations(gang: Gang, member: Member) -> dict[str, str]:
    """What a member's Pod is annotated with for its networks."""
    egress = gang.job.spec.network.egress_bandwidth
    found = {} if egress is None else {EGRESS: egress}
    is_given = member.role is Role.WORKER and gang.uses_rdma and bool(member.nic_resources)
    if not is_given or not member.networks or GKE_INTERFACES in gang.template(member.role).metadata.annotations:
        return found
    interfaces = [{"interfaceName": "eth0", "network": "default"}]
    interfaces += [
        {"interfaceName": f"eth{number}", "network": network}
        for number, network in enumerate(member.networks, start=_FIRST_INTERFACE)
    ]
    return {**found, GKE_DEFAULT: "eth0", GKE_INTERFACES: json.dumps(interfaces, separators=(",", ":"))}


def function_networks(gang: Gang, member: Member) -> dict[str, str]:
    """What Multus reads, where a member's Pod gets SR-IOV functions by its networks: the template's networks, and one
    for each function. What cannot be read stays as it is, and so does a template that asks for functions itself."""
    is_given = member.role is Role.WORKER and gang.uses_rdma and member.has_functions
    if not is_given or gang.asks_for_functions(member):
        return {}
    own = gang.template(member.role).metadata.annotations.get(MULTUS_NETWORKS, "").strip()
    ours = [each.network for each in member.functions]
    if not any(mark in own for mark in _JSON):
        named = [each.strip() for each in own.split(",") if each.strip()]
        there = {_qualified(gang, each.partition("@")[0]) for each in named}
        return {MULTUS_NETWORKS: ",".join([*named, *(each for each in ours if each not in there)])}
    try:
        elements = json.loads(own)
        if not isinstance(elements, list):
            return {}
        there = set(_elements(gang, elements))
        added = (each.split("/") for each in ours if each not in there)
        elements += [{"name": name, "namespace": namespace} for namespace, name in added]
        return {MULTUS_NETWORKS: json.dumps(elements, separators=(",", ":"))}
    except (ValueError, RecursionError):
        return {}


def _elements(gang: Gang, elements: list[object]) -> Iterator[str]:
    """Namespace and name of each network of a list that its user wrote."""
    for element in elements:
        if isinstance(element, dict):
            yield f"{element.get('namespace') or gang.job.key.namespace}/{element.get('name')}"


def _qualified(gang: Gang, network: str) -> str:
    return network if "/" in network else f"{gang.job.key.namespace}/{network}"
