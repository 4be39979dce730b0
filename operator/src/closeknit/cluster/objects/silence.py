"""How long a node has given no sign of life, in steps that decisions know.

Kubelets renew the Lease of their node every 10 s; each renewal as an event would be 500 a second on 5,000 nodes. So the
shell lists Leases, and only a step of silence, or its end, is an event.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import NamedTuple

import msgspec

NODE_LEASES = "kube-node-lease"  # the namespace; each is named after its node
POLL_S = 4.0  # 2.5 looks at each renewal, so that a silence of 20 s is known at most 24 s after the last renewal
GAP_S = 3 * POLL_S  # between two answered lists; in a longer one nobody was heard, which tells nothing of nodes
# Beyond both the control plane is at fault, which hears its own nodes all the same: node-lifecycle-controller has these
# numbers, too (1.36), and evicts nothing then where there are 50 nodes or less.
FEW_SILENT = 2
MOST_SILENT = 0.55  # of all nodes


class Quiet(IntEnum):
    """How long: in seconds since the last sign of life was seen."""

    OVERDUE = 15  # a renewal every 10 s with 4 % of jitter, and seen up to POLL_S late, is 14.4
    SILENT = 20  # two renewals are missing
    LONG = 40  # the duration of the Lease: for Kubernetes its holder is gone from then on


class Silence(msgspec.Struct, frozen=True):
    """A node whose kubelet and agent have said nothing for so long."""

    name: str
    quiet: Quiet


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    renew_time: str = ""


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


_DECODER = msgspec.json.Decoder(_Lease)


def renewal(document: bytes) -> tuple[str, str] | None:
    """The node of a Lease, and its renewTime as text, which is only ever compared; None for an unreadable one."""
    try:
        lease = _DECODER.decode(document)
    except msgspec.DecodeError:
        return None
    return (lease.metadata.name, lease.spec.renew_time) if lease.metadata.name and lease.spec.renew_time else None


class _Sign(NamedTuple):
    """The last sign of life of a node."""

    renewed: str
    beat: object
    """What its agent last said of the moment."""
    seen_s: float


@dataclass(frozen=True, slots=True)
class SignsOfLife:
    """The last signs of life of all nodes that have a Lease, by our own clock: those of nodes may be wrong."""

    signs: Mapping[str, _Sign] = field(default_factory=dict)
    silent: Mapping[str, Quiet] = field(default_factory=dict)
    listed_s: float | None = None
    """When Leases were last listed."""
    deaf_s: float = -inf
    """When the control plane was last found not to hear the nodes."""

    def after(self, renewals: Mapping[str, str], beats: Mapping[str, object], at_s: float) -> "SignsOfLife":
        """After a list of Leases that came at this moment of a monotonic clock. `beats` has of each node what its agent
        said last."""
        gap_s = 0.0 if self.listed_s is None else at_s - self.listed_s
        missed_s = gap_s if gap_s > GAP_S else 0.0
        signs: dict[str, _Sign] = {}
        for node, renewed in renewals.items():
            before, beat = self.signs.get(node), beats.get(node)
            if before is None or before.renewed != renewed or before.beat != beat:
                signs[node] = _Sign(renewed, beat, at_s)
            else:
                signs[node] = before._replace(seen_s=before.seen_s + missed_s) if missed_s else before
        quiet = [node for node, sign in signs.items() if at_s - sign.seen_s >= Quiet.OVERDUE]
        # Nodes are heard again one after the other: of those that are still to come nothing is known from before.
        deaf_s = at_s if _are_too_many(quiet, signs) else self.deaf_s
        silent = {node: _step(at_s - max(signs[node].seen_s, deaf_s)) for node in quiet}
        return SignsOfLife(signs, {node: step for node, step in silent.items() if step is not None}, at_s, deaf_s)

    def news_since(self, before: "SignsOfLife") -> Mapping[str, Silence | None]:
        """The nodes of which something else is known now; None: it gives signs of life, or has no Lease."""
        names = [*self.silent, *(node for node in before.silent if node not in self.silent)]
        return {
            node: Silence(node, self.silent[node]) if node in self.silent else None
            for node in names
            if self.silent.get(node) is not before.silent.get(node)
        }


def _step(quiet_s: float) -> Quiet | None:
    return max((quiet for quiet in Quiet if quiet_s >= quiet), default=None)


def _are_too_many(silent: Collection[str], all_nodes: Collection[str]) -> bool:
    """Whether it is rather the control plane that does not hear the nodes."""
    if len(silent) > FEW_SILENT:
        return len(silent) > MOST_SILENT * len(all_nodes)
    return len(silent) == len(all_nodes) > 1
