"""Of very large gangs: what names every Pod fits into a variable and into a ConfigMap, or the gang is refused."""

import json
from typing import Any

import pytest

from closeknit.api.clustertopology import Fabric
from closeknit.api.names import Role
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Framework
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.environment.environment import container_environment
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.children import children
from closeknit.launch.manifests.oversize import ALWAYS_FIT, MOST_BYTES_OF_A_VARIABLE, oversize
from closeknit.launch.manifests.pod_manifest import pod
from closeknit.launch.member import Member

LONGEST = ("j" * 40, "n" * 63)  # of a job and of its namespace, as the API bounds them
ATTEMPT = 2**31 - 1


def gang(
    framework: Framework,
    workers: int,
    servers: int = 0,
    *,
    names: tuple[str, str] = ("train", "ml"),
    attempt: int = 1,
    host_network: bool = False,
    **spec: Any,
) -> Gang:
    """A gang with one GPU on each of its nodes."""
    template = {"spec": {"containers": [{"name": "main", "image": "train"}], "hostNetwork": host_network}}
    fields = {"gpus": workers, "framework": framework, "template": template, **spec}
    if servers:
        fields["parameterServers"] = {"replicas": servers, "template": template}
    metadata = {"name": names[0], "namespace": names[1], "uid": "u"}
    job = TrainingJob.parse_strictly({"metadata": metadata, "spec": fields})
    on_gpus = tuple(Member(f"node-{i}", i, (f"GPU-{i}",), i, Binding.WHOLE_NODE) for i in range(workers))
    on_cpus = tuple(Member("node-0", i, role=Role.PARAMETER_SERVER) for i in range(servers))
    return Gang(job, attempt, (*on_gpus, *on_cpus), Fabric())


def longest(made: Gang) -> int:
    """Bytes of TF_CONFIG in the member where it is longest."""
    ends = (len(made.workers) - 1, len(made.members) - 1)
    return max(len(f"TF_CONFIG={container_environment(made, index)['TF_CONFIG']}") for index in ends)


@pytest.mark.parametrize("servers", [0, 100])
def test_tf_config_may_be_as_long_as_linux_takes_and_no_longer(servers: int) -> None:
    fits = next(
        count for count in range(2_950, 2_500, -1)
        if longest(gang(Framework.TENSORFLOW, count - servers, servers)) <= MOST_BYTES_OF_A_VARIABLE
    )  # fmt: skip
    assert oversize(gang(Framework.TENSORFLOW, fits - servers, servers)) is None
    larger = gang(Framework.TENSORFLOW, fits + 1 - servers, servers)
    assert oversize(larger) == (
        f"TF_CONFIG would have {longest(larger):,} bytes in a gang of {fits + 1:,} Pods, and Linux starts no program "
        "with more than 131,071 in one variable; ask for fewer nodes, or give the job or its namespace a shorter name"
    )


def test_who_sets_tf_config_is_not_refused_for_ours() -> None:
    container = {"name": "main", "image": "train", "env": [{"name": "TF_CONFIG", "value": "{}"}]}
    template = {"spec": {"containers": [container]}}
    assert oversize(gang(Framework.TENSORFLOW, 4_000, template=template)) is None


@pytest.mark.parametrize("framework", [Framework.MPI, Framework.HOROVOD, Framework.CUSTOM, Framework.DEEPSPEED])
def test_files_that_a_config_map_does_not_hold_are_refused(framework: Framework) -> None:
    made = gang(framework, 30_000)
    assert [oversize(gang(framework, 5_000)), (oversize(made) or "").partition(" would")[0]] == [
        None,
        f"the files of framework {framework}",
    ]


def test_a_preflight_is_told_the_ranks_of_65_522_nodes() -> None:
    made = [gang(Framework.PYTORCH, count, preflight="Enforce") for count in (65_522, 65_536)]
    assert [(oversize(each) or "fits").partition(" in a")[0] for each in made] == [
        "fits",
        "CLOSEKNIT_PREFLIGHT_RANKS would have 131,097 bytes",
    ]


@pytest.mark.parametrize("framework", list(Framework))
def test_a_gang_that_is_not_measured_fits_with_the_longest_names(framework: Framework) -> None:
    servers = 256 if framework in {Framework.TENSORFLOW, Framework.CUSTOM} else 0
    made = gang(framework, ALWAYS_FIT - servers, servers, names=LONGEST, attempt=ATTEMPT, host_network=True)
    last = pod(made, len(made.members) - 1)["spec"]["containers"][0].get("env", [])
    assert max((len(f"{each['name']}={each['value']}") for each in last), default=0) <= MOST_BYTES_OF_A_VARIABLE
    assert all(len(json.dumps(each)) < 1 << 20 for each in children(made).of_service)
