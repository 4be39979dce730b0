"""Whether a whole gang fits into the rest of its namespace's quotas.

As the API server's resource quota admission decides it for each object, as of 1.36. What cannot be evaluated here
counts as not limiting: the API server has the last word on every create.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from closeknit.api.text.quantity import quantity
from closeknit.lifecycle.writes.quota_demand import HUGE_PAGES, QuotaDemand
from closeknit.lifecycle.writes.resource_quotas import Quota, ScopeRequirement
from closeknit.placement.candidates.resource_fit import told

SHOWN = 4  # of many shortfalls
CPUS = frozenset({"cpu", "requests.cpu", "limits.cpu"})
_OF_A_GANG = frozenset({"services", "configmaps", "secrets"})  # one of each, whatever its size
_LONGEST = 64  # characters of a quantity; the API server prints 20 at most


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One number of one quota that the gang would exceed; of CPUs in thousandths."""

    quota: str
    resource: str
    asked: int
    hard: int
    used: int

    @property
    def is_passing(self) -> bool:
        """Whether it may vanish once the expected amount has gone from the used one."""
        return max(self.used, self.asked) <= self.hard

    def __str__(self) -> str:
        asked, hard, used, left = (
            _told(self.resource, amount) for amount in (self.asked, self.hard, self.used, max(0, self.hard - self.used))
        )
        return f"quota {self.quota}: {self.resource}: asked {asked}, hard {hard}, used {used}, left {left}"


def shortfalls(demand: QuotaDemand, quotas: Iterable[Quota]) -> tuple[Shortfall, ...]:
    """All that the gang would exceed, by quota and resource."""
    return tuple(shortfall for quota in quotas for shortfall in _of_one(demand, quota))


@dataclass(frozen=True, slots=True)
class QuotaRoom:
    """What a namespace's quotas left when a whole gang asked for more, to tell of other sizes of it."""

    pods: int
    """Of that gang."""
    gpus: int
    """Of that gang."""
    short: tuple[Shortfall, ...]
    """What it exceeded."""

    def holds(self, pods: int, gpus: int) -> bool:
        """Whether the gang would fit with so many Pods and GPUs. Each Pod takes what it took, but for devices, which go
        with the GPUs; a smaller gang is checked again before it is made."""
        return all(_share(each, pods, gpus, self) <= each.hard - each.used for each in self.short)

    def holds_likely(self, gpus: int) -> bool:
        """The same with as many Pods for each GPU as the gang had."""
        return self.holds(-(-gpus * self.pods // self.gpus), gpus)


def _share(each: Shortfall, pods: int, gpus: int, of: QuotaRoom) -> int:
    """How much a gang of other numbers asks of this, rounded up."""
    name = each.resource.removeprefix("requests.")
    if name.removeprefix("count/") in _OF_A_GANG:
        return each.asked
    is_device = "/" in name and not name.startswith(("count/", HUGE_PAGES))
    return -(-each.asked * gpus // of.gpus) if is_device else -(-each.asked * pods // of.pods)


def quota_room(demand: QuotaDemand, quotas: Iterable[Quota]) -> QuotaRoom | None:
    """What the quotas leave to other sizes of a gang that exceeds them; None for some Pods of a gang, and where it is
    not too large."""
    pods, short = demand.pods.get("pods", 0), shortfalls(demand, quotas)
    return QuotaRoom(pods, demand.gpus, short) if demand.gpus and pods and short else None


def words(found: tuple[Shortfall, ...], namespace: str) -> str:
    """The message about it."""
    shown = "; ".join(map(str, found[:SHOWN]))
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    advice = "free some of it, ask for less, or have an administrator raise it"
    return f"the whole gang is more than is left of the quotas of namespace {namespace}: {shown}{more}; {advice}"


def _of_one(demand: QuotaDemand, quota: Quota) -> Iterator[Shortfall]:
    asked = _asked(demand, quota)
    is_of_best_effort = any(scope.scope_name == "BestEffort" for scope in quota.scopes)
    for resource in sorted(asked.keys() & quota.hard.keys() & quota.used.keys()):
        hard, used = amount(resource, quota.hard[resource]), amount(resource, quota.used[resource])
        if hard is None or used is None or (is_of_best_effort and used >= hard):
            continue  # the first Pod shows whether a LimitRange makes it another class before anything runs
        used -= min(used, sum(each.pods.get(resource, 0) for each in demand.given_back if counts(quota, each)))
        used += sum(_asked(each, quota).get(resource, 0) for each in demand.first)
        if asked[resource] > max(0, hard - used):
            yield Shortfall(quota.name, resource, asked[resource], hard, used)


def _asked(demand: QuotaDemand, quota: Quota) -> dict[str, int]:
    """What the quota is sure to count of it."""
    asked = dict(demand.pods) if counts(quota, demand) else {}
    return asked if quota.scopes else asked | dict(demand.others)


def counts(quota: Quota, demand: QuotaDemand) -> bool:
    """Whether its Pods are sure to be counted by the quota."""
    return all(_counts(scope, demand) for scope in quota.scopes)


def _counts(scope: ScopeRequirement, demand: QuotaDemand) -> bool:
    """Whether Pods of the gang are sure to be counted by a quota of this scope."""
    match scope.scope_name, scope.operator:
        case "Terminating", "Exists":
            return demand.has_deadline
        case "NotTerminating", "Exists":
            return not demand.has_deadline
        case "BestEffort", "Exists":
            return demand.is_best_effort
        case "NotBestEffort", "Exists":
            return not demand.is_best_effort
        case "PriorityClass", "Exists":
            return bool(demand.priority_class)
        case "PriorityClass", "In":
            return bool(demand.priority_class) and demand.priority_class in (scope.values or ())
        case "PriorityClass", "NotIn":
            # Pods that name none are given the class that is the default, if there is one.
            is_known = demand.is_class_known or bool(demand.priority_class)
            return is_known and demand.priority_class not in (scope.values or ())
        case _:
            return False


def amount(resource: str, text: str | int | float) -> int | None:
    """A number of a quota, of CPUs in thousandths, rounded down; None for what is no quantity."""
    word = str(text)
    try:
        exact = quantity(word) if len(word) <= _LONGEST else None
    except ValueError:
        return None
    return None if exact is None else int(exact * 1000 if resource in CPUS else exact)


def _told(resource: str, amount: int) -> str:
    return told(resource.removeprefix("requests.").removeprefix("limits."), amount)
