"""The CPUs of a container, as far as its template tells."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from closeknit.api.quantity import quantity

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
