"""Which rank has which GPU, as lines that a Prometheus joins with the metrics of GPUs."""

from prometheus_client.parser import text_string_to_metric_families

from closeknit.controller.gauges.ranks import LABELS, LIMIT, rank_info
from scenarios.manifests import allocation, training_job, uuids
from scenarios.stories import two_dra_nodes, two_plugin_nodes
from scenarios.story import Story, dra_node, plugin_node

BEST_EFFORT = {"gpus": 2, "gpu": {"binding": "BestEffort"}}


def lines(story: Story, limit: int = LIMIT) -> list[dict[str, str]]:
    text = rank_info(story.cluster, limit).text.decode()
    return [sample.labels for family in text_string_to_metric_families(text) for sample in family.samples]


def running(story: Story) -> Story:
    story.settle()
    story.run_all()
    story.settle()
    return story


def test_each_rank_has_the_gpu_that_is_booked_for_it_by_claims_and_by_a_device_plugin() -> None:
    for story in (running(two_dra_nodes()), running(two_plugin_nodes())):
        found = lines(story)
        assert [int(each["rank"]) for each in found] == list(range(16))
        assert all(tuple(each) == LABELS for each in found)
        assert [each["uuid"] for each in found] == [*uuids("gpu-1", *range(8)), *uuids("gpu-2", *range(8))]
        assert {(each["job"], each["namespace"]) for each in found} == {("train", "team-b")}
        uids = {name: story.pod(name)["metadata"]["uid"] for name in story.pods()}
        assert {each["node"]: each["pod_uid"] for each in found} == {
            "gpu-1": uids["train-a1-worker-00000"],
            "gpu-2": uids["train-a1-worker-00001"],
        }


def test_a_gang_that_is_not_bound_has_no_ranks_yet() -> None:
    story = two_dra_nodes()
    story.settle()
    assert (rank_info(story.cluster, LIMIT).ranks, lines(story)) == (0, [])


def test_where_the_device_plugin_gave_others_these_are_told() -> None:
    story = running(Story(*plugin_node("gpu-1"), training_job(spec=BEST_EFFORT)))
    (name,) = story.pods()
    uid = story.pod(name)["metadata"]["uid"]
    given = uuids("gpu-1", 5, 3)
    story.objects["NodeTopology", "", "gpu-1"]["status"]["allocations"] = [allocation("team-b", name, given, uid)]
    assert [each["uuid"] for each in lines(story)] == uuids("gpu-1", 3, 5)


def test_beyond_the_limit_there_is_none_and_how_many_there_are_is_told() -> None:
    story = running(two_dra_nodes())
    assert len(lines(story, 16)) == 16
    beyond = rank_info(story.cluster, 15)
    assert (beyond.ranks, beyond.text) == (16, b"")


def test_a_job_that_is_over_has_no_ranks() -> None:
    story = running(Story(*dra_node("gpu-1"), training_job(spec={"gpus": 2})))
    assert len(lines(story)) == 2
    (name,) = story.pods()
    story.change_pod(name, phase="Succeeded")
    story.settle()
    assert lines(story) == []


def test_names_cannot_break_out_of_their_quotes() -> None:
    story = running(Story(*dra_node("gpu-1"), training_job(spec={"gpus": 1})))
    (name,) = story.pods()
    story.pod(name)["metadata"]["uid"] = 'a"} 2\n\\x'
    (only,) = lines(story)
    assert only["pod_uid"] == 'a"} 2\n\\x'
