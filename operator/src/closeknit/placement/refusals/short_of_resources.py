"""The message for a gang whose GPUs are free on nodes with too little of another resource."""

from collections import Counter
from dataclasses import dataclass, field, replace

from closeknit.api.names import POD_COUNT
from closeknit.cluster.objects.pod_requests import Amounts, Needs
from closeknit.placement.candidates.binding import bindable
from closeknit.placement.candidates.excluded import excluded
from closeknit.placement.candidates.resource_fit import lacking, shortage, told
from closeknit.placement.refusals.demand_words import RefusalCase
from closeknit.placement.values.sentences import count, listed


@dataclass(slots=True)
class _Found:
    """Counts over the otherwise usable nodes."""

    nodes: int = 0
    """With free GPUs."""
    roomy: int = 0
    """Of these with room."""
    gpus: int = 0
    """Free on those."""
    short: Counter[str] = field(default_factory=Counter)
    """How many of the nodes with free GPUs have too little of each resource."""
    left: dict[str, int] = field(default_factory=dict)
    """The most of it that any of those has left."""
    whole: dict[str, int] = field(default_factory=dict)
    """The most of each needed resource that any node has at all."""

    def add(self, gpus: int, spare: Amounts | None, allocatable: Amounts | None, needs: Needs) -> None:
        """Counts one node."""
        for resource, amount in needs:
            has = amount if allocatable is None else allocatable.get(resource, 0)
            self.whole[resource] = max(self.whole.get(resource, 0), has)
        if not gpus:
            return
        self.nodes += 1
        found = lacking(spare, needs)
        if not found:
            self.roomy += 1
            self.gpus += gpus
        for resource, left in found:
            self.short[resource] += 1
            self.left[resource] = max(self.left.get(resource, 0), left)


def short_of_resources(case: RefusalCase) -> str:
    """The message: too few nodes with free GPUs have room for a Pod's other needs; counted by resource, like
    kube-scheduler."""
    request, cluster = replace(case.request, needs=()), case.cluster
    needs = case.request.needs
    ground = case.tables.ground(cluster, request)
    gpus = {offer: bindable(offer, request.binding) for offer in {ground.offers[number] for number in ground.counts}}
    found = _Found()
    for _, offer, name in ground.nodes():
        view = cluster.nodes[name]
        found.add(gpus[offer], view.spare, view.allocatable, needs)
    return f"{_asked(case)}; {_counted(found)}; {_advice(found, needs)}{excluded(cluster, request, ground)}"


def _asked(case: RefusalCase) -> str:
    request = case.request
    wanted = [f"{told(resource, amount)} {resource}" for resource, amount in request.needs if resource != POD_COUNT]
    return (
        f"needs {count(request.gpus, 'GPU')} on nodes with {listed(wanted, 'and') or 'a place for one Pod more'} left"
    )


def _counted(found: _Found) -> str:
    """`of 12 nodes with free GPUs 8 have too little cpu (24 at most), 1 too many Pods; 3 have room, with 24 free …`."""
    parts: list[str] = []
    for resource, number in sorted(found.short.items(), key=lambda entry: (-entry[1], entry[0])):
        verb = "" if parts else "has " if number == 1 else "have "
        most = "" if resource == POD_COUNT else f" ({told(resource, found.left[resource])} at most)"
        parts.append(f"{number} {verb}{shortage(resource)}{most}")
    room = f"{found.roomy} {'has' if found.roomy == 1 else 'have'} room, with {count(found.gpus, 'free GPU')}"
    return (
        f"of {count(found.nodes, 'node')} with free GPUs {', '.join(parts)}; {room if found.roomy else 'none has room'}"
    )


def _advice(found: _Found, needs: Needs) -> str:
    never = [
        f"{told(resource, found.whole[resource])} {resource}"
        for resource, amount in needs
        if found.whole[resource] < amount
    ]
    if never:
        return f"no node has more than {listed(never, 'or')} at all: lower the template's requests"
    return "lower the template's requests, or wait for the Pods that hold the rest"
