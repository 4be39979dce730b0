"""TensorFlow's own cluster resolver, given what closeknit sets."""

from collections.abc import Callable
from pathlib import Path

from closeknit.api.trainingjob import Framework
from contracts.conftest import Ask
from contracts.gangs import environments, gang
from harness.frameworks import TENSORFLOW, Environment

MULTI_WORKER = gang(Framework.TENSORFLOW, (4, 4, 2))
MIRRORED = gang(Framework.TENSORFLOW, (4,))
SERVED = gang(Framework.TENSORFLOW, (1, 1), servers=2)


def test_every_task_finds_the_cluster_and_itself(ask: Ask, interpreter: Callable[[Environment], Path]) -> None:
    gangs = [MULTI_WORKER, MIRRORED, SERVED]
    multi_worker, mirrored, served = ask(
        interpreter(TENSORFLOW), "tensorflow_cluster.py", [environments(each) for each in gangs]
    )
    host = "train-a1-worker-{:05d}.train-a1.ml.svc:2222".format
    cluster = {"worker": [host(0), host(1), host(2)]}
    assert multi_worker == [
        {"cluster": cluster, "type": "worker", "index": rank, "workers": 3, "is_chief": rank == 0, "id": rank}
        for rank in range(3)
    ]
    server = "train-a1-ps-{:05d}.train-a1.ml.svc:2222".format
    served_by = {"worker": [host(0), host(1)], "chief": [server(0)], "ps": [server(1)]}
    assert [(each["type"], each["index"], each["is_chief"]) for each in served] == [
        ("worker", 0, False), ("worker", 1, False), ("chief", 0, True), ("ps", 0, False)
    ]  # fmt: skip
    assert all(each["cluster"] == served_by for each in served)
    assert mirrored == [{"cluster": {}, "type": None, "index": None}]
