"""A program that a kubeconfig names to say who asks: an exec credential plugin, run as client-go runs it.

What the kubernetes library has for it keeps whatever is printed, waits for ever where more is printed to stderr than a
pipe holds, and asks as nobody where the program fails.

Invariant: what a program prints to stdout is in no message. It is a credential, or may be one.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from types import FrameType
from typing import IO, Any, Self

import msgspec

from closeknit.api.text.printable import printable
from closeknit.kube.errors import LoginError

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")  # as kubectl since 1.24
MODES = ("Never", "IfAvailable", "Always")
WAITS_S = 5.0  # `aws eks get-token` takes 1 to 3 s: after that somebody wonders
# A person who types a code into a browser has 15 minutes with most providers (RFC 8628 leaves it to them). Where nobody
# sits at a terminal a program that has not ended in a minute does not end.
LONGEST_WITH_TERMINAL_S = 15 * 60.0
LONGEST_S = 60.0
MOST_BYTES = 1 << 20  # Go's server takes headers of 1 MiB; a certificate and its key have a few KiB
LAST_BYTES = 2048  # of stderr, of which the last line is told
MOST_HINT = 300  # characters of what the kubeconfig says about installing it
EVERY_S = 0.01  # looks whether it has ended

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a program has said: a token, or a certificate with its key, or both."""

    token: str
    certificate: str
    """PEM; empty without one."""
    key: str
    ends_at: datetime | None
    """None where it does not say."""

    def is_over(self, now: datetime) -> bool:
        """Whether the program has to be asked again."""
        return self.ends_at is not None and self.ends_at <= now


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _Status | None = None


class _Variable(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    value: str


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    """What a kubeconfig says of it."""

    api_version: str
    command: str
    args: tuple[str, ...] | None = None
    env: tuple[_Variable, ...] | None = None
    install_hint: str | None = None
    interactive_mode: str | None = None
    provide_cluster_info: bool = False


class LoginProgram:
    """One program of one user of a kubeconfig."""

    def __init__(self, said: _Exec, user: str, cluster: Mapping[str, Any]) -> None:
        self._said = said
        self._cluster = cluster
        self._name = f"the login program {said.command} of user {user}"

    @classmethod
    def of(cls, said: object, user: str, cluster: Mapping[str, Any]) -> Self:
        """Of the user's `exec`. Raises LoginError for what kubectl would not run, either."""
        try:
            found = msgspec.convert(said, _Exec)
        except msgspec.ValidationError as error:
            raise LoginError(f"exec of user {user} cannot be used: {error}") from None
        if found.api_version not in VERSIONS:
            words = f"its apiVersion is {found.api_version!r}, and should be {' or '.join(VERSIONS)}"
            raise LoginError(f"exec of user {user} cannot be used: {words}")
        if found.interactive_mode not in (None, *MODES):
            words = f"its interactiveMode is {found.interactive_mode!r}, and should be {', '.join(MODES)}"
            raise LoginError(f"exec of user {user} cannot be used: {words}")
        if not found.command:
            raise LoginError(f"exec of user {user} cannot be used: its command is empty")
        return cls(found, user, cluster)

    async def credential(self) -> Credential:
        """What it says now. Runs it for a bounded time; a word is logged where that is long. Raises LoginError."""
        has_terminal = _is_terminal(sys.stdin)
        if self._said.interactive_mode == "Always" and not has_terminal:
            words = "asks its user (interactiveMode: Always), and standard input is no terminal: log in at one"
            raise LoginError(f"{self._name} {words}")
        is_interactive = has_terminal and self._said.interactive_mode != "Never"
        longest_s = LONGEST_WITH_TERMINAL_S if has_terminal or _is_terminal(sys.stderr) else LONGEST_S
        return self._read(await self._printed(longest_s, is_interactive=is_interactive))

    async def _printed(self, longest_s: float, *, is_interactive: bool) -> bytes:
        """All that it prints to stdout. It has ended then, whatever happens."""
        loop = asyncio.get_running_loop()
        begun_at, is_told = loop.time(), False
        last = bytearray()
        with _ends_with_us() as has_begun, self._started(is_interactive=is_interactive) as process:
            try:
                has_begun(process.pid)
                printed = bytearray()
                while (code := process.poll()) is None:
                    passed_s = loop.time() - begun_at
                    if passed_s >= WAITS_S and not is_told:
                        is_told = True
                        _log.warning(
                            self._with_last(f"closeknit waits for {self._name}, for {WAITS_S:g} s so far", last)
                        )
                    if passed_s >= longest_s:
                        words = f"{self._name} has not ended within {longest_s:g} s, and was ended"
                        raise LoginError(self._with_last(words, last))
                    self._take(process, printed, last)
                    await asyncio.sleep(EVERY_S)
                self._take(process, printed, last)  # what it has started may hold the pipes open, and is not waited for
            finally:
                if process.returncode is None:
                    _kill(process.pid)
        if code:
            ended = f"has ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
            raise LoginError(self._with_last(f"{self._name} {ended}", last))
        return bytes(printed)

    def _take(self, process: "Popen[bytes]", printed: bytearray, last: bytearray) -> None:
        """What is in its pipes now."""
        _drain(process.stdout, printed, MOST_BYTES + 1)
        if len(printed) > MOST_BYTES:
            raise LoginError(f"{self._name} has printed more than {MOST_BYTES >> 20} MiB, which is no credential")
        _drain(process.stderr, last, MOST_BYTES)
        del last[:-LAST_BYTES]

    def _started(self, *, is_interactive: bool) -> "Popen[bytes]":
        said = self._said
        asked: dict[str, Any] = {"interactive": is_interactive}
        if said.provide_cluster_info:
            asked["cluster"] = _told_of(self._cluster)
        info = json.dumps({"apiVersion": said.api_version, "kind": "ExecCredential", "spec": asked})
        environment = {**os.environ, **{each.name: each.value for each in said.env or ()}, "KUBERNETES_EXEC_INFO": info}
        # At a terminal its words are for the person there: an address, a code, what it asks.
        stderr = None if _is_terminal(sys.stderr) else PIPE
        try:
            process = Popen(  # noqa: S603 -- the kubeconfig's own, as for kubectl
                [said.command, *(said.args or ())],
                env=environment,
                stdin=None if is_interactive else DEVNULL,
                stdout=PIPE,
                stderr=stderr,
            )
        except (OSError, ValueError) as error:  # a ValueError for a NUL in its words
            is_there = not isinstance(error, FileNotFoundError)
            why = f"cannot be run: {getattr(error, 'strerror', None) or error}" if is_there else "is not there"
            hint = " ".join((said.install_hint or "").split())[:MOST_HINT]
            raise LoginError(printable(f"{self._name} {why}{f'. {hint}' if hint else ''}")) from None
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        return process

    def _read(self, printed: bytes) -> Credential:
        try:
            found = msgspec.json.decode(printed, type=_ExecCredential)
        except (msgspec.DecodeError, RecursionError) as error:
            words = str(error) if printed.strip() else "it has printed nothing"
            raise LoginError(printable(f"{self._name} has printed no ExecCredential: {words}")) from None
        status, ours = found.status, self._said.api_version
        if (found.kind, found.api_version) != ("ExecCredential", ours):
            words = f"has printed {found.kind} of {found.api_version}, and the kubeconfig asks for {ours}"
            raise LoginError(printable(f"{self._name} {words}"))
        token = (status.token if status is not None else None) or ""
        certificate = (status.client_certificate_data if status is not None else None) or ""
        key = (status.client_key_data if status is not None else None) or ""
        if status is None or not (token or certificate or key):
            raise LoginError(f"{self._name} has printed neither a token nor a certificate")
        if bool(certificate) != bool(key):
            words = "a certificate without its key" if certificate else "a key without its certificate"
            raise LoginError(f"{self._name} has printed {words}")
        ends_at = status.expiration_timestamp
        if ends_at is not None and ends_at.tzinfo is None:
            ends_at = ends_at.replace(tzinfo=UTC)
        return Credential(token, certificate, key, ends_at)

    def _with_last(self, words: str, last: bytearray) -> str:
        """With the last line that it has printed to stderr."""
        lines = [line.strip() for line in last.decode(errors="replace").splitlines() if line.strip()]
        return printable(f"{words}{f': {lines[-1]}' if lines else ''}")


def _drain(pipe: IO[bytes] | None, found: bytearray, most: int) -> None:
    """Takes what is there, about so much of it."""
    if pipe is None:
        return
    with suppress(BlockingIOError):
        while len(found) < most and (piece := os.read(pipe.fileno(), 1 << 16)):
            found += piece


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:  # it is closed
        return False


def _told_of(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster as client-go tells a program of it."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    told = {name: cluster[name] for name in (*names, "disable-compression") if cluster.get(name)}
    file = cluster.get("certificate-authority")
    if file and "certificate-authority-data" not in told:
        told["certificate-authority-data"] = b64encode(Path(str(file)).read_bytes()).decode()
    for each in cluster.get("extensions") or ():
        if each.get("name") == f"{GROUP}/exec":
            told["config"] = each.get("extension")
    return told


@contextmanager
def _ends_with_us() -> Iterator[Callable[[int], None]]:
    """Meanwhile a signal that ends this process ends the program, too; what it yields is to be told the program's
    number. A terminal sends Ctrl-C to both, but not every program ends by it, and `kill` and `timeout` tell this
    process alone."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda _: None
        return
    before: dict[int, Any] = {}
    program: int | None = None
    early: tuple[int, FrameType | None] | None = None  # a signal while the program is being started

    def end_both(number: int, frame: FrameType | None) -> None:
        nonlocal early
        if program is None:
            early = number, frame
            return
        _kill(program)
        signal.signal(number, before[number])
        if callable(before[number]):
            before[number](number, frame)
        else:
            os.kill(os.getpid(), number)

    def has_begun(pid: int) -> None:
        nonlocal program
        program = pid
        if early is not None:
            end_both(*early)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        found = signal.getsignal(each)
        if found not in (None, signal.SIG_IGN):
            before[each] = found
            signal.signal(each, end_both)
    try:
        yield has_begun
    finally:
        for number, found in before.items():
            if signal.getsignal(number) is end_both:
                signal.signal(number, found)
        if program is None and early is not None:  # it could not be started
            os.kill(os.getpid(), early[0])


def _kill(pid: int) -> None:
    """Ends it, and as far as /proc tells all that it has started: a wrapper's own program."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    family = [pid]
    for each in family:
        family += [child for child, parent in parents.items() if parent == each]
    for each in family:
        with suppress(OSError):
            os.kill(each, signal.SIGKILL)
