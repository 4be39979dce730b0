"""What in the Pods that stay names the size of their gang, where its last nodes go or new ones come after them.

What is in the digest keeps a change of size from being in place (docs/decisions/0020-resize-in-place.md).
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from closeknit.api.clustertopology import Fabric
from closeknit.api.nodetopology import Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Framework
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.children import children
from closeknit.launch.manifests.pod_manifest import pods
from closeknit.launch.member import Member

IMAGE = "closeknit/agent:1"
GANG = "env.CLOSEKNIT_GANG"
SIDECARS = {f"barrier.{GANG}.size", f"sidecar.{GANG}.size"}
DIGEST = "annotations.settings"  # of what the Pods cannot learn otherwise
TELLERS = {f"barrier.{GANG}.probePort", f"sidecar.{GANG}.probePort", "sidecar.readinessProbe"}
FILES = {"volumes.files"}
WORLD = "trainer.env.CLOSEKNIT_WORLD_SIZE"
OF_TRAINER = {
    Framework.PYTORCH: {WORLD, "trainer.env.PET_NNODES"},
    Framework.DEEPSPEED: {WORLD, "trainer.env.PET_NNODES", *FILES},
    Framework.JAX: {"trainer.env.JAX_NUM_PROCESSES"},
    Framework.TENSORFLOW: {"trainer.env.TF_CONFIG"},
    Framework.MPI: {WORLD, *FILES},
    Framework.HOROVOD: {WORLD, *FILES},
    Framework.CUSTOM: {"trainer.env.WORLD_SIZE", *FILES},
}


def gang(framework: Framework, nodes: int) -> Gang:
    """An elastic gang on whole nodes of one NVLink domain with NICs, its GPUs by claims, which restarts in place."""
    container = {"name": "trainer", "image": "train", "command": ["train"]}
    spec: dict[str, Any] = {
        "gpus": 256,
        "framework": framework,
        "elastic": {"minGPUs": 8},
        "restart": {"limit": 3},
        "template": {"spec": {"containers": [container]}},
    }
    job = TrainingJob.parse_strictly({"metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": spec})
    members = tuple(
        Member(
            f"node-{index}",
            index,
            tuple(f"GPU-{index}-{gpu}" for gpu in range(8)),
            8 * index,
            Binding.DRA,
            cpus=96,
            nics=("mlx5_0:1",),
            rdma_resource="rdma/hca",
            transport=Transport.INFINIBAND,
            nvlink_domain="rack",
            has_most_gpus=True,
        )
        for index in range(nodes)
    )
    return Gang(job, 1, members, Fabric(), imex_with=frozenset(Binding), sidecar_image=IMAGE)


def fields(pod: dict[str, Any]) -> dict[str, str]:
    """The fields of a Pod that a gang of another size could have otherwise, each by a short name."""
    spec = pod["spec"]
    found: dict[str, Any] = {"annotations.settings": pod["metadata"]["annotations"]["closeknit.dev/settings"]}
    for container in (*spec["initContainers"], *spec["containers"]):
        name = container["name"].removeprefix("closeknit-")
        found |= {f"{name}.{key}": value for key, value in container.items() if key != "env"}
        for entry in container.get("env", ()):
            if entry["name"] == "CLOSEKNIT_GANG":
                found |= {f"{name}.{GANG}.{key}": value for key, value in json.loads(entry["value"]).items()}
            else:
                found[f"{name}.env.{entry['name']}"] = entry["value"]
    found |= {f"volumes.{each['name'].removeprefix('closeknit-')}": each for each in spec["volumes"]}
    rest = {key: value for key, value in spec.items() if key not in ("initContainers", "containers", "volumes")}
    found |= {"labels": pod["metadata"]["labels"], "name": pod["metadata"]["name"], **rest}
    return {key: json.dumps(value, sort_keys=True) for key, value in found.items()}


def other(framework: Framework, before: int, after: int) -> set[str]:
    """Fields in which a Pod that both gangs have differs, over all of these."""
    return set(_other(framework, before, after))


def _other(framework: Framework, before: int, after: int) -> Iterator[str]:
    stay = range(min(before, after))
    for one, two in zip(pods(gang(framework, before), stay), pods(gang(framework, after), stay), strict=True):
        now, then = fields(one), fields(two)
        yield from (key for key in now.keys() | then.keys() if now.get(key) != then.get(key))


@pytest.mark.parametrize("framework", list(Framework))
def test_a_few_variables_name_the_size_and_nothing_else_does(framework: Framework) -> None:
    digest = set() if framework in (Framework.PYTORCH, Framework.JAX) else {DIGEST}
    assert other(framework, 8, 6) == other(framework, 6, 8) == {*SIDECARS, *OF_TRAINER[framework], *digest}


def test_beyond_eight_nodes_other_sidecars_tell_of_the_whole_gang() -> None:
    assert other(Framework.PYTORCH, 16, 12) == {*SIDECARS, *TELLERS, *OF_TRAINER[Framework.PYTORCH], DIGEST}


def test_with_one_node_left_the_pod_loses_its_nics_and_its_channel() -> None:
    """Resources and claims of a Pod cannot be changed."""
    assert other(Framework.PYTORCH, 2, 1) >= {DIGEST, "trainer.resources", "resourceClaims", "trainer.env.NCCL_IB_HCA"}


@pytest.mark.parametrize("framework", list(Framework))
def test_of_the_other_children_only_files_name_the_size(framework: Framework) -> None:
    one, two = children(gang(framework, 8)), children(gang(framework, 6))
    assert (one.service, one.of_job) == (two.service, two.of_job)
    assert (one.of_service != two.of_service) is (OF_TRAINER[framework] >= FILES)
