"""Lists of jobs of public clusters, each on as much of Lingjun's fabric as it loads to so many hundredths."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench.clos import GPUS, Host, hosts

JOBS = Path(__file__).parent / "data" / "queue_jobs.csv"
LOAD = 0.95
# As data/philly_run_times.csv has it: a list of weeks would else be one of a few jobs that run for months.
LONGEST_S = 2 * 86_400.0
# How many switches of how many pods: so few that the list lasts for days, and jobs of it can be near or far.
SWITCHES = {"philly": (1, 1), "philly-ee9e8c": (2, 2), "openb": (1,)}
NOISE = 0.2  # what a declaration is off by at most, of the run time

# QSSF's guesses for Philly, of which nothing is known that would let them learn, by its authors' artifact
# (S-Lab-System-Group/HeliosArtifact at 6345d9f, framework/QSSF Service/estimators/philly_estimate.py): with so much
# chance the error is between so much and so much of the run time, up or down.
GUESSES = ((0.1, 0.0, 0.1), (0.5, 0.1, 0.5), (0.7, 0.5, 1.0), (0.9, 1.0, 10.0), (1.0, 10.0, 100.0))

# How much longer a gang runs that is not on one host, under one switch, in one pod: fixed in advance, and still to be
# measured on real runs (the ratios of AllReduce's bus bandwidth would be larger).
STRETCH = (1.0, 1.05, 1.15, 1.3)


@dataclass(slots=True, eq=False)
class QueueJob:
    """A job of a list; `run_s` is stretched once it is known where it runs."""

    number: int
    at_s: float
    gpus: int
    alone_s: float
    """How long it runs on one host, or as near as if it did."""
    declared_s: float
    guessed_s: float
    run_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.run_s = self.alone_s

    @property
    def hosts(self) -> int:
        """Whole ones, at least."""
        return -(-self.gpus // GPUS)


def fabric(name: str) -> list[Host]:
    """The hosts of a list, switch by switch."""
    found: list[Host] = []
    every = hosts()
    for pod, count in zip(dict.fromkeys(host.pod for host in every), SWITCHES[name], strict=False):
        tors = list(dict.fromkeys(host.tor for host in every if host.pod == pod))[:count]
        found += [host for host in every if host.tor in tors]
    return found


def jobs(name: str, seed: int = 0, part: int = 1, first: int = 0) -> list[QueueJob]:
    """The jobs of a list as they come, every so manieth of them from `first` on. Those of more than a host take whole
    ones. Their times between arrivals are scaled to LOAD, all by one factor."""
    random = Random(seed)  # noqa: S311 - the same jobs for every rule
    with JOBS.open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["list"] == name][first::part]
    room = len(fabric(name)) * GPUS
    begins_s = float(rows[0]["submit_s"])
    found = []
    for number, row in enumerate(rows):
        gpus, run_s = int(row["gpus"]), min(float(row["duration_s"]), LONGEST_S)
        whole = gpus if gpus <= GPUS else -(-gpus // GPUS) * GPUS
        declared_s = _as_people_say(run_s * random.uniform(1 - NOISE, 1 + NOISE))
        job = QueueJob(number, float(row["submit_s"]) - begins_s, whole, run_s, declared_s, run_s * (1 + guess(random)))
        found.append(job)
    wanted = sum(job.gpus * job.alone_s for job in found)
    scale = wanted / (LOAD * room) / found[-1].at_s
    for job in found:
        job.at_s *= scale
    return found


def _as_people_say(length_s: float) -> float:
    """In whole minutes, of two digits that count."""
    minutes = max(1, round(length_s / 60))
    step: int = 10 ** max(0, len(str(minutes)) - 2)
    return 60.0 * round(minutes / step) * step


def guess(random: Random) -> float:
    """The error of one of QSSF's guesses, in run times; one below -1 makes the guess negative, as theirs."""
    level = random.random()
    least, most = next((least, most) for chance, least, most in GUESSES if level <= chance)
    return random.uniform(least, most) * random.choice((-1, 1))


def stretched_s(job: QueueJob, places: Sequence[Host], on_hosts: int) -> float:
    """How long a job runs on so many hosts, which are there."""
    if on_hosts <= 1:
        return job.alone_s * STRETCH[0]
    tors, pods = {place.tor for place in places}, {place.pod for place in places}
    return job.alone_s * STRETCH[1 if len(tors) == 1 else 2 if len(pods) == 1 else 3]
