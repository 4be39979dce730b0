"""Annotations by which a Pod's networks are set up; the template's own win."""

import json

from closeknit.api.names import Role
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member

EGRESS = "kubernetes.io/egress-bandwidth"  # of the CNI bandwidth plugin, which shapes with tc
GKE_DEFAULT = "networking.gke.io/default-interface"
GKE_INTERFACES = "networking.gke.io/interfaces"
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
