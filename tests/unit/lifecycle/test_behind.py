"""Jobs behind one that a quota of their namespace refused: what they are told at once, and how seldom again."""

from closeknit.lifecycle.writes.resource_quotas import Quota
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node

WORDS = (
    "not tried yet: another job asks for more than is left of the quotas of namespace team-b, and the others there are "
    "tried in their turn, one every few seconds"
)
COUNT = 12


def story_of(hard: str, nodes: int = 1) -> Story:
    """Jobs of 8 GPUs each, under a quota, beside a cluster of so many nodes of 8."""
    jobs = (training_job(f"train-{number:02d}", spec={"gpus": 8}) for number in range(COUNT))
    story = Story(*(each for number in range(nodes) for each in plugin_node(f"gpu-{number}")), *jobs)
    for number in range(COUNT):
        story.objects[("TrainingJob", "team-b", f"train-{number:02d}")]["metadata"]["uid"] = f"uid-{number}-of-train"
    limit = {"requests.nvidia.com/gpu": hard}
    story.quotas = [Quota("gpus", hard=limit, used={"requests.nvidia.com/gpu": "0"})]
    return story


def told(story: Story) -> list[tuple[str, str]]:
    found = [story.status(f"train-{number:02d}").pending for number in range(COUNT)]
    return [("", "") if pending is None else (str(pending.reason), pending.message) for pending in found]


def test_those_behind_a_refused_job_are_told_so_at_once() -> None:
    story = story_of("0")
    story.settle()
    first, *others = told(story)
    assert first[0] == "QuotaExceeded"
    assert "asked 8, hard 0, used 0, left 0" in first[1]
    assert others == [("QuotaExceeded", WORDS)] * (COUNT - 1)


def test_while_they_are_tried_in_their_turn_nothing_is_told_to_and_fro() -> None:
    story = story_of("0")
    story.settle()
    written, tried = len(story.written), set()
    for _ in range(40):
        story.pass_time(0.5)
        story.settle()
        tried |= {uid for uid, answers in story.answers.items() if answers.rejection is not None}
        assert {reason for reason, _ in told(story)} == {"QuotaExceeded"}
    assert len(tried) > 2
    assert len(story.written) - written <= COUNT  # each once, when it is told its own numbers


def test_one_that_the_quota_has_room_for_is_told_so_by_its_start() -> None:
    story = story_of("0")
    story.settle()
    limit = {"requests.nvidia.com/gpu": "8"}
    story.quotas = [Quota("gpus", hard=limit, used={"requests.nvidia.com/gpu": "0"})]
    for _ in range(8):
        story.pass_time(0.5)
        story.settle()
    assert len(story.pods()) == 1


def test_without_room_in_the_cluster_that_is_what_they_are_told() -> None:
    story = story_of("0", nodes=0)
    story.settle()
    assert {reason for reason, _ in told(story)} == {"InsufficientGPUs"}
