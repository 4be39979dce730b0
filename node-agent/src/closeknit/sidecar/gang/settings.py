"""What the sidecar is told of its gang, by one variable of its environment; and what it agrees on with the operator."""

import json
from collections.abc import Mapping
from typing import NamedTuple

VARIABLE = "CLOSEKNIT_GANG"
"""JSON: index, replacement, size, host, port, key (hex), resetCodes or finalCodes, sizes, grace,
and what is to be done about hangs."""
REPLACED_VARIABLE = "CLOSEKNIT_GANG_REPLACED"
"""JSON, for a new meeting point: the replaced Pods by their index, each with how many had its place before."""
FOLDER = "/run/closeknit-gang"  # an emptyDir of the Pod: it stays as it is when all containers start again
RESET_CODE = (
    77  # with which the watch has its Pod's containers started again; the restart rule of its container names it
)
TOLD_CODE = 78  # with which it leaves words of a hang as its termination message, and is started again alone
LARGEST_GANG = 65536  # members; no job has more Pods
_LONGEST = 4096  # bytes of a variable


class Settings(NamedTuple):
    """One member's part in its gang."""

    index: int  # type: ignore[assignment] # in the place of tuple.index, which none calls
    """Position of its Pod in the gang, from 0. Node rank 0 is the meeting point."""
    size: int
    """Pods of the gang."""
    host: str
    """Host name of node rank 0's Pod."""
    port: int
    key: bytes
    """Shared by the Pods of one attempt."""
    reset_codes: frozenset[int] | None = None
    """Exit codes of a trainer after which its Pod's containers start again; None: all but 0 and `final_codes`."""
    final_codes: frozenset[int] = frozenset()
    """Exit codes that end its Pod for good."""
    hears_ras: bool = False
    """Whether NCCL's RAS is asked for hangs, at node rank 0."""
    behind_s: float | None = None
    """The job's own deadline without progress; None for that of the code."""
    tells_first_step: bool = False
    """Whether node rank 0 tells when its trainer first touches its file in the first run of these Pods, too: they
    follow others. In a later run it always does."""
    tells_nccl: bool = False
    """Whether node rank 0 tells the version of NCCL as soon as it is known: what the operator says of the template
    depends on it. Beside other words it is always told."""
    restarts_hung: bool = False
    """Whether a gang that hangs starts again; else it is only told."""
    replacement: int = 0
    """How many Pods had its place before it: then it joins a gang that is there."""
    replaced: Mapping[int, int] = {}
    """The same of the other members, as far as it is not 0, when this Pod was made; told to a meeting point alone."""
    sizes: Mapping[str, str] = {}
    """Variables of the trainer that name the size of the gang, each with its pattern: `{nodes}` and `{ranks}`."""
    grace_s: float = 30.0
    """How long a trainer has that is told to end by choice."""
    probe_port: int | None = None
    """Where a kubelet's probe is answered in a Pod that is not node rank 0's; None: nowhere."""

    @property
    def is_meeting_point(self) -> bool:
        """Whether this Pod is node rank 0's."""
        return self.index == 0

    def is_final(self, code: int) -> bool:
        """Whether a trainer that ends with this code has ended its Pod for good."""
        return code == 0 or code in self.final_codes or (self.reset_codes is not None and code not in self.reset_codes)

    def variables(self, nodes: int, ranks: int) -> dict[str, str]:
        """What the trainer of a gang of this size finds in its environment."""
        told = {"{nodes}": str(nodes), "{ranks}": str(ranks)}
        found = dict(self.sizes)
        for word, number in told.items():
            found = {name: value.replace(word, number) for name, value in found.items()}
        return found

    @staticmethod
    def parse(text: str, replaced: str = "") -> "Settings":
        """The settings of the variables' values. Raises ValueError."""
        if len(text) > _LONGEST or len(replaced) > _LONGEST:
            raise ValueError(f"{VARIABLE} has {len(text)} characters, {REPLACED_VARIABLE} {len(replaced)}")
        try:
            given = json.loads(text)
            others = json.loads(replaced or "{}")
            settings = Settings(
                index=int(given["index"]),
                size=int(given["size"]),
                host=str(given["host"]),
                port=int(given["port"]),
                key=bytes.fromhex(given["key"]),
                reset_codes=frozenset(map(int, given["resetCodes"])) if "resetCodes" in given else None,
                final_codes=frozenset(map(int, given.get("finalCodes", ()))),
                hears_ras=given.get("ras") is True,
                behind_s=float(given["stallSeconds"]) if "stallSeconds" in given else None,
                tells_first_step=given.get("firstStep") is True,
                tells_nccl=given.get("nccl") is True,
                restarts_hung=given.get("onHang") == "Restart",
                replacement=int(given.get("replacement", 0)),
                replaced={int(index): int(number) for index, number in others.items()},
                sizes={str(name): str(pattern) for name, pattern in given.get("sizes", {}).items()},
                grace_s=float(given.get("grace", 30)),
                probe_port=int(given["probePort"]) if "probePort" in given else None,
            )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{VARIABLE} is not what closeknit's operator writes: {error}") from None
        ports = (settings.port, settings.port if settings.probe_port is None else settings.probe_port)
        is_member = 0 <= settings.index < settings.size <= LARGEST_GANG and settings.replacement >= 0
        if not (is_member and all(0 < port < 65536 for port in ports) and settings.key):
            raise ValueError(f"{VARIABLE} names no member of a gang")
        return settings
