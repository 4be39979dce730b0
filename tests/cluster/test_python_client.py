"""`closeknit.client` against a real API server and a real operator."""

import pytest

from closeknit.client import Client, JobRefused, NoSuchJob, Placed, PlanRefused
from harness.operator_bed import PLUGIN_NODES, Bed


def test_a_pipeline_plans_submits_waits_and_cleans_up(bed: Bed) -> None:
    client = Client(kubeconfig=bed.cluster.kubeconfig, namespace=bed.namespace)
    h200 = {"products": ["NVIDIA-H200"]}
    huge = client.plan(client.job("huge", gpus=512, image="registry.example/train:1"))
    assert isinstance(huge, PlanRefused) and huge.pending.reason == "InsufficientGPUs"

    job = client.job("train", gpus=16, image="registry.example/train:1", gpu=h200)
    answer = client.plan(job)
    assert isinstance(answer, Placed)
    client.submit(job)
    told: list[str] = []
    seen = client.wait("train", "Running", timeout_s=120, progress=lambda job: told.append(job.state))
    assert (seen.state, told[-1]) == ("Running", "Running")

    seen = client.get("train")
    where = [(each.rank, each.node, each.gpu) for each in seen.ranks]
    assert where == [(each.rank, each.node, each.gpu) for each in answer.ranks]
    assert {node for _, node, _ in where} == set(PLUGIN_NODES)
    assert seen._repr_html_().count("<span ") == 16
    assert client.explain("train").next_step is None
    assert {each.type for each in client.events("train")} == {"Normal"}
    with pytest.raises(JobRefused, match="already"):
        client.submit(job)

    client.delete("train")
    with pytest.raises(NoSuchJob):
        client.wait("train", timeout_s=60)
    nowhere = Client(kubeconfig=bed.cluster.kubeconfig, namespace="nowhere")
    with pytest.raises(
        JobRefused, match=r'^the API server refuses TrainingJob nowhere/train: namespaces "nowhere" not'
    ):
        nowhere.submit(nowhere.job("train", gpus=1, image="a"))
