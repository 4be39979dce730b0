"""What a job's Pods send is shaped where it says so: by the CNI bandwidth plugin, of which the kernel's tc tells."""

import json
from collections.abc import Iterator

import pytest

from harness.node.local_node import LocalNode
from node.jobs import Jobs

pytestmark = pytest.mark.nodes

RATE, BYTES_PER_S = "40M", 5_000_000


@pytest.fixture(scope="module", autouse=True)
def plugin(jobs: Jobs) -> Iterator[None]:
    with jobs.stand.plugin():
        yield


def test_what_a_job_sends_is_shaped(jobs: Jobs) -> None:
    jobs.begin("egress")
    assert [rates(node) for node in jobs.stand.nodes] == [[], []]
    jobs.train(["sleep", "600"], gpus=16, network={"egressBandwidth": RATE})
    jobs.wait_for_state("Running")
    assert [rates(node) for node in jobs.stand.nodes] == [[BYTES_PER_S]] * 2
    jobs.delete("trainingjob", "train")
    jobs.wait_for_nothing()


def rates(node: LocalNode) -> list[int]:
    """What the node lets its Pods send, in bytes per second, where it does not let them send what they like."""
    rules = json.loads(node.run_program("tc", "tc", "-json", "qdisc", "show"))
    print(node.site.name, *rules, sep="\n")
    return [rule["options"]["rate"] for rule in rules if rule["kind"] == "tbf"]
