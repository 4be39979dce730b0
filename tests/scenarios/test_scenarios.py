"""Every scenario file: a picture of a cluster, a job, and where it goes or why it does not."""

import subprocess
import sys
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State, TrainingJobStatus
from closeknit.cluster.objects.node_objects import UNSCHEDULABLE_TAINT
from closeknit.cluster.objects.silence import Quiet
from closeknit.lifecycle.writes.resource_quotas import Quota
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import NoFit, Placement
from closeknit.scheduling.reservation.patience import patient
from scenarios.clusters import asked, drawn
from scenarios.manifests import node, pod, training_job
from scenarios.stories import disruption, end_trainer
from scenarios.story import Story, plugin_node

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
PATIENT = "while patient"  # what is decided for a job that has not waited long enough yet
TOLD = sorted((Path(__file__).parent / "told").glob("*.yaml"))  # what launch and lifecycle say

RESTARTS = sorted((Path(__file__).parent / "restarts").glob("*.yaml"))  # what follows the end of a run


def written(decision: Placement | NoFit) -> dict[str, Any]:
    """A decision as scenario files write it."""
    if isinstance(decision, NoFit):
        return {"refused": str(decision.reason), "message": decision.message}
    shares = []
    for share in decision.shares:
        line = {
            "node": share.node,
            "gpus": " ".join(map(str, share.gpus)),
            "ranks": f"{share.ranks[0]}-{share.ranks[-1]}",
            "binding": str(share.binding),
        }
        line |= {"mig": share.mig_device} if share.mig_device else {}
        shares.append(line | ({"nics": " ".join(share.nics)} if share.nics else {}))
    return {
        "shares": shares,
        "levels": dict(decision.levels),
        "transport": str(decision.transport),
        "bandwidth": decision.predicted_bus_bandwidth_gb_s,
        "ideal": decision.ideal_bus_bandwidth_gb_s,
        "limitedBy": decision.limited_by,
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_ends_as_its_file_says(file: Path) -> None:
    scenario = yaml.safe_load(file.read_text())
    decision = place(drawn(scenario["cluster"]), asked(scenario), Tables())
    assert written(decision) == scenario["expect"]


@pytest.mark.parametrize("file", [file for file in FILES if PATIENT in file.read_text()], ids=lambda file: file.stem)
def test_a_patient_job_first_asks_as_its_file_says(file: Path) -> None:
    scenario = yaml.safe_load(file.read_text())
    cluster, tables = drawn(scenario["cluster"]), Tables()
    waiting = patient(asked(scenario), cluster, tables)
    assert ("nothing to wait for" if waiting is None else written(place(cluster, waiting, tables))) == scenario[PATIENT]


@pytest.mark.parametrize("file", TOLD, ids=lambda file: file.stem)
def test_what_keeps_a_gang_from_being_made_is_told_as_its_file_says(file: Path) -> None:
    scenario = yaml.safe_load(file.read_text())
    pods = [pod(name, namespace="team-b", node=None) for name in scenario.get("pods", ())]
    nodes = chain.from_iterable(plugin_node(name) for name in scenario["nodes"])
    story = Story(*nodes, *pods, training_job(spec=scenario["job"]))
    story.forbidden = scenario.get("refused", {})
    story.unserved = set(scenario.get("unserved", ()))
    story.quotas = [Quota(name, each["hard"], each["used"]) for name, each in scenario.get("quotas", {}).items()]
    story.failing = scenario.get("failing")
    for _ in range(scenario.get("for_s", 0) // 5):
        story.write_once()
        story.pass_time(5)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert {"reason": pending.reason, "message": pending.message} == scenario["expect"]
    assert story.pods() == scenario.get("pods", [])


@pytest.mark.parametrize("file", RESTARTS, ids=lambda file: file.stem)
def test_what_follows_the_end_of_a_run_is_as_its_file_says(file: Path) -> None:
    scenario = yaml.safe_load(file.read_text())
    story = Story(*chain.from_iterable(map(plugin_node, scenario["nodes"])), training_job(spec=scenario["job"]))
    if scenario.get("sidecar"):  # its gang can restart in place
        story.sidecar_image = "closeknit/agent:1"
        for name in scenario["nodes"]:
            story.objects["Node", "", name]["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    for run in scenario["runs"]:
        ran(story, **run)
    if scenario["expect"] == "gone":
        assert (story.names("TrainingJob"), story.pods()) == ([], [])
        return
    status = story.status()
    expected = {"state": status.state, "ends": ends(status), "message": status.attempts[-1].message}
    expected |= {"nodes": places(status)} if places(status) else {}
    expected |= {"pods": story.pods()} if "pods" in scenario["expect"] else {}
    assert expected == scenario["expect"]


def ran(
    story: Story, *, for_s: float, exits: Mapping[int, int] | None = None, first: int | None = None, **how: Any
) -> None:
    """A run: all Pods run for so long, and then those of these ranks end with these codes, the `first` three seconds
    before the others. `drained` is the rank that a drain ends, `cordoned` a node. `dies` is a node that is silent until
    the job has gone elsewhere, and comes back."""
    story.settle()
    story.pass_time(300 if story.status().attempts else 0)  # whatever pause there is
    story.settle()
    story.run_all()
    story.settle()
    story.pass_time(for_s)
    if "cordoned" in how:
        story.add(node(how["cordoned"], gpus=8, taints=[{"key": UNSCHEDULABLE_TAINT.key, "effect": "NoSchedule"}]))
    for rank, code in (exits or {}).items():
        end_trainer(story, rank, code, ago_s=3 if rank == first else 0)
        if how.get("drained") == rank:
            name = f"train-a{story.status().attempt}-worker-{rank:05d}"
            story.change_pod(name, conditions=[disruption("EvictionByEvictionAPI", "a drain")])
    story.settle()
    if "dies" in how:
        story.lose_node(how["dies"])
        story.silence(how["dies"], Quiet.LONG)
        story.settle()
        for name in story.pods():
            if story.pod(name)["spec"].get("nodeName") == how["dies"]:
                story.remove_pod(name)
        story.silent.clear()
        story.recover_node(how["dies"])
        story.settle()


def ends(status: TrainingJobStatus) -> list[str]:
    return [f"{each.number} {each.reason} {'charged' if each.charged else 'free'}" for each in status.attempts]


def places(status: TrainingJobStatus) -> list[str]:
    """Names of the nodes that a job that is not over holds."""
    held = None if status.state is State.FAILED else status.placement
    return sorted(each.name for each in held.nodes) if held is not None else []


def test_every_reason_to_wait_has_a_scenario() -> None:
    scenarios = [yaml.safe_load(file.read_text()) for file in FILES]
    answers = [each[part] for each in scenarios for part in ("expect", PATIENT) if part in each]
    refused = {answer.get("refused") for answer in answers if isinstance(answer, dict)}
    told = {yaml.safe_load(file.read_text())["expect"]["reason"] for file in TOLD}
    of_ours = {
        PendingReason.INTERNAL_ERROR,  # a mistake that has to be planted: tests/unit/lifecycle/test_waiting.py
        PendingReason.BEHIND_RESERVATION,  # of two jobs: tests/unit/scheduling/reservation
        PendingReason.MOVE_PENDING,  # of two jobs: tests/unit/scheduling/defragment
        PendingReason.PREEMPTION_PENDING,  # of two jobs: tests/unit/scheduling/preemption
        PendingReason.WAITING_FOR_KUEUE,  # of another's queue: tests/unit/lifecycle/kueue
        PendingReason.NODES_LOST,  # of a gang that ran: tests/unit/lifecycle/failures/test_swap.py
    }
    assert (refused - {None}) | told == {str(reason) for reason in PendingReason if reason not in of_ours}
    assert not refused & told


@pytest.mark.parametrize("file", [*FILES, *TOLD, *RESTARTS], ids=lambda file: file.stem)
def test_a_scenario_has_a_picture_of_its_nodes(file: Path) -> None:
    text = file.read_text()
    scenario = yaml.safe_load(text)
    picture = [line for line in text.splitlines() if line.startswith("#   ")]
    nodes = scenario["nodes"] if "nodes" in scenario else scenario["cluster"]["nodes"]
    assert {name for name in nodes if not any(name in line for line in picture)} == set()


def test_a_decision_is_the_same_in_every_process() -> None:
    """Sets of strings have another order in each process, unless the seed of their hashes is given."""
    tests = Path(__file__).parents[1]
    code = "from scenarios.test_scenarios import decisions; print(decisions())"
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(tests)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1] == f"{decisions()}\n"


def decisions() -> list[Placement | NoFit]:
    """Those of all scenarios, by the names of their files."""
    scenarios = [yaml.safe_load(file.read_text()) for file in FILES]
    return [place(drawn(scenario["cluster"]), asked(scenario), Tables()) for scenario in scenarios]
