"""A Pod of a job as `kubectl get pods` would tell of it, and which rank it is."""

from collections.abc import Mapping
from typing import Self

import msgspec

from closeknit.api.names import GPUS_ANNOTATION, TRAINER_CONTAINER, ChildName, child_named

SUCCEEDED, RUNNING, PENDING = "Completed", "Running", "Pending"


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Ended(_Wire, frozen=True):
    exit_code: int = 0
    reason: str | None = None


class _Waiting(_Wire, frozen=True):
    reason: str | None = None
    message: str | None = None


class _State(_Wire, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Ended | None = None


class _Container(_Wire, frozen=True):
    name: str = ""
    restart_count: int = 0
    state: _State | None = None


class _Condition(_Wire, frozen=True):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class _Status(_Wire, frozen=True):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    conditions: tuple[_Condition, ...] | None = None
    init_container_statuses: tuple[_Container, ...] | None = None
    container_statuses: tuple[_Container, ...] | None = None


class _Metadata(_Wire, frozen=True):
    name: str
    annotations: Mapping[str, str] | None = None
    deletion_timestamp: str | None = None


class _Spec(_Wire, frozen=True):
    node_name: str | None = None


class _WirePod(_Wire, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decode = msgspec.json.Decoder(_WirePod).decode


class ToldPod(msgspec.Struct, frozen=True):
    """What a person wants to know of a Pod."""

    name: str
    node: str
    """Empty before it is bound."""
    status: str
    """One word, as kubectl's column STATUS has it."""
    message: str = ""
    """Why it does not run, in the words of scheduler or kubelet."""
    restarts: int = 0
    """Of its trainer."""
    uuids: tuple[str, ...] = ()
    """Of the GPUs that it was made for, in local-rank order; empty where it does not say."""

    @property
    def child(self) -> ChildName | None:
        """Which part of its job it is."""
        return child_named(self.name)

    @property
    def is_well(self) -> bool:
        """Whether it runs, or has ended with success."""
        return self.status in (RUNNING, SUCCEEDED)

    @classmethod
    def of_json(cls, document: bytes) -> Self:
        """Raises msgspec.DecodeError."""
        pod = _decode(document)
        status, message = _told(pod)
        trainer = next((each for each in pod.status.container_statuses or () if each.name == TRAINER_CONTAINER), None)
        uuids = (pod.metadata.annotations or {}).get(GPUS_ANNOTATION, "")
        return cls(
            name=pod.metadata.name,
            node=pod.spec.node_name or "",
            status=status,
            message=" ".join(message.split()),
            restarts=trainer.restart_count if trainer is not None else 0,
            uuids=tuple(uuids.split(",")) if uuids else (),
        )


def _told(pod: _WirePod) -> tuple[str, str]:
    status = pod.status
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating", status.message or ""
    if status.reason:
        return status.reason, status.message or ""
    states = [
        (each.state, "Init:" if is_init else "")
        for is_init, containers in ((True, status.init_container_statuses), (False, status.container_statuses))
        for each in containers or ()
        if each.state is not None
    ]
    for state, prefix in states:
        ended, waiting = state.terminated, state.waiting
        if ended is not None and ended.exit_code:
            return f"{prefix}{ended.reason or f'ExitCode:{ended.exit_code}'}", f"exit code {ended.exit_code}"
        if waiting is not None and waiting.reason not in (None, "PodInitializing"):
            return f"{prefix}{waiting.reason}", waiting.message or ""
    if status.phase == PENDING:
        unbound = next(
            (each for each in status.conditions or () if (each.type, each.status) == ("PodScheduled", "False")), None
        )
        return PENDING, (unbound.message or "") if unbound is not None else ""
    return {"Succeeded": SUCCEEDED, "Failed": "Error"}.get(status.phase, status.phase or PENDING), status.message or ""
