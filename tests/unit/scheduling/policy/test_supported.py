"""Fields that are not supported together are refused by their names, and no field is ignored in silence."""

from typing import Any

import pytest

from closeknit.api.affinity import REQUIRED
from closeknit.api.trainingjob import Framework, TrainingJobSpec
from closeknit.scheduling.policy.supported import refusal
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node

TEMPLATE = {"spec": {"containers": [{"name": "trainer"}]}}


def spec(**fields: Any) -> TrainingJobSpec:
    return TrainingJobSpec.parse({"gpus": 8, "template": TEMPLATE, **fields})


@pytest.mark.parametrize("framework", list(Framework))
def test_every_field_is_built(framework: Framework) -> None:
    built = {
        "spares": 1,
        "framework": framework,
        "parallelism": {"tensor": 2, "context": 2, "pipeline": 2},
        "topology": {
            "nvlink": "Required",
            "fabric": {"required": "block", "preferred": "rack", "patience": "10m"},
            "gpusPerNode": 8,
            "minBusBandwidthGBps": 100,
        },
        "gpu": {"products": ["NVIDIA-H200"], "minMemory": "80Gi", "binding": "DRA", "allowShared": True},
        "network": {"rdma": "Required", "trafficClass": "training", "egressBandwidth": "10G", "allowHostNetwork": True},
        "storage": {"gpuDirect": True},
        "preflight": "Enforce",
        "defragment": "Planned",
        "queue": "research",
        "priorityClassName": "high",
        "suspend": True,
        "template": {"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}},
        "restart": {"limit": 5, "window": "1h", "rules": [{"exitCodes": [42], "action": "RestartFree"}]},
        "ttlSecondsAfterFinished": 60,
        "activeDeadlineSeconds": 60,
    }
    assert refusal(spec(**built)) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"framework": "TensorFlow"}, None, id="TensorFlow"),
        pytest.param({"framework": "Custom", "replicas": 1}, None, id="Custom"),
        pytest.param(
            {"framework": "PyTorch"},
            "spec.parameterServers is for TensorFlow and Custom, and spec.framework is PyTorch; remove it",
            id="a framework without them",
        ),
        pytest.param(
            {"framework": "Custom", "topology": {}},
            "spec.parameterServers needs spec.topology.gpusPerNode, which tells how many nodes share them; set it",
            id="on nobody knows how many nodes",
        ),
        pytest.param(
            {"framework": "TensorFlow", "replicas": 1},
            "spec.parameterServers.replicas is 1, and of TensorFlow's the first is the chief; set 2 or more",
            id="a chief without servers",
        ),
    ],
)
def test_whose_parameter_servers_are_taken(fields: dict[str, Any], message: str | None) -> None:
    servers = {"replicas": fields.pop("replicas", 2), "template": TEMPLATE}
    assert refusal(spec(**{"topology": {"gpusPerNode": 4}, "parameterServers": servers, **fields})) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"elastic": {"minGPUs": 8}}, None, id="torchrun's elastic rendezvous, over all GPUs"),
        pytest.param({"elastic": {"minGPUs": 4}}, None, id="with fewer"),
        pytest.param({"elastic": {"minGPUs": 4}, "framework": "DeepSpeed"}, None, id="by restart"),
        pytest.param(
            {"elastic": {"minGPUs": 4}, "spares": 1},
            "spec.elastic.minGPUs is 4 of 8 GPUs, and spec.spares would hold nodes idle on which it could train: an "
            "elastic job goes on without a lost node; remove one of them",
            id="with spares",
        ),
        pytest.param({"elastic": {"minGPUs": 8}, "spares": 1}, None, id="with spares and one size"),
        pytest.param(
            {"elastic": {"minGPUs": 4}, "gpu": {"allowShared": True}},
            "spec.elastic.minGPUs is 4 of 8 GPUs, and of GPUs that are shared nothing is gained by fewer; remove "
            "spec.elastic, or allowShared",
            id="on shared GPUs",
        ),
        pytest.param(
            {
                "elastic": {"minGPUs": 4},
                "framework": "Custom",
                "topology": {"gpusPerNode": 4},
                "parameterServers": {"replicas": 2, "template": TEMPLATE},
            },
            "spec.elastic.minGPUs is 4 of 8 GPUs, and the number of its parameter servers is fixed; remove "
            "spec.elastic",
            id="with parameter servers",
        ),
    ],
)
def test_whose_elastic_bounds_are_taken(fields: dict[str, Any], message: str | None) -> None:
    assert refusal(spec(**fields)) == message


def test_a_new_field_of_the_spec_is_built_or_refused() -> None:
    """Whoever adds a field decides here whether it is built."""
    assert set(TrainingJobSpec.model_fields) == {
        "gpus", "framework", "parallelism", "topology", "gpu", "network", "storage", "parameter_servers", "queue",
        "priority_class_name", "expected_duration", "elastic", "spares", "restart", "defragment", "preflight",
            "suspend",         "ttl_seconds_after_finished", "active_deadline_seconds", "template",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"gpus": 16, "elastic": {"minGPUs": 8}, "spares": 1},
            "spec.elastic.minGPUs is 8 of 16 GPUs, and spec.spares would hold nodes idle on which it could train: an "
            "elastic job goes on without a lost node; remove one of them",
            id="two fields",
        ),
    ],
)
def test_the_refusal_says_what_to_do(fields: dict[str, Any], message: str) -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8, **fields}))
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, pending.message) == ("NotSupported", message)
    assert story.written == ["status Queued"]
