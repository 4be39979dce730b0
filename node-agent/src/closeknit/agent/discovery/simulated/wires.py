"""The NVLinks of a profile, end by end, and which of them its faults take down."""

from collections.abc import Sequence
from dataclasses import dataclass

from closeknit.agent.discovery.simulated.places import Places
from closeknit.agent.discovery.simulated.profile import Faults, NvlinkModel, Profile, ProfileError


@dataclass(frozen=True, slots=True)
class SimulatedLinkEnd:
    """One end of a link: its number on its GPU, and the GPU and link, the switch or the CPU at the other end."""

    gpu: int
    link: int
    peer: int | None = None
    peer_link: int | None = None
    switch: int | None = None

    @property
    def leads_to_cpu(self) -> bool:
        """Whether it ends in a POWER9 CPU."""
        return self.peer is None and self.switch is None


def wires(model: NvlinkModel | None, places: Places) -> list[list[SimulatedLinkEnd]]:
    """Per GPU, the ends of its links, numbered in the order of their peers, those to its CPU last."""
    found: list[list[SimulatedLinkEnd]] = [[] for _ in places.gpus]
    if model is None:
        return found
    gpus = [gpu for gpu in range(len(places.gpus)) if gpu not in places.displays]
    if model.switches:
        for gpu in gpus:
            found[gpu] = [
                SimulatedLinkEnd(gpu, link, switch=link % model.switches) for link in range(model.links_per_gpu)
            ]
        return found
    for a, b in sorted(tuple(int(end) for end in pair.split("-")) for pair in model.pairs):
        for _ in range(model.pairs[f"{a}-{b}"]):
            here, there = len(found[a]), len(found[b])
            found[a].append(SimulatedLinkEnd(a, here, peer=b, peer_link=there))
            found[b].append(SimulatedLinkEnd(b, there, peer=a, peer_link=here))
    for gpu in gpus:
        found[gpu] += [SimulatedLinkEnd(gpu, len(found[gpu]) + number) for number in range(model.cpu_links)]
    return found


def down(found: Sequence[Sequence[SimulatedLinkEnd]], faults: Faults) -> set[tuple[int, int]]:
    """(GPU, link) of every end whose link is broken, or whose other end is gone. Raises ProfileError."""
    broken: set[tuple[int, int]] = set()
    for fault in faults.links_down:
        if not 0 <= fault.gpu < len(found) or not 0 <= fault.link < len(found[fault.gpu]):
            raise ProfileError(f"fault linksDown names link {fault.link} of GPU {fault.gpu}; there is no such link")
        wire = found[fault.gpu][fault.link]
        broken.add((wire.gpu, wire.link))
        if wire.peer is not None and wire.peer_link is not None:
            broken.add((wire.peer, wire.peer_link))
    gone, dead = set(faults.lost_switches), set(faults.dead_gpus)
    return broken | {
        (wire.gpu, wire.link) for ends in found for wire in ends if wire.switch in gone or wire.peer in dead
    }


def check(profile: Profile, places: Places, faults: Faults) -> None:
    """Raises ProfileError for a fault of something that the machine does not have; links are checked by `down`."""
    count = len(places.gpus)
    for name, indexes in (("deadGPUs", faults.dead_gpus), ("migGPUs", faults.mig_gpus)):
        for index in indexes:
            if not 0 <= index < count:
                raise ProfileError(f"fault {name} names GPU {index}; the machine has GPUs 0 to {count - 1}")
    if faults.mig_gpus and not profile.gpu.mig:
        raise ProfileError(f"fault migGPUs names GPU {faults.mig_gpus[0]}; a {profile.gpu.name} has no MIG")
    switches = profile.nvlink.switches if profile.nvlink else 0
    for number in faults.lost_switches:
        if not 0 <= number < switches:
            raise ProfileError(f"fault lostSwitches names switch {number}; the machine has {switches}")
    for name in faults.nics_down:
        if name not in places.nics:
            raise ProfileError(f"fault nicsDown names {name}; the machine has {', '.join(places.nics) or 'no NIC'}")
