"""What is read of a job for people is what the models of the wire have, under their names; hostile objects cost
themselves."""

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.api.objects import TrainingJob
from closeknit.api.wire import Wire
from closeknit.cli.jobs import told_job
from closeknit.cli.jobs.found_jobs import read
from closeknit.cli.jobs.told_job import ToldJob, told_of
from closeknit.cli.jobs.told_pod import ToldPod


def inner(annotation: Any, kind: type) -> type | None:
    if isinstance(annotation, type) and issubclass(annotation, kind):
        return annotation
    return next(filter(None, (inner(each, kind) for each in get_args(annotation))), None)


def compared(told: type[msgspec.Struct], model: type[Wire], seen: set[str]) -> None:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for field in msgspec.structs.fields(told):
        if (told, field.name) == (ToldJob, "unreadable"):
            continue
        assert field.encode_name in fields, f"{told.__name__}.{field.name}"
        below, theirs = inner(field.type, msgspec.Struct), inner(fields[field.encode_name].annotation, Wire)
        if below is not None:
            assert theirs is not None
            compared(below, theirs, seen)
    seen.add(told.__name__)


def test_every_field_is_one_of_the_models() -> None:
    seen: set[str] = set()
    compared(ToldJob, TrainingJob, seen)
    assert seen == {name for name in vars(told_job) if name.startswith("Told")}


def test_a_job_whose_words_are_of_another_shape_has_its_name() -> None:
    job = read(json.dumps({"metadata": {"name": "a", "namespace": "b"}, "status": {"restarts": "two"}}).encode())
    assert (job.key, job.unreadable) == (("b", "a"), "Expected `int | null`, got `str` - at `$.status.restarts`")


def test_of_a_job_that_nobody_has_seen() -> None:
    job = told_of({"metadata": {"name": "a"}, "spec": {"gpus": 2}})
    assert (job.key, job.state, job.reason) == (("default", "a"), "Queued", "NotSeen")


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"phase": "Running"}, ("Running", "")),
        ({"phase": "Succeeded"}, ("Completed", "")),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on\n disk"}, ("Evicted", "low on disk")),
        ({"phase": "Failed"}, ("Error", "")),
        ({}, ("Pending", "")),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]},
            ("Pending", "0/3 nodes"),
        ),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            ("ImagePullBackOff", ""),
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [{"state": {"terminated": {"exitCode": 2}}}]},
            ("Init:ExitCode:2", "exit code 2"),
        ),
        (
            {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            ("OOMKilled", "exit code 137"),
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}, ("Pending", "")),
    ],
)  # fmt: skip
def test_the_status_of_a_pod_is_that_of_kubectl(status: dict[str, Any], told: tuple[str, str]) -> None:
    pod = ToldPod.of_json(json.dumps({"metadata": {"name": "a-a1-worker-00003"}, "status": status}).encode())
    assert ((pod.status, pod.message), pod.child and pod.child.index) == (told, 3)


def test_a_pod_that_is_deleted_and_what_it_was_made_for() -> None:
    body = {
        "metadata": {"name": "p", "deletionTimestamp": "x", "annotations": {"closeknit.dev/gpus": "GPU-a,GPU-b"}},
        "spec": {"nodeName": "n"},
        "status": {"containerStatuses": [{"name": "trainer", "restartCount": 3}]},
    }
    pod = ToldPod.of_json(json.dumps(body).encode())
    assert pod == ToldPod("p", "n", "Terminating", "", 3, ("GPU-a", "GPU-b"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(spec=JSON, status=JSON, pending=JSON)
def test_any_object_with_a_name_is_read(spec: Any, status: Any, pending: Any) -> None:
    for inside in (status, {"pending": pending}, {"placement": pending, "attempts": pending}):
        body = {"metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": inside}
        assert read(json.dumps(body).encode()).key == ("b", "a")
