"""Versions of NCCL, as NCCL's RAS, a preflight and a job's status tell them."""

import re
from typing import NamedTuple

_LONGEST = 64  # characters; builds of others have words after the numbers
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.([0-9]{1,3}))?(?![0-9.])")


class NcclVersion(NamedTuple):
    """One of them; they compare as they follow each other."""

    major: int
    minor: int
    patch: int = 0

    @staticmethod
    def parse(text: str | None) -> "NcclVersion | None":
        """The version that a text begins with, without what a build adds to it; None for anything else."""
        if not text or len(text) > _LONGEST or (found := _VERSION.match(text)) is None:
            return None
        major, minor, patch = found.groups(default="0")
        return NcclVersion(int(major), int(minor), int(patch))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class NcclRange(NamedTuple):
    """The versions for which something holds."""

    since: NcclVersion | None = None
    """The first of them; None: all before `before`."""
    before: NcclVersion | None = None
    """The first after them; None: all since `since`."""

    def has(self, version: NcclVersion) -> bool:
        """Whether a version is one of them."""
        return (self.since is None or version >= self.since) and (self.before is None or version < self.before)

    def __str__(self) -> str:
        if self.since is None:
            return "all versions of NCCL" if self.before is None else f"NCCL before {_short(self.before)}"
        if self.before is None:
            return f"NCCL {_short(self.since)} and later"
        return f"NCCL from {_short(self.since)}, before {_short(self.before)}"


ALL = NcclRange()


def since(minor: int, patch: int = 0) -> NcclRange:
    """NCCL 2.minor.patch and later."""
    return NcclRange(NcclVersion(2, minor, patch))


def before(minor: int, patch: int = 0) -> NcclRange:
    """What is older than NCCL 2.minor.patch."""
    return NcclRange(None, NcclVersion(2, minor, patch))


def between(first: int, end: int) -> NcclRange:
    """NCCL 2.first and later, but older than 2.end."""
    return NcclRange(NcclVersion(2, first), NcclVersion(2, end))


def _short(version: NcclVersion) -> str:
    """As people call it: a release without a patch is that of all its patches."""
    return str(version) if version.patch else f"{version.major}.{version.minor}"
