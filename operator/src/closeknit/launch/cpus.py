"""The CPUs of a container: what its template tells of them, and what it may be given where that leaves them open."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from closeknit.api.text.quantity import quantity

QUANTITY_MAX_LENGTH = 32  # as closeknit.api bounds quantities; a longer text is for the API server to refuse


def cpus(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Decimal | None:
    """CPUs of the container: its limit, else the Pod's as a whole; then what they request. None where nothing is said
    of them, or what is said is no quantity."""
    for field in ("limits", "requests"):
        for holder in (container, pod):
            cpu = ((holder.get("resources") or {}).get(field) or {}).get("cpu")
            if isinstance(cpu, str | int | float) and len(text := str(cpu)) <= QUANTITY_MAX_LENGTH:
                try:
                    cores = quantity(text)
                except ValueError:
                    return None
                if cores > 0:  # 0 is no limit
                    return cores
    return None


def are_open(pod: Mapping[str, Any], trainer: int) -> bool:
    """Whether whole CPUs for the trainer, the container of this index, are all that the Pod lacks to have CPUs of its
    own: the kubelet's static CPU manager gives them to Guaranteed Pods, whose containers all have limits, of memory,
    too, and no other requests."""
    if pod.get("resources"):
        return False
    containers = [*(pod.get("containers") or []), *(pod.get("initContainers") or [])]
    return not _has(containers[trainer], "cpu") and all(
        _is_bounded(container, resource)
        for index, container in enumerate(containers)
        for resource in ("cpu", "memory")
        if (index, resource) != (trainer, "cpu")
    )


def is_guaranteed(pod: Mapping[str, Any]) -> bool:
    """Whether the template makes a Guaranteed Pod by its containers; not for certain where it asks as a whole."""
    containers = [*(pod.get("containers") or []), *(pod.get("initContainers") or [])]
    return not pod.get("resources") and all(
        _is_bounded(container, resource) for container in containers for resource in ("cpu", "memory")
    )


def _has(container: Mapping[str, Any], resource: str) -> bool:
    resources = container.get("resources") or {}
    return any(resource in (resources.get(field) or {}) for field in ("limits", "requests"))


def _is_bounded(container: Mapping[str, Any], resource: str) -> bool:
    """Whether it has a limit, and asks for as much."""
    resources = container.get("resources") or {}
    limit = (resources.get("limits") or {}).get(resource)
    return limit is not None and (resources.get("requests") or {}).get(resource, limit) == limit
