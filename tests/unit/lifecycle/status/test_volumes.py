"""What the volumes of a gang's Pods demand, told as stories: which nodes it goes to, what it waits for, and what it
holds meanwhile."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.conditions import timestamp
from scenarios.manifests import claiming, storage_class, training_job, volume, volume_claim
from scenarios.stories import ended, nodes, unschedulable
from scenarios.story import Story, plugin_node

Manifest = dict[str, Any]
NAMES = [f"gpu-{number:02d}" for number in range(1, 15)]
FIRST, LAST = NAMES[0], NAMES[-1]
MENDED = "; it holds nothing, and starts as soon as that is mended"


def machines(*names: str) -> list[Manifest]:
    """Nodes of which every second one is in zone a, the others in zone b."""
    found = [manifest for name in names for manifest in plugin_node(name)]
    for number, manifest in enumerate(each for each in found if each["kind"] == "Node"):
        manifest["metadata"]["labels"]["topology.kubernetes.io/zone"] = "ab"[number % 2]
    return found


def job(*claims: str, gpus: int = 8, ephemeral: Manifest | None = None, **spec: Any) -> Manifest:
    return training_job(spec={"gpus": gpus, "template": claiming(*claims, ephemeral=ephemeral), **spec})


def story_of(*manifests: Manifest, nodes: list[str] | None = None) -> Story:
    story = Story(*machines(*(NAMES if nodes is None else nodes)), *manifests)
    story.settle()
    return story


def waits(story: Story) -> tuple[str, str]:
    """Why the job waits, which holds nothing."""
    assert (story.status().placement, story.pods()) == (None, [])
    pending = story.status().pending
    assert pending is not None
    return pending.reason, pending.message


def test_the_one_node_that_has_the_disk_is_taken_first() -> None:
    story = story_of(volume_claim(volume="disk"), volume("disk", hosts=[LAST]), job("data"))
    assert (nodes(story), story.status().attempts) == ([LAST], [])


def test_a_gang_goes_to_the_zone_of_its_volume() -> None:
    story = story_of(volume_claim(volume="disk"), volume("disk", zones=["b"]), job("data", gpus=16))
    assert nodes(story) == ["gpu-02", "gpu-04"]


def test_labels_of_a_volume_say_its_zone_as_well() -> None:
    labels = {"topology.kubernetes.io/zone": "b__c"}
    story = story_of(volume_claim(volume="disk"), volume("disk", labels=labels), job("data"))
    assert nodes(story) == ["gpu-02"]


def test_all_volumes_count_at_once() -> None:
    claims = [volume_claim("one", volume="pv-1"), volume_claim("two", volume="pv-2")]
    volumes = [volume("pv-1", claim="one", zones=["b"]), volume("pv-2", claim="two", hosts=["gpu-01", "gpu-06"])]
    assert nodes(story_of(*claims, *volumes, job("one", "two"))) == ["gpu-06"]


def test_what_the_volumes_leave_out_is_counted_and_the_claim_is_named() -> None:
    story = story_of(volume_claim(volume="disk"), volume("disk", hosts=[LAST]), job("data", gpus=16))
    assert waits(story) == (
        "InsufficientGPUs",
        "needs 16 GPUs; 8 are free on 1 node; 13 nodes excluded: 13 out of reach of its volumes; its volumes: "
        f"PersistentVolumeClaim data (PersistentVolume disk) is only on nodes whose kubernetes.io/hostname is {LAST}",
    )


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([], "PersistentVolumeClaim data is not there: create it in namespace team-b"),
        (
            [volume_claim(), storage_class(waits=False)],
            "PersistentVolumeClaim data is not bound yet, as StorageClass fast has it before any Pod runs by "
            "disk.example.com: kubectl describe pvc data tells what is missing",
        ),
        (
            [volume_claim(), storage_class(waits=False, provisioner="kubernetes.io/no-provisioner")],
            "PersistentVolumeClaim data is not bound yet, as StorageClass fast has it before any Pod runs: kubectl "
            "describe pvc data tells what is missing",
        ),
        (
            [volume_claim(volume="disk", bound=False), storage_class(), volume("disk")],
            "PersistentVolumeClaim data is not bound to PersistentVolume disk yet, as StorageClass fast has it before "
            "any Pod runs: kubectl describe pvc data tells what is missing",
        ),
        (
            [volume_claim()],
            "PersistentVolumeClaim data is not bound, and its StorageClass fast is not there: create that, or name "
            "another one",
        ),
        (
            [volume_claim(storage_class=None)],
            "PersistentVolumeClaim data is not bound, and names no StorageClass: make a PersistentVolume for it, or "
            "create it again with a StorageClass",
        ),
        (
            [volume_claim(), storage_class(provisioner="kubernetes.io/no-provisioner"), volume("other", claim="other")],
            "PersistentVolumeClaim data is not bound, and StorageClass fast has no free PersistentVolume that suits "
            "it: make one, or free one",
        ),
        (
            [volume_claim(volume="disk")],
            "PersistentVolumeClaim data is bound to PersistentVolume disk, which is not there: bring that back, or "
            "create the claim again",
        ),
        (
            [volume_claim(volume="disk", phase="Lost")],
            "PersistentVolumeClaim data has lost its volume disk: bring that back, or create the claim again",
        ),
    ],
)
def test_a_claim_that_cannot_be_used_is_waited_for_by_name_and_nothing_is_held(
    objects: list[Manifest], words: str
) -> None:
    story = story_of(*objects, job("data"))
    assert waits(story) == ("VolumeUnavailable", words + MENDED)
    assert (story.notices[-1].reason, story.written) == ("VolumeUnavailable", ["status Queued"])
    story.add(volume_claim(volume="disk"))
    story.add(volume("disk"))
    story.settle()
    assert nodes(story) == [FIRST]


def test_a_claim_that_is_being_deleted_is_none() -> None:
    claim = volume_claim(volume="disk")
    claim["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    story = story_of(claim, volume("disk"), job("data"))
    words = "PersistentVolumeClaim data is being deleted: create it again once it is gone"
    assert waits(story) == ("VolumeUnavailable", words + MENDED)


def test_a_claim_that_waits_for_its_first_pod_keeps_nobody_waiting() -> None:
    story = story_of(volume_claim(), storage_class(), job("data"))
    assert nodes(story) == [FIRST]


def test_a_class_that_makes_volumes_in_some_zones_has_the_gang_there() -> None:
    story = story_of(volume_claim(), storage_class(zones=["b"]), job("data"))
    assert nodes(story) == ["gpu-02"]


def test_a_claim_that_a_gang_shares_and_that_is_made_in_one_of_two_zones_has_it_in_one() -> None:
    """Of two nodes that are as good each is in another zone."""
    story = story_of(volume_claim(), storage_class(zones=["a", "b"]), job("data", gpus=16))
    assert nodes(story) == ["gpu-01", "gpu-03"]
    # Where none has room for all the volume may be for both: some are.
    story = story_of(volume_claim(), storage_class(zones=["a", "b"]), job("data", gpus=16), nodes=NAMES[:2])
    assert nodes(story) == ["gpu-01", "gpu-02"]


def test_a_gang_that_shares_a_claim_goes_where_one_free_volume_is_for_all_of_it() -> None:
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    disks = [volume("one", claim=None, hosts=["gpu-01"]), volume("two", claim=None, hosts=["gpu-05", "gpu-06"])]
    assert nodes(story_of(volume_claim(), local, *disks, job("data", gpus=16))) == ["gpu-05", "gpu-06"]


def test_a_free_disk_of_the_class_will_do_where_none_is_made() -> None:
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    disks = [
        volume("small", claim=None, hosts=["gpu-02"], size="5Gi"),
        volume("other-class", claim=None, hosts=["gpu-03"], storage_class="slow"),
        volume("other-mode", claim=None, hosts=["gpu-04"], mode="ReadWriteOnce"),
        volume("fits", claim=None, hosts=["gpu-07"]),
        volume("fits-too", claim=None, hosts=["gpu-05"]),
    ]
    assert nodes(story_of(volume_claim(), local, *disks, job("data"))) == ["gpu-05"]
    # One that is meant for the claim is the only one for it.
    disks[3]["spec"]["claimRef"] = {"namespace": "team-b", "name": "data"}
    assert nodes(story_of(volume_claim(), local, *disks, job("data"))) == ["gpu-07"]


def test_a_selector_chooses_among_free_disks() -> None:
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    claim = volume_claim()
    claim["spec"]["selector"] = {
        "matchLabels": {"tier": "nvme"},
        "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}],
    }
    disks = [
        volume("plain", claim=None, hosts=["gpu-02"]),
        volume("old", claim=None, hosts=["gpu-03"], labels={"tier": "nvme", "old": "yes"}),
        volume("nvme", claim=None, hosts=["gpu-09"], labels={"tier": "nvme"}),
    ]
    assert nodes(story_of(claim, local, *disks, job("data"))) == ["gpu-09"]


def test_a_disk_of_each_pod_is_looked_for_on_each_node() -> None:
    local = storage_class("local", provisioner="kubernetes.io/no-provisioner")
    disks = [volume(host, claim=None, hosts=[host], storage_class="local") for host in ("gpu-04", "gpu-11")]
    ephemeral = {"accessModes": ["ReadWriteMany"], "storageClassName": "local"}
    assert nodes(story_of(local, *disks, job(gpus=16, ephemeral=ephemeral))) == ["gpu-04", "gpu-11"]
    assert waits(story_of(job(gpus=16, ephemeral=ephemeral))) == (
        "VolumeUnavailable",
        "the ephemeral volume scratch is not bound, and its StorageClass local is not there: create that, or name "
        "another one" + MENDED,
    )


def test_an_ephemeral_volume_without_a_class_has_the_default_one() -> None:
    default = storage_class("usual", zones=["b"])
    default["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    assert nodes(story_of(default, storage_class(), job(ephemeral={"accessModes": ["ReadWriteOnce"]}))) == ["gpu-02"]


def test_a_volume_that_is_being_made_is_waited_for_without_holding_anything() -> None:
    """It is made whether a Pod waits for it or not."""
    story = story_of(volume_claim(selected_node="gpu-03"), storage_class(), job("data"))
    assert waits(story) == (
        "VolumeUnavailable",
        "PersistentVolumeClaim data waits for its volume, which disk.example.com is to make for node gpu-03: kubectl "
        "describe pvc data tells how far that is" + MENDED,
    )
    story.add(volume_claim(volume="disk"))
    story.add(volume("disk", hosts=["gpu-03"]))
    story.settle()
    assert nodes(story) == ["gpu-03"]


def test_another_job_without_volumes_is_not_kept_waiting() -> None:
    story = story_of(job("data"), training_job("plain", spec={"gpus": 8}))
    assert story.status().placement is None
    assert story.status("plain").state is State.STARTING


def test_a_claim_for_one_pod_is_for_a_gang_of_one_pod() -> None:
    claim = volume_claim(volume="disk", mode="ReadWriteOncePod")
    disk = volume("disk", mode="ReadWriteOncePod")
    assert nodes(story_of(claim, disk, job("data"))) == [FIRST]
    assert waits(story_of(claim, disk, job("data", gpus=16))) == (
        "VolumeUnavailable",
        "PersistentVolumeClaim data is ReadWriteOncePod, which one Pod alone may use, and the gang would have 2 Pods "
        "with it: use a claim of ReadWriteMany, or ask for no more GPUs than one node has free",
    )


def test_a_volume_for_one_node_at_a_time_is_warned_of() -> None:
    claim, disk = volume_claim(volume="disk", mode="ReadWriteOnce"), volume("disk", mode="ReadWriteOnce")
    story = story_of(claim, disk, job("data", gpus=16))
    (degraded,) = (each for each in story.status().conditions if each.type == "Degraded")
    assert (degraded.status, degraded.reason) == ("True", "VolumeOnOneNode")
    assert degraded.message.startswith("PersistentVolumeClaim data is ReadWriteOnce, and its Pods run on 2 nodes: ")
    assert not [each for each in story_of(claim, disk, job("data")).status().conditions if each.type == "Degraded"]


def refuse(story: Story, name: str, words: str) -> None:
    story.change_pod(name, conditions=[unschedulable(words, timestamp(story.now))])


def test_a_volume_that_proves_to_be_elsewhere_moves_the_gang_at_once_and_no_node_is_avoided() -> None:
    """A claim that Pods of two zones share is made for the first: then its zone is known."""
    story = story_of(volume_claim(), storage_class(), job("data", gpus=16))
    assert nodes(story) == ["gpu-01", "gpu-02"]
    refuse(story, "train-a1-worker-00001", "0/14 nodes are available: 1 node(s) didn't find available persistent ...")
    story.add(volume_claim(volume="disk"))
    story.add(volume("disk", zones=["a"]))
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "NodeChanged", False)], ["gpu-01", "gpu-03"])
    assert story.status().attempts[0].message == (
        "node gpu-02 takes no new Pod of the job: its volumes are out of reach there: PersistentVolumeClaim data "
        "(PersistentVolume disk) is only on nodes whose topology.kubernetes.io/zone is a"
    )
    assert story.status().attempts[0].unfit is None


WAITS_FOR_VOLUME = (
    "Pod train-a1-worker-00000 waits until the volume of PersistentVolumeClaim data is made for node gpu-01; kubectl "
    "describe pvc data tells how far that is"
)


def said_of_start(story: Story) -> str | None:
    (running,) = (each for each in story.status().conditions if each.type == "Running")
    return running.message


def test_while_a_volume_is_made_for_one_of_its_pods_the_others_wait_for_two_minutes() -> None:
    story = story_of(volume_claim(), storage_class(), job("data", gpus=16), nodes=NAMES[:2])
    story.add(volume_claim(selected_node="gpu-01"))
    words = "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, 1 node(s) didn't ..."
    refuse(story, "train-a1-worker-00001", words)
    story.pass_time(119)
    story.settle()
    assert (story.status().attempt, nodes(story)) == (1, ["gpu-01", "gpu-02"])
    assert said_of_start(story) == WAITS_FOR_VOLUME
    story.pass_time(1)
    story.settle()
    assert (ended(story), story.status().attempts[0].unfit) == ([(1, "ObjectMissing", False)], None)
    assert waits(story)[0] == "VolumeUnavailable"


def test_a_pod_that_nobody_makes_a_volume_for_holds_gpus_for_two_minutes_and_no_node_is_avoided() -> None:
    """Its scheduler says nothing meanwhile, for ten."""
    story = story_of(volume_claim(), storage_class(), job("data"))
    story.add(volume_claim(selected_node="gpu-01"))
    story.pass_time(119)
    story.settle()
    assert (story.status().attempt, said_of_start(story)) == (1, WAITS_FOR_VOLUME)
    story.pass_time(1)
    story.settle()
    assert (ended(story), story.status().attempts[0].unfit) == ([(1, "ObjectMissing", False)], None)
    assert waits(story)[0] == "VolumeUnavailable"
    story.pass_time(3600)
    story.settle()
    assert (len(ended(story)), waits(story)[0]) == (1, "VolumeUnavailable")
    story.add(volume_claim(volume="disk"))
    story.add(volume("disk"))
    story.settle()
    assert nodes(story) == [FIRST]


def test_a_volume_of_one_pod_alone_would_go_with_it_and_is_waited_for() -> None:
    story = story_of(storage_class(), job(ephemeral={"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}))
    claim = volume_claim("train-a1-worker-00000-scratch", selected_node="gpu-01")
    story.add(claim)
    story.pass_time(300)
    story.settle()
    assert ended(story) == []
    assert "until the volume of PersistentVolumeClaim train-a1-worker-00000-scratch is made" in (
        said_of_start(story) or ""
    )


def test_a_claim_that_goes_while_a_pod_waits_is_waited_for_and_no_node_is_avoided() -> None:
    story = story_of(volume_claim(volume="disk"), volume("disk"), job("data"))
    del story.objects["PersistentVolumeClaim", "team-b", "data"]
    refuse(story, "train-a1-worker-00000", 'persistentvolumeclaim "data" not found')
    story.pass_time(30)
    story.settle()
    assert (ended(story), story.status().attempts[0].unfit) == ([(1, "ObjectMissing", False)], None)
    assert waits(story)[0] == "VolumeUnavailable"
    story.pass_time(600)
    story.settle()
    story.add(volume_claim(volume="disk"))
    story.settle()
    assert nodes(story) == [FIRST]
