"""ResourceQuotas of a namespace, in the few fields that limit a gang."""

from collections.abc import Iterable, Mapping

import msgspec

from closeknit.cluster.objects.meta import Metadata, Quantities, WireStruct


class ScopeRequirement(WireStruct, frozen=True):
    """One line of a quota's scopeSelector."""

    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class Quota(msgspec.Struct, frozen=True):
    """One ResourceQuota, with the API server's numbers."""

    name: str
    hard: Mapping[str, str | int | float] = {}
    used: Mapping[str, str | int | float] = {}
    scopes: tuple[ScopeRequirement, ...] = ()
    """Conditions for a Pod to count; other objects count only without any."""


class _Selector(WireStruct, frozen=True):
    match_expressions: list[ScopeRequirement] | None = None


class _Spec(WireStruct, frozen=True):
    scopes: list[str] | None = None
    scope_selector: _Selector | None = None


class _Status(WireStruct, frozen=True):
    hard: Quantities | None = None
    used: Quantities | None = None


class _WireQuota(WireStruct, frozen=True):
    metadata: Metadata
    spec: _Spec | None = None
    status: _Status | None = None


_decode = msgspec.json.Decoder(_WireQuota).decode


def quotas(documents: Iterable[bytes]) -> tuple[Quota, ...]:
    """The quotas of these JSON documents, by name. Unreadable ones are left out: the API server knows them."""
    found: list[Quota] = []
    for document in documents:
        try:
            wire = _decode(document)
        except (msgspec.MsgspecError, RecursionError):
            continue
        found.append(_quota(wire))
    return tuple(sorted(found, key=lambda quota: quota.name))


def _quota(wire: _WireQuota) -> Quota:
    spec, status = wire.spec or _Spec(), wire.status or _Status()
    selected = spec.scope_selector.match_expressions if spec.scope_selector else None
    named = [ScopeRequirement(scope, "Exists") for scope in spec.scopes or ()]
    return Quota(wire.metadata.name, _told(status.hard), _told(status.used), (*named, *(selected or ())))


def _told(quantities: Quantities | None) -> dict[str, str | int | float]:
    return {name: amount for name, amount in (quantities or {}).items() if amount is not None}
