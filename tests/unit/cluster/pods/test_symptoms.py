"""Words of others as they are really said, decoded."""

import pytest

from closeknit.cluster.pods.pod import ContainerState
from closeknit.cluster.pods.symptoms import SCHEDULER_WORDS, Symptom, of_scheduler, of_waiting

PREEMPTION = "preemption: 0/8 nodes are available: 8 Preemption is not helpful for scheduling."
OTHERS = "7 node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("message", "symptom", "name"),
    [
        (f"0/8 nodes are available: 1 Insufficient nvidia.com/gpu, {OTHERS}. {PREEMPTION}", Symptom.GPUS_TAKEN, ""),
        (f"0/8 nodes are available: 1 Insufficient cpu, {OTHERS}. {PREEMPTION}", Symptom.NODE_FULL, "cpu"),
        ("0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu.", Symptom.GPUS_TAKEN, ""),
        (
            "0/8 nodes are available: 1 cannot allocate all claims, 7 node(s) didn't satisfy plugin(s) [NodeAffinity]. "
            "no new claims to deallocate, preemption: 0/8 nodes are available: 8 Preemption is not helpful.",
            Symptom.CLAIMS_NOT_ALLOCATED,
            "",
        ),
        (
            f'0/8 nodes are available: persistentvolumeclaim "data" not found. {PREEMPTION}',
            Symptom.VOLUME_CLAIM_NOT_THERE,
            "data",
        ),
        (
            f"0/8 nodes are available: pod has unbound immediate PersistentVolumeClaims. {PREEMPTION}",
            Symptom.VOLUME_CLAIM_NOT_BOUND,
            "",
        ),
        (
            f"0/8 nodes are available: 1 node(s) had volume node affinity conflict, {OTHERS}. {PREEMPTION}",
            Symptom.VOLUME_ELSEWHERE,
            "",
        ),
        (
            "0/8 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity",
            Symptom.VOLUME_ELSEWHERE,
            "",
        ),
        ("0/8 nodes are available: 1 node(s) had untolerated taint {a: b}, 7 x.", Symptom.NODE_CLOSED, ""),
        ("0/8 nodes are available: 1 node(s) had untolerated taint(s), 7 x.", Symptom.NODE_CLOSED, ""),
        ("0/8 nodes are available: 1 node(s) were unschedulable.", Symptom.NODE_CLOSED, ""),
        (f"0/8 nodes are available: 1 Too many pods, {OTHERS}.", Symptom.NODE_FULL, ""),
        ("0/8 nodes are available: 1 node(s) didn't match pod anti-affinity rules.", Symptom.NEIGHBOURS, ""),
        (
            "0/8 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label).",
            Symptom.NEIGHBOURS,
            "",
        ),
        (
            f"0/8 nodes are available: 8 node(s) didn't match Pod's node affinity/selector. {PREEMPTION}",
            Symptom.NODE_NOT_SELECTED,
            "",
        ),
        ("request gpus: device class gpu.nvidia.com does not exist", Symptom.DEVICE_CLASS_NOT_THERE, "gpu.nvidia.com"),
        (
            'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded',
            Symptom.VOLUME_ELSEWHERE,
            "",
        ),
        ("all nodes are unavailable: 3 resource fit failed", Symptom.NOT_SCHEDULED, ""),
        ("", Symptom.NOT_SCHEDULED, ""),
    ],
)
def test_what_a_scheduler_says(message: str, symptom: Symptom, name: str) -> None:
    said = of_scheduler(message)
    assert (said.symptom, said.name, said.words) == (symptom, name, message)


@pytest.mark.parametrize(
    ("reason", "message", "symptom"),
    [
        ("", "", Symptom.SILENT),
        ("ContainerCreating", "", Symptom.SILENT),
        ("PodInitializing", "", Symptom.SILENT),
        ("ErrImagePull", "failed to pull nvcr.io/nvidia-container-toolkit:1", Symptom.IMAGE_NOT_THERE),
        ("ImagePullBackOff", "Back-off pulling image", Symptom.IMAGE_NOT_THERE),
        ("ErrImageNeverPull", "", Symptom.IMAGE_NOT_THERE),
        ("CreateContainerConfigError", 'configmap "settings" not found', Symptom.SETTING_NOT_THERE),
        ("CreateContainerError", "context deadline exceeded", Symptom.HELD_UP),
        ("CrashLoopBackOff", "back-off 10s restarting failed container", Symptom.HELD_UP),
    ],
)
def test_what_a_kubelet_says_of_a_container_that_waits(reason: str, message: str, symptom: Symptom) -> None:
    assert of_waiting(ContainerState("trainer", reason=reason, message=message, waiting=True)) is symptom


def test_an_afterthought_of_preemption_is_not_taken_for_the_cause() -> None:
    said = of_scheduler(
        "0/2 nodes are available: 1 Too many pods. preemption: 0/2 nodes are available: 1 Insufficient nvidia.com/gpu."
    )
    assert said.symptom is Symptom.NODE_FULL


@pytest.mark.parametrize(("words", "symptom"), SCHEDULER_WORDS)
def test_all_words_of_the_page_are_known(words: str, symptom: Symptom) -> None:
    assert of_scheduler(f"0/1 nodes are available: 1 {words.replace('<name>', 'x')}.").symptom is symptom


def test_words_of_a_million_characters_cost_no_more_than_their_beginning() -> None:
    assert of_scheduler("Too many pods " + 'persistentvolumeclaim "' * 100_000).symptom is Symptom.NODE_FULL
