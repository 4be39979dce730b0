"""What the operator sees: a reflector for each stream of objects, and the Cluster that follows them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.kinds import KINDS, Change, ClusterObject, Kind, Stream
from closeknit.kube.api import Api, Key, Resource
from closeknit.kube.reflector import Event, Reflector

_log = logging.getLogger(__name__)


class Sight:
    """Keeps the Cluster up to date in `run`; `on_change` is called after every batch of changes, and must be quick."""

    def __init__(self, api: Api, on_change: Callable[[], None]) -> None:
        self.reflectors: Mapping[Stream, Reflector[ClusterObject]] = {
            kind.stream: self._reflector(api, kind) for kind in KINDS
        }
        self._on_change = on_change
        self._cluster = Cluster.empty()
        self._changes: list[Change] = []

    @property
    def cluster(self) -> Cluster:
        """The cluster as last seen. Changes are taken in when somebody looks, many at once."""
        if self._changes:
            changes, self._changes = self._changes, []
            self._cluster = self._cluster.after(changes)
        return self._cluster

    @property
    def is_synced(self) -> bool:
        """Whether every stream was read completely once."""
        return all(reflector.synced.is_set() for reflector in self.reflectors.values())

    async def synced(self) -> None:
        """Returns once every stream was read completely."""
        for reflector in self.reflectors.values():
            await reflector.synced.wait()

    def has_seen(self, source: Stream, version: str) -> bool:
        """Whether the stream has passed this resourceVersion. Versions of one resource are decimal and count up."""
        last = self.reflectors[source].last_rv
        return not (version.isdecimal() and last.isdecimal()) or int(last) >= int(version)

    async def run(self) -> None:
        """Reads for ever."""
        async with asyncio.TaskGroup() as readers:
            for source, reflector in self.reflectors.items():
                readers.create_task(reflector.run(), name=f"reflector {source}")

    def _reflector(self, api: Api, kind: Kind) -> Reflector[ClusterObject]:
        return Reflector(
            api,
            Resource(kind.group, kind.version, kind.plural, kind.namespaced),
            kind.decode,
            partial(self._take, kind.stream),
            on_quarantine=partial(_report, kind.stream),
            field_selector=kind.field_selector,
            label_selector=kind.label_selector,
        )

    def _take(self, source: Stream, events: Sequence[Event[ClusterObject]]) -> None:
        self._changes += [Change(source, (event.key.namespace, event.key.name), event.new) for event in events]
        self._on_change()


def _report(source: Stream, key: Key, error: Exception) -> None:
    _log.warning("an object cannot be read and is left out", extra={"resource": source, "object": key, "error": error})
