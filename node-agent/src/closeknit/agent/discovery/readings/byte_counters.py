"""Counters of what has moved, and nothing that is published: only that one of them rose tells anything. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ByteCounters:
    """What has moved until now, in bytes; unreadable counters are absent.

    A counter that is lower than before was reset.
    """

    nvlink: Mapping[str, int] = field(default_factory=dict)
    """uuid of a GPU -> sent over all of its NVLinks."""
    rdma: Mapping[str, int] = field(default_factory=dict)
    """Name of an RDMA port that carries jobs' data -> sent and received, without what its own interface did."""
    sockets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """uuid of a GPU -> interface -> sent and received there, in the network of the programs that compute on it."""


NO_TRAFFIC = ByteCounters()
