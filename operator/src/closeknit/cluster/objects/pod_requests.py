"""A Pod's resources on its node beside named devices: Kubernetes' own arithmetic.

It is that of k8s.io/component-helpers/resource (PodRequests) and of the API server's defaults, as of 1.36, for Pods
that run and for templates of Pods to be. Amounts are whole numbers as the scheduler compares them: of `cpu` thousandths
of a core, of everything else units, rounded up.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from sys import intern

import msgspec

from closeknit.api.names import CLAIMED_PREFIX, POD_COUNT
from closeknit.api.text.quantity import quantity
from closeknit.api.trainingjob import PackedTemplate, PodTemplate
from closeknit.cluster.objects.meta import ForeignCondition, Quantities, WireStruct

CPU, MEMORY = "cpu", "memory"
Amounts = Mapping[str, int]
"""By resource, for example {"cpu": 1500, "memory": 1073741824}."""
NO_AMOUNTS: Amounts = {}
Needs = tuple[tuple[str, int], ...]
"""The same as sorted pairs, to be hashed; none is zero."""

_COUNTED = frozenset({CPU, MEMORY, "ephemeral-storage"})
# Without a slash only these are counted; of the others a slash tells that somebody's plugin hands them out.
_COUNTED_PREFIXES = ("hugepages-", "attachable-volumes-")
_QUOTA_PREFIX = "requests."  # a ResourceQuota's name for a resource
_POD_LEVEL = frozenset({CPU, MEMORY})  # and huge pages: what spec.resources may speak of
_RESIZED = frozenset({CPU, MEMORY})  # of all else a Pod keeps what it asked for when it was made
_HUGE_PAGES = "hugepages-"
_HANDED_OUT_PREFIX = "nvidia.com/"  # GPUs: placement gives them one by one
_LONGEST = 64  # characters of a quantity; the API server prints 20 at most
# Of a Pod; no machine offers a tenth of it. Of more only so many are kept, GPUs and what is not a plugin's first.
MOST_RESOURCES = 256
# All Pods of a gang ask for the same, and say so in each of their states.
_KNOWN_WORDS = 4096
MOST = ((1 << 63) - 1) * 1000
"""Thousandths of the largest quantity of Kubernetes; no amount is above it."""


class Resources(WireStruct, frozen=True):
    """Requests and limits of a container, or of a Pod as a whole."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(WireStruct, frozen=True):
    """One container of a Pod's spec."""

    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None

    @property
    def is_sidecar(self) -> bool:
        """For an init container: whether it runs on beside the others."""
        return self.restart_policy == "Always"


class ContainerGiven(WireStruct, frozen=True):
    """The kubelet's allocation of one container: it lags behind a spec that changes while the Pod runs."""

    name: str = ""
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class PodResourceSpec(WireStruct, frozen=True):
    """The resources in a Pod's spec."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None


class Given(WireStruct, frozen=True):
    """The resources in a Pod's status."""

    resources: Resources | None = None
    allocated_resources: Quantities | None = None


_NOTHING_GIVEN = Given()
_Milli = dict[str, int]
"""Thousandths of every resource, so that fractions add up before they are rounded."""


def amounts(quantities: Quantities | None) -> dict[str, int]:
    """A Node's amounts, by resource, sorted by name; 0 for invalid quantities."""
    found = {
        intern(name): _rounded(name, _milli(amount))
        for name, amount in (quantities or {}).items()
        if name == POD_COUNT or _is_counted(name)
    }
    return dict(sorted(found.items()))


def requests(
    asked: PodResourceSpec,
    given: Given = _NOTHING_GIVEN,
    containers: Sequence[ContainerGiven] = (),
    conditions: Sequence[ForeignCondition] = (),
) -> dict[str, int]:
    """The scheduler's amounts for a Pod, by resource, sorted by name: no zeros, MOST_RESOURCES at most.

    `containers` are what the kubelet has given to its containers, init containers among them. While a Pod is resized
    the larger of the old and the new counts, unless the kubelet says that it can never have the new.
    """
    is_infeasible = any(found.type == "PodResizePending" and found.reason == "Infeasible" for found in conditions)
    by_name = {found.name: found for found in containers}
    total = _together(asked, by_name, is_infeasible=is_infeasible)
    if asked.resources is not None:
        at_first = _together(asked, {}, is_infeasible=False)
        total |= _of_the_pod(asked.resources, at_first, given, is_infeasible=is_infeasible)
    _add(total, _thousandths(asked.overhead))
    found = {name: _rounded(name, amount) for name, amount in sorted(total.items())}
    taken = {name: amount for name, amount in found.items() if amount > 0}
    if len(taken) > MOST_RESOURCES:
        kept = sorted(taken, key=lambda name: ("/" in name and not name.startswith(_HANDED_OUT_PREFIX), name))
        taken = {name: taken[name] for name in sorted(kept[:MOST_RESOURCES])}
    return {intern(name): amount for name, amount in taken.items()}


def limits(asked: PodResourceSpec) -> dict[str, int]:
    """The amounts that a Pod may use at most, as a ResourceQuota counts them, by resource: of containers that have a
    limit, and its overhead."""
    limited = PodResourceSpec(
        containers=[_limited(container) for container in asked.containers or ()],
        init_containers=[_limited(container) for container in asked.init_containers or ()],
        resources=Resources(requests=asked.resources.limits) if asked.resources else None,
    )
    overhead = requests(PodResourceSpec(overhead=asked.overhead))
    return {name: amount + overhead.get(name, 0) for name, amount in requests(limited).items() if name in _COUNTED}


def _limited(container: Container) -> Container:
    most = container.resources.limits if container.resources else None
    return Container(container.name, Resources(requests=most), container.restart_policy)


def needs(template: object) -> Needs:
    """Each Pod's needs of its node by this spec, without GPUs: they are placed one by one.

    A spec that cannot be read needs a place for one Pod: the API server will say what is wrong with it.
    """
    try:
        asked = requests(msgspec.convert(template, PodResourceSpec))
    except msgspec.ValidationError:
        asked = {}
    named = {name: amount for name, amount in asked.items() if is_needed(name)}
    return tuple(sorted({**named, POD_COUNT: 1}.items()))


def needs_of(template: PackedTemplate) -> Needs:
    """The same for a job's template."""
    return template.once(_needs_of)


def _needs_of(template: PodTemplate) -> Needs:
    return needs(template.spec)


def is_needed(resource: str) -> bool:
    """Whether the nodes' amounts of it decide who fits: those of GPUs do not, and change with every Pod."""
    # Of devices that are claimed the scheduler says whether there are any, whatever the node counts.
    return not resource.startswith((_HANDED_OUT_PREFIX, CLAIMED_PREFIX))


def _together(asked: PodResourceSpec, given: Mapping[str, ContainerGiven], *, is_infeasible: bool) -> _Milli:
    """All containers and sidecars together, or the greediest moment of the init phase."""
    total: _Milli = {}
    for container in asked.containers or ():
        _add(total, _of_one(container, given.get(container.name), is_infeasible=is_infeasible))
    sidecars: _Milli = {}
    peak: _Milli = {}
    for container in asked.init_containers or ():
        if container.is_sidecar:
            wanted = _of_one(container, given.get(container.name), is_infeasible=is_infeasible)
            _add(total, wanted)
            _add(sidecars, wanted)
            moment = {name: sidecars[name] for name in wanted}
        else:
            wanted = _thousandths(_wanted(container.resources))
            moment = {name: amount + sidecars.get(name, 0) for name, amount in wanted.items()}
        # Of all else the moment before had as much. Added up for each of some ten thousand containers, which a Pod
        # may have, it would take many seconds.
        _raise(peak, moment)
    _raise(total, peak)
    return total


def _of_one(container: Container, given: ContainerGiven | None, *, is_infeasible: bool) -> _Milli:
    wanted = _wanted(container.resources)
    if given is None or given.resources is None:
        return _thousandths(wanted)
    was, will_be = given.resources.requests or {}, given.allocated_resources or {}
    if wanted == was == will_be:  # as of almost every container
        return _thousandths(wanted)
    found = _thousandths(wanted)
    if is_infeasible:
        found = {name: amount for name, amount in found.items() if name not in _RESIZED}
    _raise(found, _thousandths(was))
    _raise(found, _thousandths(will_be))
    return found


def _of_the_pod(resources: Resources, at_first: _Milli, given: Given, *, is_infeasible: bool) -> _Milli:
    """The sum with spec.resources in place of the containers'. A limit alone counts as a request, except for CPU and
    memory that containers requested when the Pod was made: it keeps those, and their huge pages unless it names
    some."""
    found = _thousandths(resources.requests)
    limits = _thousandths(resources.limits)
    if resources.requests or resources.limits:
        limits = {name: amount for name, amount in at_first.items() if name.startswith(_HUGE_PAGES)} | limits
    if limits:
        found = limits | {name: amount for name, amount in at_first.items() if name in _POD_LEVEL} | found
    found = {name: amount for name, amount in found.items() if _is_of_pods(name)}
    if given.resources is None:
        return found
    effective: _Milli = {} if is_infeasible else dict(found)
    _raise(effective, _thousandths(given.resources.requests))
    _raise(effective, _thousandths(given.allocated_resources))
    return {name: effective.get(name, 0) for name in found}


def _wanted(resources: Resources | None) -> Quantities:
    """The API server copies limits to requests where only limits are given; a template has not been through it yet."""
    if resources is None:
        return {}
    return {**(resources.limits or {}), **(resources.requests or {})}


def _thousandths(quantities: Quantities | None) -> _Milli:
    if not quantities:
        return {}
    return {name: _milli(amount) for name, amount in quantities.items() if _is_counted(name)}


def _is_counted(resource: str) -> bool:
    """Whether the scheduler counts it at all."""
    if "/" in resource:
        return not resource.startswith(_QUOTA_PREFIX)
    return resource in _COUNTED or resource.startswith(_COUNTED_PREFIXES)


def _is_of_pods(resource: str) -> bool:
    return resource in _POD_LEVEL or resource.startswith(_HUGE_PAGES)


def _milli(amount: str | int | float | None) -> int:
    """Thousandths of a quantity, rounded up; 0 for an invalid one, infinity and negative ones included."""
    try:
        word = str(amount)
    except ValueError:  # a number of thousands of digits is one, too
        return 0
    return _milli_of(word) if len(word) <= _LONGEST else 0


@lru_cache(maxsize=_KNOWN_WORDS)
def _milli_of(word: str) -> int:
    try:
        exact = quantity(word) * 1000
    except ValueError:
        return 0
    below = int(exact)  # math.ceil of a Decimal takes ten times as long
    return min(below + (below != exact), MOST)


def _rounded(resource: str, milli: int) -> int:
    return milli if resource == CPU else -(-milli // 1000)


def _add(total: _Milli, more: _Milli) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(most: _Milli, other: _Milli) -> None:
    """Raises each to the other's amount."""
    for name, amount in other.items():
        if amount > most.get(name, -1):
            most[name] = amount
