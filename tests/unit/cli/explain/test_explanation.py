"""One reason and one next step for every state of a job; the tables of steps are closed."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from closeknit.api.names import NOT_SEEN
from closeknit.api.reasons import ConditionReason, EndReason, PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.cli.explain.explain_page import draw
from closeknit.cli.explain.explanation import explanation
from closeknit.cli.jobs.found_jobs import FoundJob
from closeknit.cli.jobs.told_job import told_of
from closeknit.cli.jobs.told_pod import ToldPod
from closeknit.cli.main import app
from closeknit.cli.output.page import Page, Paper
from closeknit.lifecycle.status.next_steps import ENDED, NEAREST, NEVER_TOLD, TOLD, UNSEEN, WAITING

CLUSTER = ["--cluster", str(Path(__file__).parents[4] / "examples/clusters/busy.yaml")]
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def found(*pods: ToldPod, may_read: bool = True, **status: Any) -> FoundJob:
    body = {"metadata": {"name": "train", "namespace": "ml", "creationTimestamp": "2026-11-21T11:00:00Z"}}
    job = told_of({**body, "spec": {"gpus": 16}, "status": status})
    return FoundJob(job, pods if may_read else None)


def waiting(reason: str, **pending: Any) -> dict[str, Any]:
    told = {"reason": reason, "message": "words", "since": "2026-11-21T11:48:00Z", **pending}
    return {"state": "Queued", "reason": reason, "message": "words", "pending": told}


def drawn(job: FoundJob, *, is_wide: bool = False) -> str:
    page = Page(Paper())
    draw(explanation(job), page, NOW, is_wide=is_wide)
    return "\n".join(page.lines)


def test_every_reason_has_a_step() -> None:
    assert set(WAITING) == set(PendingReason)
    assert set(ENDED) == set(EndReason)
    assert (set(TOLD) | NEVER_TOLD, set(TOLD) & NEVER_TOLD) == (set(ConditionReason), set())


@pytest.mark.parametrize("table", [WAITING, ENDED, TOLD, UNSEEN], ids=["waiting", "ended", "told", "unseen"])
def test_a_step_is_one_line_that_tells_what_to_do(table: Mapping[str, str]) -> None:
    for words in filter(None, table.values()):
        assert words[0].islower() and not words.endswith(".") and words.isprintable() and len(words) <= 160


@pytest.mark.parametrize("reason", PendingReason)
def test_a_job_that_waits_is_told_why_since_when_and_what_to_do(reason: PendingReason) -> None:
    lines = drawn(found(**waiting(reason))).splitlines()
    assert lines[:2] == [f"ml/train waits for GPUs, for 12m: {reason}", "  words"]
    assert lines[2].startswith("next step: ")
    assert all(len(line) <= 80 for line in lines)
    answer = explanation(found(**waiting(reason)))
    assert answer.next_step is not None and answer.next_step.code == reason


def test_a_change_that_was_checked_comes_before_any_advice() -> None:
    told = found(**waiting("NoNVLinkIsland", nearest=["with nvlink: Ignored: 16 GPUs", "with tensor: 8"]))
    answer = explanation(told)
    assert answer.next_step is not None
    assert (answer.next_step.code, answer.next_step.text) == (NEAREST, "it would fit now with nvlink: Ignored: 16 GPUs")
    assert "tensor: 8" not in drawn(told)
    assert "or with tensor: 8" in drawn(told, is_wide=True)


@pytest.mark.parametrize("reason", EndReason)
def test_a_job_that_has_failed(reason: EndReason) -> None:
    failed = [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-21T11:59:30Z"}]
    text = drawn(found(state="Failed", reason=reason, message="words", conditions=failed))
    assert text.startswith(f"ml/train has failed, 30s ago: {reason}\n  words")
    assert ("next step: " in text) is bool(ENDED[reason])
    assert "{job}" not in text


@pytest.mark.parametrize("reason", TOLD)
def test_a_job_that_runs_with_less_than_planned(reason: str) -> None:
    running = [{"type": "Running", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"}]
    text = drawn(found(state="Running", reason=reason, message="words", conditions=running))
    assert text.startswith(f"ml/train runs, for 3h: {reason}\n  words")
    assert ("next step: " in text) is bool(TOLD[reason])


@pytest.mark.parametrize("state", State)
def test_every_state_has_words(state: State) -> None:
    assert drawn(found(state=state, placement={"nodeCount": 2})).startswith("ml/train ")
    assert f" {state}" not in drawn(found(state=state)).splitlines()[0]


def test_a_reason_of_another_version_is_shown_without_a_step() -> None:
    answer = explanation(found(**waiting("SolarFlare")))
    assert (answer.reason, answer.next_step) == ("SolarFlare", None)


def test_a_job_that_nobody_has_seen() -> None:
    answer = explanation(found())
    assert (answer.reason, answer.next_step and answer.next_step.code) == (NOT_SEEN, NOT_SEEN)


def test_the_version_of_nccl_is_told_once_it_is_known() -> None:
    told = found(state="Running", environment={"ncclVersion": "2.28.9"})
    assert explanation(told).nccl_version == "2.28.9"
    assert "NCCL in its Pods: 2.28.9" in drawn(told, is_wide=True)
    assert explanation(found(state="Running")).nccl_version is None


def test_pods_that_do_not_run_are_named_a_few_of_them() -> None:
    pods = [ToldPod(f"train-a1-worker-0000{n}", "n", "ImagePullBackOff", "no such image") for n in range(7)]
    placed: dict[str, Any] = {"state": "Starting", "placement": {"nodeCount": 7}}
    text = drawn(found(*pods, ToldPod("train-a1-worker-00007", "n", "Running"), **placed))
    assert text.count("ImagePullBackOff  no such image") == 5
    assert "and 2 more: -o wide shows them" in text and "00007" not in text
    assert drawn(found(*pods, **placed), is_wide=True).count("no such image") == 7


def test_pods_that_may_not_be_read_are_said_to_be() -> None:
    told = found(may_read=False, state="Running")
    assert explanation(told).pods is None
    assert "its Pods: you may not list them" in drawn(told, is_wide=True)


def test_what_a_placement_costs() -> None:
    placed = {
        "nodeCount": 2,
        "levels": {"block": 1, "rack": 2},
        "predictedBusBandwidthGBps": 41.2,
        "idealBusBandwidthGBps": 360.0,
        "limitedBy": "rack uplinks",
        "endedAtBudget": True,
    }
    text = drawn(found(state="Running", placement=placed))
    assert "sits on 16 GPUs of 2 nodes in 1 block, 2 racks" in text
    assert "41.2 GB/s, 89% less than the 360.0 that this\ncluster could give at best" in text
    assert "limited by: rack uplinks" in text and "there may be a better placement" in text


RUN = {
    "number": 2,
    "reason": "NodeLost",
    "charged": False,
    "ended": "2026-11-21T11:00:00Z",
    "message": "gpu-7 is dead",
    "inPlace": True,
    "ran": "2h",
    "phases": {"detect": "10s", "decide": "0s", "free": "1s", "bind": "2s", "start": "7s", "firstStep": "30s"},
    "exits": [{"pod": "p", "exitCode": 137, "reason": "OOMKilled", "message": "last words"}, {"pod": "q"}],
    "blamed": [{"node": "gpu-7"}, {"node": "gpu-8", "gpu": "GPU-a"}],
}


def test_what_happened_to_it() -> None:
    told = found(state="Running", attempts=[{**RUN, "number": n} for n in range(1, 6)], attempt=5, restarts=4)
    short, wide = drawn(told), drawn(told, is_wide=True)
    assert short.count("NodeLost  120m  20s in place  no") == 3
    assert "and 2 ends before: -o wide shows them" in short
    assert wide.count("attempt 3: NodeLost: gpu-7 is dead") == 1
    assert "detect 10 s, decide 0 s, free 1 s, bind 2 s, start 7 s, first step 30 s" in wide
    assert "blamed: gpu-7, gpu-8/GPU-a" in wide and "p: exit code 137: OOMKilled: last words" in wide
    (run, *_) = explanation(told).runs
    assert (run.ran_seconds, sum(run.phases_seconds.values()), run.exits[1]) == (7200, 50, "q")


def test_what_faults_have_cost_it() -> None:
    cost = {"trainedSeconds": 7200, "lostGPUSeconds": {"NodeLost": 7200}, "ettr": 0.9912}
    wide = drawn(found(state="Running", cost=cost), is_wide=True)
    assert "effective training time: 99.1%" in wide and "lost GPU-hours: NodeLost 2.0" in wide


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope", "-n", "ml"], "no TrainingJob nope in namespace ml; there are llama-70b, moe-16, tensor-4; -A looks"),
        (["nope", "-n", "empty"], "in namespace empty; there is no job at all: -A looks in all namespaces"),
        (["nope", "-A"], "has no TrainingJob nope in any namespace"),
        (
            ["eval", "-A", "--context", "c"],
            "with --cluster FILE no cluster is asked, and --context would change nothing",
        ),
    ],
    ids=" ".join,
)
def test_a_job_that_is_not_there(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["explain", *arguments, *CLUSTER])
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("closeknit: ") and words in line


def test_a_job_of_all_namespaces_by_its_name_alone(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["explain", "tensor-4", "-A", *CLUSTER, "-o", "json"])
    assert json.loads(result.stdout)["namespace"] == "ml"
    text = Path(CLUSTER[1]).read_text().replace("name: eval", "name: tensor-4")
    (tmp_path / "twice.yaml").write_text(text)
    result = CliRunner().invoke(app, ["explain", "tensor-4", "-A", "--cluster", str(tmp_path / "twice.yaml")])
    assert "has a TrainingJob tensor-4 in each of ml, team-b: name one by --namespace" in result.stderr


@pytest.mark.parametrize(
    ("moment", "words"),
    [("2026-11-21T12:35:00Z", "expected to start: 12:35, in 35m"), ("2026-11-23T12:00:00Z", "2026-11-23 12:00, in 2d"),
     ("2026-11-21T11:00:00Z", "expected to start: soon"), ("tomorrow", "expected to start: -")],
)  # fmt: skip
def test_when_it_is_expected_to_start(moment: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    told = found(**waiting("InsufficientGPUs", estimatedStart=moment))
    assert words in drawn(told) and explanation(told).estimated_start == moment


def test_a_job_on_nodes_that_are_lent_to_it_is_told_so() -> None:
    words = "gpu-3 is a spare node of another job, which takes it back when it loses a node: the job then waits again"
    status: dict[str, Any] = {"state": "Running", "placement": {"nodeCount": 1, "levels": {}}}
    placed = {"type": "Placed", "status": "True", "reason": "Booked"}
    lent = found(**status, conditions=[{**placed, "message": f"booked on gpu-3; lent: {words}"}])
    assert words in drawn(lent).replace("\n", " ")
    where = explanation(lent).where
    assert where is not None and where.lent == words
    other = explanation(found(**status, conditions=[{**placed, "message": "booked on gpu-3"}])).where
    assert other is not None and other.lent is None
