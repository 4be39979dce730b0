"""The examples of every framework on two real nodes: from `kubectl apply` to what each process finds in itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from closeknit.cluster.booking.booking import BookingShare
from harness.node import trainers
from harness.node.trainers import Trainer
from node.examples import example, facts, planned, pod, scripts, seen, told
from node.jobs import Jobs

pytestmark = pytest.mark.nodes

BOUND_WITHIN_S = 2
HALF = {"gpus": 4, "topology": {"gpusPerNode": 2}}  # where eight processes would show nothing more

Facts = list[dict[str, Any]]


def each_gpu(shares: Sequence[BookingShare], name: str) -> Facts:
    """A process for each GPU."""
    world = sum(len(share.gpus) for share in shares)
    return [
        {"rank": rank, "world_size": world, "local_rank": local, "host": pod(name, index)}
        for index, share in enumerate(shares)
        for local, rank in enumerate(share.ranks)
    ]


def groups(shares: Sequence[BookingShare], name: str) -> Facts:
    """A process for each GPU, in one group of each kind: eight ranks, and every degree is two."""
    found = each_gpu(shares, name)
    for each in found:
        rank = each["rank"]
        with_next, with_other_data, with_other_stage = (sorted([rank, rank ^ bit]) for bit in (1, 2, 4))
        each["groups"] = {
            "tensor": with_next,
            "context": [rank],
            "data": with_other_data,
            "pipeline": with_other_stage,
            "expert": with_other_data,
            "tensor x context": with_next,
        }
        del each["local_rank"]
    return found


def streams(shares: Sequence[BookingShare], name: str) -> Facts:
    """A process for each GPU, which has its part of 4096 samples in batches of 64."""
    world = sum(len(share.gpus) for share in shares)
    return [
        {"rank": each["rank"], "batches": 4096 // world // 64, "host": each["host"]} for each in each_gpu(shares, name)
    ]


def one_process(shares: Sequence[BookingShare], name: str) -> Facts:
    """A process for all GPUs of the one node."""
    (share,) = shares
    return [{"rank": 0, "world_size": 1, "gpus": len(share.gpus), "host": pod(name, 0)}]


def chief(shares: Sequence[BookingShare], name: str) -> Facts:
    """The chief alone speaks: its servers and workers end with it, and their logs with them."""
    server = next(share.server for share in shares if share.server is not None)
    tasks = {"worker": 2, "chief": 1, "ps": 1}
    return [
        {"task": {"type": "chief", "index": 0}, "tasks": tasks, "steps": 20, "host": f"{name}-a1-ps-{server:05d}"}
        | {"variables_on": "/job:ps/replica:0/task:0/device:CPU:0"}
    ]


def custom(shares: Sequence[BookingShare], name: str) -> Facts:
    """A process for each GPU, which prints variables."""
    return [
        {"RANK": str(each["rank"]), "LOCAL_RANK": str(each["local_rank"]), "WORLD_SIZE": str(each["world_size"])}
        | {"host": each["host"]}
        for each in each_gpu(shares, name)
    ]


def jax(shares: Sequence[BookingShare], name: str) -> Facts:
    """A process for each node, with a device for each GPU."""
    world = sum(len(share.gpus) for share in shares)
    return [
        {"process": index, "processes": len(shares), "devices": world, "local_devices": len(share.gpus)}
        | {"host": pod(name, index)}
        for index, share in enumerate(shares)
    ]


def tensorflow(shares: Sequence[BookingShare], name: str) -> Facts:
    """A process for each node, which without GPUs is one replica."""
    return [
        {"task": {"type": "worker", "index": index}, "replicas": len(shares), "host": pod(name, index)}
        for index in range(len(shares))
    ]


@dataclass(frozen=True, slots=True)
class Case:
    """One example."""

    name: str
    trainer: Trainer
    expected: Callable[[Sequence[BookingShare], str], Facts]
    spec: dict[str, Any] = field(default_factory=dict)
    """What is asked for instead of what the example asks for."""
    nodes: int = 2
    ranked_by: tuple[str, str] | None = ("RANK", "LOCAL_RANK")
    """Variables that its launcher gives each rank, the global and the local one."""
    launcher_sets: frozenset[str] = frozenset()
    """Variables of ours that its launcher gives another value."""


CASES = (
    Case("pytorch-ddp", trainers.DEBIAN, each_gpu),
    Case("pytorch-processes", trainers.DEBIAN, each_gpu, HALF, ranked_by=None),
    Case("pytorch-dataparallel", trainers.DEBIAN, one_process, nodes=1, ranked_by=None),
    Case("pytorch-hybrid", trainers.DEBIAN, groups),
    Case("pytorch-streams", trainers.DEBIAN, streams, HALF),
    Case("jax", trainers.JAX, jax, ranked_by=None),
    Case("mpi", trainers.DEBIAN, each_gpu, ranked_by=("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")),
    Case("deepspeed", trainers.DEEPSPEED, each_gpu, HALF),
    Case("tensorflow-multiworker", trainers.TENSORFLOW, tensorflow, ranked_by=None),
    Case("tensorflow-mirrored", trainers.TENSORFLOW, tensorflow, nodes=1, ranked_by=None),
    Case("tensorflow-servers", trainers.TENSORFLOW, chief, ranked_by=None),
    Case("horovod", trainers.HOROVOD, each_gpu, HALF, ranked_by=("HOROVOD_RANK", "HOROVOD_LOCAL_RANK")),
    Case("custom", trainers.DEBIAN, custom, ranked_by=None),
)
# The first is measured, so that it has the machine to itself; the others run side by side as far as there are GPUs.
FIRST, *OTHERS = CASES


@pytest.fixture(scope="module", autouse=True)
def claims(jobs: Jobs) -> Iterator[None]:
    with jobs.stand.claims():
        jobs.begin("frameworks")
        jobs.cluster.apply(scripts(jobs.namespace))
        yield


@pytest.fixture(scope="module")
def tried() -> set[str]:
    """The jobs that a test has looked at."""
    return set()


@pytest.fixture(scope="module")
def side_by_side(request: pytest.FixtureRequest, jobs: Jobs, claims: None) -> None:  # noqa: ARG001 - it has GPUs
    """All that are asked for, as pytest's option -k leaves some out."""
    asked = {item.name for item in request.session.items}
    wanted = [case for case in OTHERS if any(f"[{case.name}]" in name for name in asked) and not case.trainer.lacks]
    jobs.cluster.apply(*(example(case.name, jobs.namespace, case.trainer, **case.spec) for case in wanted))


def forget(jobs: Jobs, name: str, tried: set[str]) -> bool:
    """Removes the job of a first try of the test, whatever became of it; whether there was one."""
    if name not in tried:
        tried.add(name)
        return False
    jobs.delete("trainingjob", name)
    pods = f"{name}-a"
    jobs.cluster.wait_for(
        lambda: not any(each.startswith(pods) for each in jobs.names("pods")), f"{name} to be gone", 90
    )
    for node in jobs.stand.nodes:
        for file in node.reports.glob(f"{pods}*"):
            file.unlink()
    return True


@pytest.mark.alone
def test_the_operators_share_of_a_start_is_small(
    jobs: Jobs, tried: set[str], record_property: Callable[[str, object], None]
) -> None:
    """From the API server's answer to `kubectl apply` to the last Pod's binding, less what the scheduler takes."""
    forget(jobs, FIRST.name, tried)
    jobs.cluster.apply(example(FIRST.name, jobs.namespace, FIRST.trainer))
    jobs.wait_for_end("Succeeded", FIRST.name)
    bound = [each for each in jobs.cluster.audit_events() if each.namespace == jobs.namespace]
    applied = max(each.at for each in bound if each.resource == "trainingjobs" and each.verb == "create")
    last = max(each.at for each in bound if each.resource == "pods" and each.subresource == "binding")
    took_s = (last - applied).total_seconds()
    record_property("measured", f"{took_s:.2f} s from kubectl apply to the last Pod bound")
    assert took_s <= BOUND_WITHIN_S
    compare(jobs, FIRST)


@pytest.mark.usefixtures("side_by_side")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in OTHERS])
def test_every_rank_is_where_the_plan_says(jobs: Jobs, tried: set[str], case: Case) -> None:
    if case.trainer.lacks:
        pytest.skip(case.trainer.lacks)
    if forget(jobs, case.name, tried):
        jobs.cluster.apply(example(case.name, jobs.namespace, case.trainer, **case.spec))
    jobs.wait_for_end("Succeeded", case.name)
    compare(jobs, case)


def test_an_elastic_rendezvous_gives_the_ranks_of_the_plan(jobs: Jobs, tried: set[str]) -> None:
    """Over c10d, whose store is one of the Pods, and which sorts them by name. The ranks do without PyTorch."""
    forget(jobs, "elastic", tried)
    told = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR"'
    spec: dict[str, Any] = {**HALF, "elastic": {"minGPUs": 4}}
    jobs.train(["torchrun", "--no_python", "sh", "-c", told], name="elastic", **spec)
    jobs.wait_for_end("Succeeded", "elastic")
    for index, share in enumerate(planned(jobs, "elastic")):
        said = sorted(line.split() for line in jobs.log(pod("elastic", index)).splitlines() if line[:1].isdigit())
        print(*said, sep="\n")
        assert [each[:4] for each in said] == [
            [str(rank), str(local), "4", str(index)] for local, rank in enumerate(share.ranks)
        ]
        assert all(each[4].startswith(pod("elastic", 0)) for each in said)


def compare(jobs: Jobs, case: Case) -> None:
    """What was planned with what the processes found."""
    shares = planned(jobs, case.name)
    assert len({share.node for share in shares}) == case.nodes
    found = facts(jobs, case.name)
    print(*found, sep="\n")
    expected = case.expected(shares, case.name)
    assert sorted(map(ordered, of(expected[0], found))) == sorted(map(ordered, expected))
    settings = told(jobs, case.name)
    for index, (host, processes) in enumerate(seen(jobs, case.name).items()):
        share = shares[index]
        ranks = []
        for process in processes:
            environment = process["environment"]
            print(host, process["devices"], *(f"{name}={environment.get(name)}" for name in settings[host]))
            assert process["devices"] == [f"/dev/nvidia{gpu}" for gpu in sorted(share.gpus)]
            wanted = {name: text for name, text in settings[host].items() if name not in case.launcher_sets}
            assert {name: environment.get(name) for name in wanted} == wanted
            if case.ranked_by is not None and set(case.ranked_by) <= environment.keys():
                ranks.append(tuple(int(environment[name]) for name in case.ranked_by))
        assert processes
        if case.ranked_by is not None:
            assert sorted(ranks) == [(rank, local) for local, rank in enumerate(share.ranks)]
    verified = jobs.condition("PlacementVerified", case.name)
    assert (verified["status"], verified["message"]) == ("True", "every Pod has the planned GPUs")


def of(names: dict[str, Any], found: Facts) -> Facts:
    """These facts of each process."""
    return [{name: each.get(name) for name in names} for each in found]


def ordered(each: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in each.items())
