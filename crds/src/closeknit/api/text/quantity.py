"""Kubernetes quantities and durations as numbers. The wire keeps the text that the user wrote."""

import re
from decimal import Decimal

# Suffixes of k8s.io/apimachinery resource.Quantity: decimal SI, binary SI, and milli as used for CPUs.
_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    **{prefix: Decimal(1000) ** power for power, prefix in enumerate("kMGTPE", start=1)},
    **{f"{prefix}i": Decimal(1024) ** power for power, prefix in enumerate("KMGTPE", start=1)},
}
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
DURATION_PATTERN = r"^([0-9]+(h|m|s))+$"
# Kubernetes accepts more spellings than we do. Negative amounts are refused here, too.
_QUANTITY = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i)?")
_EXPONENT = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]{1,3}")
_DURATION = re.compile(DURATION_PATTERN)
_SECONDS = {"h": 3600, "m": 60, "s": 1}


def quantity(text: str | int | float) -> Decimal:
    """The number that a quantity stands for, in its base unit: quantity("80Gi") is 85899345920. Raises ValueError."""
    word = str(text)
    if _EXPONENT.fullmatch(word):
        return Decimal(word)
    found = _QUANTITY.fullmatch(word)
    if not found:
        raise ValueError(f"{word!r} is not a quantity such as 8, 500m, 80Gi or 1.5T")
    digits, suffix = found.groups()
    return Decimal(digits) * _SUFFIXES[suffix or ""]


def duration_s(text: str) -> int:
    """Seconds of a duration such as 10m or 1h30m. Raises ValueError."""
    if not _DURATION.match(text):
        raise ValueError(f"{text!r} is not a duration such as 30s, 10m or 1h30m")
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9]+)([hms])", text))
