"""What `closeknit plan` says of a job that fits only after a wait: with fewer GPUs, or once others have moved."""

import json
from typing import Any

from rich.console import Console

from closeknit.api.objects import TrainingJob
from closeknit.cli.plan.plan_decision import PlanRefused, plan
from closeknit.cli.plan.plan_json import as_json
from closeknit.cli.plan.plan_table import print_table
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.lifecycle.status.conditions import timestamp
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node
from unit.scheduling.defragment.test_planned_moves import scattered
from unit.scheduling.preemption.test_preempted_jobs import HIGH, job, site
from unit.scheduling.resizing.test_elastic_jobs import begin

WHOLE_NODE = {"gpus": 8, "topology": {"gpusPerNode": 8}}


def refused(story: Story, spec: dict[str, Any], namespace: str = "team-b") -> PlanRefused:
    for (kind, _, _), each in story.objects.items():
        if kind == "NodeTopology":
            each["status"]["heartbeatTime"] = timestamp(story.now)
    there = [value for each in story.objects.values() if (value := from_document(each)) is not None]
    asked = TrainingJob.parse(training_job("asked", namespace=namespace, spec=spec))
    answer = plan(asked, there, story.now)
    assert isinstance(answer, PlanRefused)
    return answer


def halves(**spec: Any) -> Story:
    """z holds half of gpu-2, and y half of gpu-1; nobody else waits."""
    story = scattered(waited=0, **spec)
    del story.objects["TrainingJob", "team-b", "big"]
    return story


def test_others_that_would_move_are_named_with_the_wait_that_they_are_worth() -> None:
    """z has to do nothing again but for a moment: its restart of two minutes costs less than five of the gang's."""
    story = halves(defragment="Planned")
    answer = refused(story, WHOLE_NODE)
    words = "once it has waited for 5 minutes, team-b/z moves elsewhere, and it starts on gpu-2"
    assert answer.later == (words,)
    assert json.loads(as_json(answer))["pending"]["later"] == [words]
    console = Console(width=200)
    with console.capture() as printed:
        print_table(answer, console)
    assert words in printed.get()


def test_names_of_another_namespace_are_not_told() -> None:
    told = refused(halves(defragment="Planned"), WHOLE_NODE, "team-c").later
    assert told == (
        "once it has waited for 5 minutes, 1 job of other namespaces moves elsewhere, and it starts on gpu-2",
    )


def test_a_job_that_has_run_for_long_moves_for_a_longer_wait() -> None:
    story = halves(defragment="Planned")
    story.pass_time(3600)
    begin(story)
    (told,) = refused(story, WHOLE_NODE).later
    assert told.startswith("once it has waited for 80 minutes, team-b/z moves elsewhere")


def test_nothing_is_said_where_nobody_may_move() -> None:
    assert refused(halves(), WHOLE_NODE).later == ()


def test_an_elastic_job_is_told_with_how_many_gpus_it_starts_and_where() -> None:
    story = halves()
    answer = refused(story, {"gpus": 16, "elastic": {"minGPUs": 4}})
    assert answer.later == (
        "once it has waited for a minute, it starts with 8 of its 16 GPUs on gpu-1, gpu-2, and grows later",
    )


def test_an_elastic_job_is_told_who_makes_room_for_fewer() -> None:
    peer, lows = job("peer", **HIGH), [job(f"low-{number}") for number in range(3)]
    story = site(plugin_node, peer, *lows, nodes=4)
    asked = {**WHOLE_NODE, **HIGH, "gpus": 32, "elastic": {"minGPUs": 8}}
    assert refused(story, asked).later == (
        "once it has waited for a minute, team-b/low-0, team-b/low-1 and team-b/low-2 make room for it, by priority, "
        "and it starts with 24 of its 32 GPUs on gpu-2, gpu-3, gpu-4",
    )
    assert "3 jobs of other namespaces make room for it" in refused(story, asked, "team-a").later[0]


def test_one_of_which_no_size_fits_is_told_nothing_of_it() -> None:
    assert refused(halves(), {**WHOLE_NODE, "gpus": 32, "elastic": {"minGPUs": 16}}).later == ()
