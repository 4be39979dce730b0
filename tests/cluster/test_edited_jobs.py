"""Specs that are edited: until a job is booked that mends a mistake, from then on the API server refuses it."""

import time
from typing import Any

from closeknit.api.crd.rules import immutable_message
from harness.operator_bed import ON_PLUGIN, Bed


def template(image: str | None) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer"} | ({} if image is None else {"image": image})]}}


def refusal(bed: Bed, name: str = "train", **spec: Any) -> str:
    """Why an edit is refused; empty where it is stored."""
    return bed.cluster.writer.patch("trainingjob", name, {"spec": spec}, bed.namespace).refusal


def test_a_mistake_is_mended_by_an_edit_until_the_job_is_booked(bed: Bed) -> None:
    bed.submit(gpus=64)
    assert "needs 64 GPUs" in bed.wait_for_reason("InsufficientGPUs")["message"]
    assert refusal(bed, gpus=16, topology={"fabric": {"required": "orbit"}}) == ""
    assert "needs level orbit" in bed.wait_for_reason("UnknownLevel")["message"]
    assert refusal(bed, **ON_PLUGIN, topology=None) == ""
    status = bed.wait_for_state("Running")
    assert (status["observedGeneration"], len(bed.names("pods"))) == (3, 2)
    fixed = f"spec.gpus: Forbidden: {immutable_message('gpus')}"
    assert fixed in refusal(bed, gpus=8)
    assert refusal(bed, suspend=True) == ""
    assert "placement" not in bed.wait_for_state("Suspended")
    assert fixed in refusal(bed, gpus=8)


def test_a_template_that_only_the_api_server_refuses_is_mended_by_an_edit(bed: Bed) -> None:
    """As the message says; the booking that was taken back fixes nothing."""
    bed.submit(**ON_PLUGIN, template=template(image=None))
    message = bed.wait_for_reason("TemplateInvalid")["message"]
    assert "spec.containers[0].image: Required value; change spec.template" in message
    assert refusal(bed, template=template("registry.example/train:2")) == ""
    status = bed.wait_for_state("Running")
    assert (status["attempt"], status["observedGeneration"]) == (1, 2)
    assert {pod["spec"]["containers"][0]["image"] for pod in bed.all("pods")} == {"registry.example/train:2"}


def test_a_booking_and_an_edit_at_once_never_mix_two_specs(bed: Bed, record_property: Any) -> None:
    """Whichever comes first: what runs is what is stored."""
    edited = 0
    for number in range(8):
        name = f"race-{number}"
        bed.submit(name, gpus=8, gpu=ON_PLUGIN["gpu"], template=template("registry.example/train:1"))
        time.sleep(0.03 * number)
        was_edited = refusal(bed, name, gpus=16, template=template("registry.example/train:2")) == ""
        status = bed.wait_for_state("Running", name)
        spec, pods = bed.job(name)["spec"], bed.all("pods")
        assert spec["gpus"] == (16 if was_edited else 8)
        assert sum(len(node["gpus"]) for node in status["placement"]["nodes"]) == spec["gpus"]
        image = spec["template"]["spec"]["containers"][0]["image"]
        assert [pod["spec"]["containers"][0]["image"] for pod in pods] == [image] * status["placement"]["nodeCount"]
        assert refusal(bed, name, suspend=True) == ""
        bed.cluster.wait_for(lambda: not bed.names("pods"), "its Pods to be gone")
        edited += was_edited
    record_property("measured", f"{edited} of 8 edits came before the booking")
