"""A volume that one Pod alone may use keeps an elastic job on one node at every size."""

import pytest

from scenarios.manifests import training_job, volume, volume_claim
from scenarios.story import Story
from unit.scheduling.resizing.test_elastic_jobs import HIGH, begin, ends, fixed, site

DISK = {
    "spec": {
        "containers": [{"name": "trainer", "image": "train"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
}

pytestmark = pytest.mark.usefixtures("no_mistakes")


def beside_two_halves() -> Story:
    """The job has one node, and on two others two GPUs each are free: its least size of 4 would go to both."""
    story = site(nodes=3)
    story.add(volume_claim(volume="disk", mode="ReadWriteOncePod"))
    story.add(volume("disk", mode="ReadWriteOncePod"))
    story.add(
        training_job("train", spec={"gpus": 8, "elastic": {"minGPUs": 4}, "template": DISK, "restart": {"limit": 3}})
    )
    begin(story)
    for name in ("one", "two"):
        story.add(fixed(name, 6, **HIGH))
        begin(story)
    assert story.status("two").placement is not None
    return story


def test_it_ends_as_a_whole_where_what_is_left_is_on_two_nodes() -> None:
    story = beside_two_halves()
    story.add(fixed("urgent", 8, topology={"gpusPerNode": 8}, **HIGH))
    begin(story)
    assert ends(story) == [("Preempted", False)]
