"""What the GPUs are, which is read rarely, and how they are, which is read every few seconds, as one reading. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from closeknit.agent.discovery.readings.readings import CHANGES, GpuReading, LinkReading, PairReading
from closeknit.agent.nvml.nvml_messages import ABSENT, LOST, NOTHING_SAID, Pulse, Survey

OLDEST_S = 300.0  # what nothing else says to have changed, MIG devices say
RETRY_S = 30.0  # where something failed that may work the next time


@dataclass(frozen=True, slots=True)
class Identity:
    """What the GPUs are, as it was read at a moment of the monotonic clock."""

    survey: Survey
    gpus: tuple[GpuReading, ...]
    pairs: tuple[PairReading, ...]
    read_at: float


def is_due(last: Identity, survey: Survey, pulses: Mapping[int, Pulse], age_s: float) -> bool:
    """Whether the GPUs are to be read again: they are old, others than they were, or were read in part only."""
    if survey != last.survey or age_s >= OLDEST_S:
        return True
    if any(pulses[gpu.index].uuid not in (None, gpu.uuid) for gpu in last.gpus):
        return True
    answers_again = any("handle" in gpu.errors and "handle" not in pulses[gpu.index].errors for gpu in last.gpus)
    return age_s >= RETRY_S and (answers_again or any(map(has_failed, last.gpus)))


def with_counts(last: Pulse, pulse: Pulse) -> Pulse:
    """The pulse with the errors of links, which were not counted this time, as they were counted last."""
    name = "link_errors"
    errors = {name: last.health.errors[name]} if name in last.health.errors else {}
    kept = replace(pulse.health, link_errors=last.health.link_errors, errors=pulse.health.errors | errors)
    return replace(pulse, health=kept)


def beating(gpu: GpuReading, pulse: Pulse) -> GpuReading:
    """The GPU with the states of this moment. What failed keeps the value that it was read with.

    A uuid that is another one now, though the GPU was read again where it was not that of before, is none.
    """
    if is_silent(pulse):
        return replace(gpu, errors=gpu.errors | {"handle": pulse.errors.get("handle", LOST)})
    if gpu.uuid is not None and pulse.uuid not in (None, gpu.uuid):
        gpu = replace(gpu, uuid=None, errors=gpu.errors | {"uuid": CHANGES})
    states = dict(zip((link.link for link in gpu.links if link.p2p), pulse.links, strict=True))
    return replace(
        gpu,
        links=tuple(_beating(link, states.get(link.link)) for link in gpu.links),
        fabric=pulse.fabric if "fabric" not in pulse.errors else gpu.fabric,
        health=pulse.health,
    )


def is_silent(pulse: Pulse) -> bool:
    """Whether the GPU did not answer, or stopped to while it was asked."""
    return "handle" in pulse.errors or LOST in (*pulse.errors.values(), *pulse.health.errors.values())


def _beating(link: LinkReading, state: int | None) -> LinkReading:
    return link if state is None or state == link.state else replace(link, state=state)


def has_failed(read: GpuReading | PairReading | Survey) -> bool:
    """Whether NVML refused anything without saying that this GPU or driver lacks it."""
    links = read.links if isinstance(read, GpuReading) else ()
    errors = (*read.errors.values(), *(error for link in links for error in link.errors.values()))
    return "handle" in read.errors or any(error not in (*ABSENT, *NOTHING_SAID) for error in errors)
