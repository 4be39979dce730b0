"""What the course over real GPUs makes of what it is told; the course itself needs GPUs (tests/hardware)."""

from typing import Any

import pytest

from hardware.course import misfits, sizes
from hardware.table import table
from hardware.trainings import processes, unheard
from hardware.ways import Run

LOG = """\
GPU 0: NVIDIA H200 (UUID: GPU-b)
GPU 1: NVIDIA H200 (UUID: GPU-a)
vm:7:7 [0] NCCL INFO NET/Socket : Using [0]eth0:10.244.1.2<0>
{"ranks": [{"rank": 0, "uuid": "GPU-a", "uid": 1000}, {"rank": 1, "uuid": "GPU-b", "uid": 1000}]}
{"collective": "all-reduce", "bus_gb_s": 330.5}
{"collective": "reduvm:7:7 [0] NCCL INFO torn
{"collective": "reduce", "lacking": "not there"}
{"collective": "barrier", "microseconds": 21.5}
"""


def run_of(log: str = LOG, way: str = "TrainingJob", planned: tuple[str, ...] = ("GPU-a", "GPU-b")) -> Run:
    run = Run(way, list(planned))
    run.read(log)
    return run


def test_a_log_is_read() -> None:
    run = run_of()
    assert run.listed == ["GPU-a", "GPU-b"]
    assert run.bandwidths == {"all-reduce": 330.5, "barrier": 21.5}
    assert run.nccl[0] == "NET/Socket : Using [0]eth0:10.244.1.2<0>"
    assert misfits(run, pretended=False) == []


def test_ranks_are_heard_though_they_and_nccl_speak_in_one_line() -> None:
    """As on two H100, where nothing of the example for hybrid parallelism was heard and nobody missed it."""
    first, second = '{"rank": 0, "groups": {"tensor": [0, 1]}}', '{"rank": 1, "groups": {}}'
    for log in (
        f"{first}\n{second}\n",
        f"{first}{second}\n\n",
        f"vm:7:7 [0] NCCL INFO comm {first}\nvm:8:8 [1] NCCL INFO x{{y {second} Init COMPLETE\n",
    ):
        lines = run_of(log).lines
        assert [line["rank"] for line in lines] == [0, 1]
        assert unheard(lines, 2) == ""
    torn = run_of(f'{{"rank": 0, "grovm:8:8 [1] NCCL INFO torn\n{second}\n').lines
    assert unheard(torn, 2) == "heard of ranks [1], and there are 2"
    assert unheard([], 2) == "heard of ranks [], and there are 2"
    assert unheard([{"world_size": 1, "gpus": 2}, {"loss": 0.1}], processes("pytorch-dataparallel", 2)) == ""


@pytest.mark.parametrize(
    ("log", "planned", "words"),
    [
        (LOG, ("GPU-a", "GPU-c"), "nvidia-smi listed"),
        (LOG, ("GPU-b", "GPU-a"), "the ranks' GPUs were"),
        (LOG.replace("1000}]", "0}]"), ("GPU-a", "GPU-b"), "another user"),
        (LOG.replace('{"ranks"', '{"torn'), ("GPU-a", "GPU-b"), "0 ranks"),
        (LOG.replace("GPU 1", "GPU 1: other (UUID: GPU-c)\nGPU 2"), ("GPU-a", "GPU-b"), "nvidia-smi listed"),
    ],
)
def test_a_run_that_got_something_else_is_seen(log: str, planned: tuple[str, ...], words: str) -> None:
    assert words in " ".join(misfits(run_of(log, planned=planned), pretended=False))


@pytest.mark.parametrize(("gpus", "expected"), [(1, []), (2, [2]), (4, [2, 4]), (6, [2, 4, 6]), (8, [2, 4, 8])])
def test_jobs_have_powers_of_two_gpus_and_all(gpus: int, expected: list[int]) -> None:
    assert sizes(gpus) == expected


def found(**of_run: Any) -> dict[str, Any]:
    run = {"what": "2 GPUs", "way": "outside", "lines": [], "predicted_gb_s": None, "bandwidths": {}} | of_run
    return {"runs": [run], "failures": {}}


def test_a_table_has_ways_as_columns_and_the_prediction() -> None:
    one = found(bandwidths={"all-reduce": 330.0, "barrier": 20.0})["runs"]
    other = found(way="TrainingJob", predicted_gb_s=360.0, bandwidths={"all-reduce": 329.0})["runs"]
    text = table({"runs": one + other, "failures": {"late": "Traceback\nTimeoutError: no node"}})
    assert "| 2 GPUs | outside | TrainingJob |" in text
    assert "| all-reduce, GB/s | 330.0 | 329.0 |" in text
    assert "| barrier, µs | 20.0 |  |" in text
    assert "| predicted all-reduce, GB/s |  | 360.0 |" in text
    assert "| all-reduce of that outside | 100.0% | 99.7% |" in text
    assert "- late failed: TimeoutError: no node" in text


def test_windows_stand_side_by_side() -> None:
    lines = [{"collective": "all-reduce", "bus_gb_s": figure, "window": "w"} for figure in (330.0, 328.0)]
    assert "330.0 / 328.0" in table(found(lines=lines, bandwidths={"all-reduce": 328.0}))
