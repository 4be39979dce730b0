"""The ResourceClaim that pins what one Pod gets by name: its GPUs by uuid, its NICs by PCI address."""

from closeknit.api.names import GPU_DRA_DRIVER, NIC_DRA_DRIVER
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.member import Member

REQUEST_NAME = "gpus"
NIC_REQUEST_NAME = "nics"


def claim(gang: Gang, index: int) -> Manifest:
    """The claim of one Pod, named like the Pod. Its owner is that Pod, which must have a uid first:
    see `closeknit.launch.manifests.owner`.

    Each request has a count and the names: where a device is missing or taken it allocates nothing, while
    allocationMode All would allocate fewer. has() comes first, because a device without that attribute fails the whole
    Pod (both seen on Kubernetes 1.36). Raises ValueError where a uuid is unknown: such a GPU cannot be pinned.
    """
    member = gang.members[index]
    name = gang.name(member)
    requests = []
    if member.binding is Binding.DRA:
        if not all(member.uuids):
            raise ValueError(f"a GPU of node {member.node} has no uuid, so no ResourceClaim can name it")
        requests.append(_gpus(member))
    if member.nic_addresses:
        requests.append(_nics(member))
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": gang.metadata(name, gang.member_labels(member)),
        "spec": {"devices": {"requests": requests}},
    }


def _gpus(member: Member) -> Manifest:
    uuid = f"device.attributes['{GPU_DRA_DRIVER}'].uuid"
    # Python writes a list of strings as CEL does, escapes included.
    named = f"has({uuid}) && {uuid} in {list(member.uuids)!r}"
    return _request(REQUEST_NAME, member.device_class, member.rank_count, named)


def _nics(member: Member) -> Manifest:
    """The driver is named here, too: what the DeviceClass selects is its maker's word, and the chart's policy lets the
    operator claim of any class, but NICs of this driver alone."""
    address = f"device.attributes['{NIC_DRA_DRIVER}'].pciAddress"
    named = f"device.driver == '{NIC_DRA_DRIVER}' && has({address}) && {address} in {list(member.nic_addresses)!r}"
    return _request(NIC_REQUEST_NAME, member.nic_class, len(member.nic_addresses), named)


def _request(name: str, device_class: str, count: int, expression: str) -> Manifest:
    selectors = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, "selectors": selectors}}
