"""Reads logs of a job's Pods, and where it follows them goes on with the Pods that come after them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from math import ceil
from time import time

from closeknit.api.names import TRAINER_CONTAINER
from closeknit.api.text.printable import printable
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.jobs.found_jobs import asked_job
from closeknit.cli.live.cluster_connection import PODS, TRAINING_JOBS
from closeknit.cli.logs.log_lines import LogLines
from closeknit.cli.logs.log_position import LogPosition, LogRead
from closeknit.cli.logs.log_sources import LogSource, LogSources, places
from closeknit.kube.errors import Invalid, NotFound, Transient, Unauthorized
from closeknit.kube.http.http_api import HttpApi

EVERY_S = 1.0
# A connection may die without a word: a laptop slept, a NAT forgot it. A log in which nothing is printed looks the
# same, so that the log is asked for again: one small request in so many seconds. Load balancers forget after 240 s.
QUIET_S = 180.0
ANSWER_S = 30.0  # for what was printed already, as for any other answer
LAST_READS = 3  # of a job that is over, where the way is lost again and again
MOST_PODS = 64  # each takes a connection of the API server and of a kubelet


Put = Callable[[bytes], Awaitable[None]]
"""Takes one line, with its line break. Nothing more is read before it has."""
Say = Callable[[str], None]
"""Takes a word about the reading itself."""


@dataclass(frozen=True, slots=True)
class LogsArguments:
    """Which lines of which ranks."""

    job: str
    ranks: tuple[int, ...]
    everyone: bool
    follow: bool
    tail: int | None
    """The last lines of each Pod alone."""
    reach: Reach
    previous: bool = False
    """Of the run before the last restart; not with `follow`."""


async def read_logs(api: HttpApi, asked: LogsArguments, put: Put, say: Say) -> None:
    """Puts every line that was asked for. Raises NotThere."""
    job = (await asked_job(api, asked.job, asked.reach)).job
    reader = _Reader(api, asked, put, say)
    found = await reader.places(job.key.namespace)
    choose = found.chosen_before if asked.previous else found.chosen
    chosen = choose(asked.ranks, everyone=asked.everyone)
    if len(chosen) > MOST_PODS:
        raise NotThere(f"{found.job} has {len(chosen)} Pods, more than {MOST_PODS}: name ranks by --rank")
    if not asked.follow:
        await reader.put_all(found, chosen)
        return
    while not chosen:
        reader.tell(found)
        if found.is_over:
            return
        await asyncio.sleep(EVERY_S)
        found = await reader.asked_again(job.key.namespace)
        chosen = found.chosen(asked.ranks, everyone=asked.everyone)
    is_alone = len(chosen) == 1
    await asyncio.gather(*(reader.follow(job.key.namespace, place, is_alone=is_alone) for place in chosen))


class _Reader:
    """Reads logs of one job."""

    def __init__(self, api: HttpApi, asked: LogsArguments, put: Put, say: Say) -> None:
        self._api = api
        self._asked = asked
        self._put = put
        self._say = say
        self._told = ""

    async def places(self, namespace: str) -> LogSources:
        """Where the job is now."""
        return places(await self._api.get(TRAINING_JOBS, self._asked.job, namespace=namespace))

    def tell(self, found: LogSources) -> None:
        """What is waited for, once."""
        self.say_once(f"{found.job} has no Pod yet: it is {found.state}{f' ({found.why})' if found.why else ''}")

    def say_once(self, words: str) -> None:
        """Says it, unless it was said last."""
        if words != self._told:
            self._told = words
            self._say(words)

    async def put_all(self, found: LogSources, chosen: tuple[LogSource, ...]) -> None:
        """What the Pods have printed so far, one after the other. Raises NotThere where none has."""
        if not chosen:
            why = f" ({found.why})" if found.why else ""
            words = "--follow waits for it" if found.before is None else "--follow waits, --previous shows its last run"
            raise NotThere(f"{found.job} has no Pod yet: it is {found.state}{why}; {words}")
        missing = []
        for place in chosen:
            prefix = b"" if len(chosen) == 1 else _prefix(place)
            is_ended = self._asked.previous and found.before is not None and found.before.in_place
            try:
                async for line in self._lines(found.job.namespace, place.pod, is_ended=is_ended):
                    await self._put(prefix + line)
            except TimeoutError:
                raise NotThere(f"the log of {place.pod} has stopped to come after {ANSWER_S:g} s: ask again") from None
            except NotFound:
                missing.append(f"{place.pod} is gone")
            except Invalid as error:
                missing.append(_deleted(found, place) if is_ended else str(error))
        if missing and len(missing) == len(chosen):
            raise NotThere(printable(f"there is nothing of {found.job} to read: {missing[0]}"))
        for words in missing:
            self._say(words)

    async def follow(self, namespace: str, place: LogSource, *, is_alone: bool) -> None:
        """What the Pod of this place prints, and those that come after it, until the job is over."""
        log: _FollowedLog | None = None
        while True:
            found = await self.asked_again(namespace)
            now = next((each for each in found.all if each.node_rank == place.node_rank), None)
            if now is not None and (log is None or now.pod != log.pod):
                if log is not None:
                    await self._finish(namespace, log)
                log = _FollowedLog(now.pod, b"" if is_alone else _prefix(now))
            if found.is_over:
                if log is not None:
                    await self._finish(namespace, log)
                return
            if log is not None:
                await self._read_on(namespace, log, waits=True)
            await asyncio.sleep(EVERY_S)

    async def _finish(self, namespace: str, log: "_FollowedLog") -> None:
        """Puts what is left of a log that is followed no more."""
        for _ in range(LAST_READS):
            if await self._read_on(namespace, log, waits=False):
                break
            await asyncio.sleep(EVERY_S)
        else:
            self._say(f"the end of the log of {log.pod} cannot be read")
        await self._put_all_of(log, log.position.rest())

    async def asked_again(self, namespace: str) -> LogSources:
        """Where the job is now, through outages of the API server."""
        is_refused = False
        while True:
            try:
                return await self.places(namespace)
            except Transient as error:
                is_refused = False
                self.say_once(f"{' '.join(str(error).split())}; asking again")
            except Unauthorized:  # once: the login is renewed before the next request
                if is_refused:
                    raise
                is_refused = True
            await asyncio.sleep(EVERY_S)

    async def _read_on(self, namespace: str, log: "_FollowedLog", *, waits: bool) -> bool:
        """Puts what comes after the present position. Whether the log itself has ended, or there is none: else the way
        to it was lost, or nothing has come for so long that it may be lost. `waits`: for what is printed later."""
        read, asked_at = LogRead(log.position), time()
        pieces = self._pieces(namespace, log.pod, self._query(log, waits=waits), QUIET_S if waits else ANSWER_S)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    await self._put_all_of(log, read.of(piece))
        except NotFound:  # it is not there yet, or not any more
            return True
        except Invalid as error:
            if error.code != HTTPStatus.BAD_REQUEST:
                raise
            return True  # its container has not begun
        except (Transient, Unauthorized):
            self._say(f"the log of {log.pod} was cut off; asking again")
            return False
        except TimeoutError:
            is_whole = False
        else:
            is_whole = True
        finally:
            read.end()
        log.opened_at = log.opened_at or asked_at
        return is_whole

    def _query(self, log: "_FollowedLog", *, waits: bool) -> Mapping[str, str | int]:
        query: dict[str, str | int] = {**({"follow": "true"} if waits else {}), "timestamps": "true"}
        if (since := log.position.since) is not None:
            query["sinceTime"] = since
        elif self._asked.tail is not None and log.opened_at is None:
            query["tailLines"] = self._asked.tail
        elif self._asked.tail == 0 and log.opened_at is not None:  # what was there then is passed over
            query["sinceSeconds"] = max(1, ceil(time() - log.opened_at))
        return query

    async def _put_all_of(self, log: "_FollowedLog", lines: Iterator[bytes]) -> None:
        for line in lines:
            await self._put(log.prefix + line)

    async def _lines(self, namespace: str, pod: str, *, is_ended: bool) -> AsyncIterator[bytes]:
        """All that there is now, or of the container before the present one. Raises TimeoutError where the answer stops
        to come."""
        tail: dict[str, str | int] = {} if self._asked.tail is None else {"tailLines": self._asked.tail}
        if is_ended:
            tail["previous"] = "true"
        lines = LogLines()
        async for piece in self._pieces(namespace, pod, tail, ANSWER_S):
            for part in lines.of(piece):
                yield part.text + b"\n"
        for part in lines.rest():
            yield part.text + b"\n"

    async def _pieces(
        self, namespace: str, pod: str, query: Mapping[str, str | int], quiet_s: float
    ) -> AsyncGenerator[bytes, None]:
        """The log as it comes. Raises TimeoutError once nothing has come for so long."""
        path = PODS.path(namespace, pod, "log")
        async with aclosing(self._api.pieces(path, {"container": TRAINER_CONTAINER, **query})) as pieces:
            while True:
                async with asyncio.timeout(quiet_s):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                yield piece


@dataclass(slots=True)
class _FollowedLog:
    """The log of one Pod, and how far it was read."""

    pod: str
    prefix: bytes
    position: LogPosition = field(default_factory=LogPosition)
    opened_at: float | None = None
    """In seconds of Unix, when it was asked for the first time that it could be read; by the clock on the wall, which
    goes on while a laptop sleeps."""


def _deleted(found: LogSources, place: LogSource) -> str:
    """A kubelet that starts all containers of a Pod again removes the old ones first, with their logs."""
    return (
        f"the kubelet has deleted what {place.pod} printed before it started again in place; "
        f"closeknit explain {found.job.name} -o wide has its last words, and --follow misses none"
    )


def _prefix(place: LogSource) -> bytes:
    return f"[{place.ranks}] ".encode()
