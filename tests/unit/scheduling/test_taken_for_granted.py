"""What a decision takes for granted before it is stored: nothing that a job gives up, and every job that it changes."""

from dataclasses import replace

from closeknit.cluster.booking.booking import booking, spares, until_stored, with_shares
from closeknit.scheduling.queue.entries import Schedule, stands_back
from scenarios.manifests import booked, cut, mig_slice, mig_uuids, node, node_topology, training_job
from scenarios.story import Story, plugin_node


def test_a_job_that_gives_is_among_those_that_were_given() -> None:
    """The cluster after a walk has only as much of its status as the walk needs: no decision may rest on that."""
    placement = booked(("gpu-1", range(4)))
    story = Story(*plugin_node("gpu-1"), training_job("train", spec={"gpus": 4}, placement=placement, attempt=1))
    job = next(iter(story.cluster.jobs.values()))
    less = story.cluster.with_job(job.model_copy(update={"status": job.status.model_copy(update={"attempts": []})}))
    assert list(Schedule(story.cluster, less, story.cluster).given) == [job.key]


def test_what_a_job_gives_up_stays_its_own_until_that_is_stored() -> None:
    before = training_job("train", spec={"gpus": 4}, placement=booked(("gpu-1", range(4))), attempt=1)
    after = training_job("moved", spec={"gpus": 4}, placement=booked(("gpu-2", range(4))), attempt=2)
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), before, after)
    stored, meant = sorted(story.cluster.jobs.values(), key=lambda job: job.status.attempt or 0)
    held, placement = booking(stored), meant.status.placement
    assert held is not None
    assert placement is not None
    both = until_stored(placement, held)
    assert [(share.node, share.gpus) for share in spares(both)] == [("gpu-1", (0, 1, 2, 3))]
    same = stored.status.placement
    assert same is not None
    assert until_stored(same, held) is same


def test_a_mig_device_that_a_job_gives_up_is_not_the_next_one_of_the_same_gpu() -> None:
    """Nobody else gets it before that is stored: the write may be refused."""
    old, new = mig_uuids("gpu-1", 0, 2)
    before, after = booked(("gpu-1", [0]), binding="DRA"), booked(("gpu-1", [0]), binding="DRA")
    before["nodes"][0]["migDevice"], after["nodes"][0]["migDevice"] = old, new
    spec = {"gpus": 1, "gpu": {"mig": "1g.18gb"}}
    machine = (node("gpu-1", gpus=None), cut(node_topology("gpu-1", count=1), 0, count=2), mig_slice(count=2))
    story = Story(*machine, training_job(spec=spec, placement=before, attempt=1))
    (stored,) = story.cluster.jobs.values()
    (meant,) = Story(training_job(spec=spec, placement=after, attempt=1)).cluster.jobs.values()
    held, placement = booking(stored), meant.status.placement
    assert held is not None
    assert placement is not None
    status = stored.status.model_copy(update={"placement": until_stored(placement, held)})
    view = story.cluster.with_job(stored.model_copy(update={"status": status})).nodes["gpu-1"]
    assert {device.uuid: device.holder and device.holder.name for device in view.mig} == {old: "train", new: "train"}


def test_what_a_job_marks_as_lost_stays_its_own_until_that_is_stored() -> None:
    """It gives back what it held until another took its place: nobody gets that before others can read it."""
    held_job = training_job("train", spec={"gpus": 4}, placement=booked(("gpu-1", range(4))), attempt=1)
    story = Story(*plugin_node("gpu-1"), held_job)
    (stored,) = story.cluster.jobs.values()
    held, placement = booking(stored), stored.status.placement
    assert held is not None
    assert placement is not None
    both = until_stored(with_shares(placement, [replace(share, lost=True) for share in held.shares]), held)
    assert [(share.node, share.gpus) for share in spares(both)] == [("gpu-1", (0, 1, 2, 3))]
    meant = stored.model_copy(update={"status": stored.status.model_copy(update={"placement": both})})
    assert story.cluster.with_job(meant).nodes["gpu-1"].free == (4, 5, 6, 7)


def test_a_written_status_of_any_number_leaves_the_queue_as_it_is() -> None:
    odd = training_job("train", spec={"gpus": 4, "expectedDuration": "1h"})
    odd["status"] = {"cost": {"trainedSeconds": 10**15}}
    story = Story(*plugin_node("gpu-1"), odd)
    story.settle()
    assert stands_back(next(iter(story.cluster.jobs.values()))).days == 6
    assert story.status().placement is not None
