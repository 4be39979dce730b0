"""Rules of other schedulers for hosts under switches, each as its project tells it: docs/peers.md says where, and
tests/unit/simulation/test_published_peers.py holds them to it."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from bench.clos import GPUS, Host, Job, Taken

SEGMENTS = ((16, 8), (4, 4))  # jobs of so many hosts at least are cut into segments of so many


class Peer:
    """Who takes hosts by one rule; knows how many GPUs of each are free."""

    def __init__(self, fabric: Sequence[Host], rule: "Rule") -> None:
        self.free = [GPUS] * len(fabric)
        self._rule = rule
        self.tors = _grouped([host.tor for host in fabric])
        self.pods = _grouped([host.pod for host in fabric])
        self.pod_of = {host.tor: host.pod for host in fabric}
        self._refused: set[int] = set()

    def take(self, job: Job, _now: float, _smaller: int) -> Taken | None:
        """By the rule; what did not fit does not until something is given back."""
        if job.gpus in self._refused:
            return None
        taken = self._rule(self, job)
        if taken is None:
            self._refused.add(job.gpus)
        for host, gpus in taken or ():
            self.free[host] -= gpus
        return taken

    def give_back(self, _job: Job, taken: Taken) -> None:
        """What a job had."""
        self._refused.clear()
        for host, gpus in taken:
            self.free[host] += gpus

    def patient_until(self, _job: Job) -> None:
        """No peer asks for less after a while."""

    def whole(self, members: Sequence[int]) -> list[int]:
        """Those of these hosts that are free."""
        return [host for host in members if self.free[host] == GPUS]

    def part(self, job: Job, order: Callable[[int], tuple[float, float]]) -> Taken | None:
        """One host for a job that is smaller than it, the first in this order."""
        able = [host for host, free in enumerate(self.free) if free >= job.gpus]
        return [(min(able, key=order), job.gpus)] if able else None

    def fullest(self, host: int) -> tuple[int, int]:
        """An order of hosts: best fit."""
        return self.free[host], host


Rule = Callable[[Peer, Job], Taken | None]


def _grouped(names: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        found.setdefault(name, []).append(number)
    return found


def _whole(hosts: Sequence[int]) -> Taken:
    return [(host, GPUS) for host in hosts]


def without_topology(order: str) -> Rule:
    """first-fit by number, random, spread to the emptiest host (kube-scheduler's default), or binpack into the fullest.
    Of hosts that score alike for spread and binpack, as those that are wholly free, kube-scheduler takes any."""

    def rule(peer: Peer, job: Job) -> Taken | None:
        random = Random(job.number)  # noqa: S311 - the same every time
        if job.gpus < GPUS:
            by: dict[str, Callable[[int], tuple[float, float]]] = {
                "first-fit": lambda host: (0, host),
                "random": lambda host: (random.random(), host),
                "spread": lambda host: (-peer.free[host], random.random()),
                "binpack": lambda host: (peer.free[host], random.random()),
            }
            return peer.part(job, by[order])
        whole = peer.whole(range(len(peer.free)))
        if len(whole) < job.hosts:
            return None
        return _whole(whole[: job.hosts] if order == "first-fit" else random.sample(whole, job.hosts))

    return rule


def _best_fit(room: Mapping[str, int], need: int) -> list[str]:
    """Those with the most room first, the last the one with the least that has enough, of equals the first by name;
    none where all are too little."""
    left = sorted((name for name in room if room[name]), key=lambda name: (-room[name], name))
    found: list[str] = []
    while need > 0 and left:
        able = [name for name in left if room[name] >= need]
        name = min(able, key=lambda name: (room[name], name)) if able else left[0]
        left.remove(name)
        found.append(name)
        need -= room[name]
    return found if need <= 0 else []


def kueue(*, required: bool) -> Rule:
    """Kueue's BestFit: the domain with the least room that has enough, at the level asked for, else at one further out;
    where several are needed the fullest first, and the last by best fit; of equals the first by name. Switches are
    chosen among those of all pods that were, and hosts by name among those of the switches. `required` asks for a
    switch where one could hold the gang, else for a pod, and waits; `preferred` asks for a switch and takes what there
    is; what is less than a host asks for one."""

    def rule(peer: Peer, job: Job) -> Taken | None:
        if job.gpus < GPUS:
            return peer.part(job, peer.fullest)
        free = {tor: peer.whole(members) for tor, members in peer.tors.items()}
        chosen = _best_fit({tor: len(hosts) for tor, hosts in free.items()}, job.hosts)
        if len(chosen) != 1:
            if required and job.hosts <= max(map(len, peer.tors.values())):
                return None
            room = {pod: sum(len(free[tor]) for tor in free if peer.pod_of[tor] == pod) for pod in peer.pods}
            pods = _best_fit(room, job.hosts)
            if not pods or (len(pods) > 1 and required and job.hosts <= max(map(len, peer.pods.values()))):
                return None
            chosen = _best_fit({tor: len(free[tor]) for tor in free if peer.pod_of[tor] in pods}, job.hosts)
        return _whole(sorted(host for tor in chosen for host in free[tor])[: job.hosts])

    return rule


def slurm_block(peer: Peer, job: Job) -> Taken | None:
    """Slurm's topology/block with a switch as base block: each segment in turn goes whole into the block with the least
    room that has enough for it, of equals the last, and nothing holds the segments of a job together. Segments as
    NVIDIA chose them for its own cluster, cut to blocks of eight hosts; a job of less has none, and Slurm keeps what
    fits into a base block in one."""
    if job.gpus < GPUS:
        return peer.part(job, peer.fullest)
    segment = next((size for least, size in SEGMENTS if job.hosts >= least), job.hosts)
    free = {tor: peer.whole(members) for tor, members in peer.tors.items()}
    found: list[int] = []
    for _ in range(job.hosts // segment):
        able = [tor for tor, hosts in free.items() if len(hosts) >= segment]
        if not able:
            return None
        tor = min(reversed(able), key=lambda tor: len(free[tor]))
        found += free[tor][:segment]
        free[tor] = free[tor][segment:]
    return _whole(found)


PEERS: dict[str, Rule] = {
    "first-fit": without_topology("first-fit"),
    "random": without_topology("random"),
    "spread": without_topology("spread"),
    "binpack": without_topology("binpack"),
    "kueue preferred": kueue(required=False),
    "kueue required": kueue(required=True),
    "slurm block": slurm_block,
}
