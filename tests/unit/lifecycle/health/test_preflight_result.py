"""A preflight: what runs before the trainer, what its words come to, and what of them is believed."""

import json
import subprocess
import sys
from typing import Any

import pytest

from closeknit.launch.manifests.preflight_container import PROGRAM
from scenarios.manifests import training_job
from scenarios.networks import job, two
from scenarios.stories import conditions, disruption, ended
from scenarios.story import Story, plugin_node

PREFLIGHT = "closeknit-preflight"


def begun(kind: str, nodes: int = 2) -> Story:
    machines = [manifest for number in range(1, nodes + 1) for manifest in plugin_node(f"gpu-{number}")]
    story = Story(*machines, training_job(spec={"gpus": 16, "preflight": kind}))
    story.settle()
    return story


def state(result: Any, code: int = 0, reason: str = "Completed") -> dict[str, Any]:
    message = result if isinstance(result, str) else json.dumps(result)
    terminated = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"initContainerStatuses": [{"name": PREFLIGHT, "state": terminated}]}


def says(story: Story, result: Any, code: int = 0, reason: str = "Completed") -> None:
    """All Pods of the attempt end their preflight so, and run if that was well."""
    attempt = story.status().attempt
    for rank in range(2):
        phase = {"phase": "Failed"} if code else {}
        story.change_pod(f"train-a{attempt}-worker-{rank:05d}", **state(result, code, reason), **phase)
    if not code:
        story.run_all()
    for _ in range(3):
        story.settle()


def degraded(story: Story) -> tuple[str, str] | None:
    found = next((each for each in story.status().conditions if each.type == "Degraded"), None)
    return None if found is None or found.status != "True" else (found.reason, found.message)


def test_it_has_the_trainers_image_gpus_and_variables_and_comes_last() -> None:
    story = begun("Enforce")
    spec = story.pod("train-a1-worker-00001")["spec"]
    (made,), (trainer,) = spec["initContainers"], spec["containers"]
    assert (made["name"], made["image"], made["resources"]) == (PREFLIGHT, trainer["image"], trainer["resources"])
    env = {entry["name"]: entry["value"] for entry in made["env"]}
    assert {entry["name"] for entry in trainer["env"]} <= env.keys()
    assert env["CLOSEKNIT_PREFLIGHT_RANKS"] == "8,8"
    assert env["CLOSEKNIT_PREFLIGHT_NODE"] == "1"
    assert env["CLOSEKNIT_PREFLIGHT_MEET"] == "train-a1-worker-00000.train-a1.team-b.svc:29300"
    assert env["CLOSEKNIT_PREFLIGHT_ENFORCE"] == "1"
    assert "$(" not in PROGRAM  # Kubernetes would take it for a variable


def test_its_own_variables_are_not_the_users_to_set() -> None:
    env = [{"name": "CLOSEKNIT_PREFLIGHT_FLOOR", "value": "0"}, {"name": "LEVEL", "value": "3"}]
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", "env": env}]}}
    nodes = [manifest for number in (1, 2) for manifest in plugin_node(f"gpu-{number}")]
    story = Story(*nodes, training_job(spec={"gpus": 16, "preflight": "Warn", "template": template}))
    story.settle()
    (made,) = story.pod("train-a1-worker-00000")["spec"]["initContainers"]
    names = [entry["name"] for entry in made["env"]]
    assert (len(set(names)), "LEVEL" in names) == (len(names), True)


def test_a_job_that_wants_none_has_none() -> None:
    assert "initContainers" not in begun("Never").pod("train-a1-worker-00000")["spec"]


def test_a_good_one_says_nothing() -> None:
    story = begun("Warn")
    says(story, {"inside": 358.1, "world": 340.2, "slow": [], "link": []})
    assert (conditions(story)["Running"], degraded(story)) == ("True", None)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {"inside": 90.0, "world": 80.0, "slow": [1], "link": []},
            ("PreflightFailed", "preflight: gpu-2 is slower inside than the other nodes of the gang"),
        ),
        (
            {"inside": 90.0, "world": 80.0, "slow": [0, 1], "link": []},
            ("PreflightFailed", "preflight: gpu-1, gpu-2 are slower inside than the other nodes of the gang"),
        ),
        (
            {"inside": 350.0, "world": 12.5, "slow": [], "link": [0, 1]},
            (
                "PreflightFailed",
                "preflight: the slowest link is that between gpu-1, gpu-2: all ranks reach 12.5 GB/s together",
            ),
        ),
        (
            {"inside": 90.0, "world": 80.0, "slow": [1], "link": [], "ranks": [12, 13]},
            (
                "PreflightFailed",
                "preflight: gpu-2 is slower inside than the other nodes of the gang; slowest is what joins GPU 4 of "
                "gpu-2 and GPU 5 of gpu-2",
            ),
        ),
        (
            {"slow": [], "link": [0, 1], "ranks": [5, 99]},
            ("PreflightFailed", "preflight: the slowest link is that between gpu-1, gpu-2"),
        ),
        (
            {"inside": 80.0, "world": 80.0, "below": True, "slow": [], "link": []},
            (
                "PreflightFailed",
                "preflight: gpu-1, gpu-2 are slower than predicted: all ranks reach 80.0 GB/s together",
            ),
        ),
        (
            {"skipped": "the image has no python"},
            ("PreflightSkipped", "no preflight was run: the image has no python"),
        ),
        (
            {"error": "RuntimeError: NCCL error"},
            ("PreflightFailed", "preflight: the all-reduce failed: RuntimeError: NCCL error"),
        ),
        ("no JSON at all", None),
        ({"slow": [99, -1]}, None),
        ({"slow": "x"}, None),
        ("[" * 5000, None),
        ('{"other": ' + "[" * 4000, None),
        ({"error": "\x1b[2J" + "x" * 9000}, ("PreflightFailed", "preflight: the all-reduce failed: " + "x" * 300)),
    ],
    ids=[
        "a node",
        "both nodes",
        "a link",
        "GPUs of a node",
        "no such rank",
        "below the prediction",
        "skipped",
        "an error",
        "no JSON",
        "no such node",
        "no list",
        "depth",
        "depths",
        "a terminal's code",
    ],
)
def test_what_it_says_is_told_and_the_job_runs(result: Any, expected: tuple[str, str] | None) -> None:
    story = begun("Warn")
    says(story, result)
    assert conditions(story)["Running"] == "True"
    assert degraded(story) == expected


def test_a_parameter_server_is_no_rank_that_could_be_slow() -> None:
    servers = {"replicas": 1, "template": {"spec": {"containers": [{"name": "server", "image": "i"}]}}}
    machines = [manifest for number in (1, 2) for manifest in plugin_node(f"gpu-{number}")]
    spec = {"gpus": 16, "topology": {"gpusPerNode": 8}, "preflight": "Warn", "framework": "Custom"}
    story = Story(*machines, training_job(spec=spec | {"parameterServers": servers}))
    story.settle()
    says(story, {"world": 12.5, "slow": [2], "link": []})
    assert (conditions(story)["Running"], degraded(story)) == ("True", None)


def test_the_nics_of_a_slow_link_are_named() -> None:
    ports = [
        {"name": f"mlx5_{gpu}", "transport": "RoCE", "state": "Active",
         "gpuLevels": ["PIX" if other == gpu else "SYS" for other in range(8)]}
        for gpu in range(8)
    ]  # fmt: skip
    asked = job()
    asked["spec"]["preflight"] = "Warn"
    story = Story(*two(ports, hca="8"), asked)
    story.settle()
    says(story, {"world": 12.5, "slow": [], "link": [0, 1], "ranks": [5, 13]})
    assert degraded(story) == (
        "PreflightFailed",
        "preflight: the slowest link is that between gpu-1, gpu-2: all ranks reach 12.5 GB/s together; slowest on it "
        "is that of GPU 5 by mlx5_5:1 of gpu-1 and GPU 5 by mlx5_5:1 of gpu-2",
    )


def test_enforced_it_sends_the_job_to_other_nodes() -> None:
    story = begun("Enforce", nodes=3)
    says(story, {"inside": 90.0, "world": 80.0, "slow": [1], "link": []}, code=1)
    assert ended(story) == [(1, "PreflightFailed", False)]
    placement = story.status().placement
    assert placement is not None
    assert "gpu-2" not in [node.name for node in placement.nodes]


def test_enforced_it_ends_after_a_few_attempts() -> None:
    story = begun("Enforce")
    for _ in range(4):
        says(story, {"slow": [], "link": []}, code=1)
        story.pass_time(600)
        story.settle()
    assert [reason for _, reason, _ in ended(story)] == ["PreflightFailed"] * 3 + ["PodFailed"]
    assert conditions(story)["Failed"] == "True"


NO_SHELL = 'exec: "/bin/sh": stat /bin/sh: no such file or directory'


@pytest.mark.parametrize(
    ("kind", "code", "reason", "words"),
    [("Warn", 128, "StartError", NO_SHELL), ("Enforce", 128, "StartError", NO_SHELL), ("Warn", 137, "OOMKilled", "")],
)
def test_one_that_cannot_run_is_left_out(kind: str, code: int, reason: str, words: str) -> None:
    story = begun(kind)
    says(story, words, code=code, reason=reason)
    assert ended(story) == [(1, "PreflightSkipped", False)]
    assert "initContainers" not in story.pod("train-a2-worker-00000")["spec"]
    story.run_all()
    story.settle()
    assert degraded(story) == (
        "PreflightSkipped",
        f"no preflight is run: in attempt 1 its preflight could not run (exit code {code}: {words or reason}); "
        "the job starts again without one",
    )


def test_a_node_that_starts_no_container_is_to_blame() -> None:
    story = begun("Warn", nodes=3)
    says(story, "nvidia-container-cli: device error: GPU-gpu-1-3: unknown device", code=128, reason="StartError")
    assert ended(story) == [(1, "NodeRefused", False)]


def test_enforced_one_that_is_killed_is_no_reason_to_go_without() -> None:
    story = begun("Enforce")
    says(story, "", code=137, reason="OOMKilled")
    assert ended(story) == [(1, "PreflightFailed", False)]


def test_an_error_that_another_setting_ends_blames_no_node() -> None:
    story = begun("Enforce")
    said = "NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152"
    says(story, {"error": f"{said}\nRuntimeError: NCCL error"}, code=1)
    assert ended(story) == [(1, "MulticastFailed", False)]
    (made,) = story.pod("train-a2-worker-00000")["spec"]["initContainers"]
    assert {"name": "NCCL_NVLS_ENABLE", "value": "0"} in made["env"]


def test_a_drain_says_nothing_of_a_node() -> None:
    """The others lose a rank, and say so."""
    story = begun("Enforce")
    drained = [disruption("DeletionByTaintManager", "deleting due to NoExecute taint")]
    story.change_pod("train-a1-worker-00001", conditions=drained)
    says(story, {"error": "NCCL: remote process exited"}, code=1)
    assert ended(story) == [(1, "Disrupted", False)]


def test_an_image_without_torch_skips_it(tmp_path: Any) -> None:
    """The program itself, under a python that has no torch."""
    env = {
        "CLOSEKNIT_PREFLIGHT": PROGRAM,
        "CLOSEKNIT_PREFLIGHT_RANKS": "1",
        "CLOSEKNIT_PREFLIGHT_NODE": "0",
        "CLOSEKNIT_PREFLIGHT_ENFORCE": "1",
        "CLOSEKNIT_PREFLIGHT_RESULT": str(tmp_path / "result"),
    }
    done = subprocess.run([sys.executable, "-I", "-c", PROGRAM], env=env, check=False, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "result").read_text())["skipped"].startswith("the image's python cannot import torch")
