"""Names of products as labels have them."""

import re

MAX_LENGTH = 63  # of a label's value


def product(name: str | None) -> str | None:
    """The product as NVIDIA's own label spells it: `NVIDIA H200` -> `NVIDIA-H200`, valid as a label's value."""
    words = re.sub(r"[^A-Za-z0-9_.-]+", "-", (name or "").strip())
    return words[:MAX_LENGTH].strip("-_.") or None
