"""The API server's own opinion of our CRDs: what it accepts and refuses, and in which words."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from closeknit.api.crd.rules import immutable_message
from harness.api_writer import Answer
from harness.crd_cases import CASES, CHANGES, FULL_JOB, POD, TEMPLATE, Case, Change, manifest
from harness.kubectl import KubectlError
from harness.local_cluster import LocalCluster

NAMESPACE = "crds"


@pytest.fixture(scope="module", autouse=True)
def namespace_of_jobs(crds: LocalCluster) -> Iterator[None]:
    """The few jobs that are stored have a namespace of their own."""
    crds.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield
    crds.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def refusal(crds: LocalCluster, *arguments: str, body: Mapping[str, Any] | None = None) -> str:
    """What kubectl says on the error stream; empty where the API server accepts. Nothing is stored."""
    try:
        stdin = None if body is None else json.dumps(body)
        crds.kubectl(*arguments, f"--namespace={NAMESPACE}", "--dry-run=server", stdin=stdin)
    except KubectlError as error:
        return error.stderr.strip()
    return ""


# To Kubernetes 1.35 the type of the value stands before the words of a rule.
_TYPE = re.compile(r'Invalid value: "(object|array|string|integer|number|boolean)": ')


def problems(said: Answer) -> list[str]:
    """What the API server lists as wrong with an object; where it does not list anything, its words.

    Where a schema refuses, it adds that it did not get to the rules.
    """
    causes = list(dict.fromkeys(said.causes)) or ([said.refusal] if said.refusal else [])
    return [cause for cause in causes if not cause.startswith("<nil>: ")]


BARE_JOB = {"gpus": 8, "template": TEMPLATE}
ENDED = {"number": 1, "reason": "Suspended", "charged": False, "ended": "2026-11-25T10:00:00Z"}
# What the operator has said of a job: nothing, that it waits and why, where it is, and that it was somewhere before.
NEW: dict[str, Any] = {}
WAITING = {"attempt": 1, "attempts": [], "epoch": 3, "state": "Queued", "observedGeneration": 1}
BOOKED = WAITING | {"placement": {"nodeCount": 0, "nodes": []}}
ONCE_BOOKED = WAITING | {"attempt": 2, "attempts": [ENDED], "state": "Suspended"}


def stored(crds: LocalCluster, name: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The name of a job that is stored, in the place of what a first try has stored."""
    crds.writer.delete("trainingjob", name, NAMESPACE)
    assert crds.writer.create(manifest("TrainingJob", name, spec), NAMESPACE).refusal == ""
    if status:
        said = crds.writer.patch("trainingjob", name, {"status": status}, NAMESPACE, subresource="status")
        assert said.refusal == ""
    return name


@pytest.fixture(scope="module", params=[("full", BOOKED), ("full-once", ONCE_BOOKED)], ids=["booked", "once booked"])
def full_job(crds: LocalCluster, request: pytest.FixtureRequest) -> str:
    """The name of a job with every field set that holds GPUs, or held some."""
    name, status = request.param
    return stored(crds, name, FULL_JOB, status)


@pytest.fixture(scope="module")
def bare_job(crds: LocalCluster) -> str:
    """The name of one that holds GPUs, with nothing but what is required."""
    return stored(crds, "bare", BARE_JOB, BOOKED)


@pytest.fixture(scope="module", params=[("new", NEW), ("waiting", WAITING)], ids=["new", "waiting"])
def unbooked_jobs(crds: LocalCluster, request: pytest.FixtureRequest) -> tuple[str, str]:
    """The names of a full and a bare job for which nothing was booked yet."""
    name, status = request.param
    return stored(crds, f"full-{name}", FULL_JOB, status), stored(crds, f"bare-{name}", BARE_JOB, status)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_the_api_server_agrees(crds: LocalCluster, case: Case) -> None:
    said = crds.writer.create(case.manifest, NAMESPACE, dry_run=True)
    if not case.refused_field:
        assert said.refusal == ""
        return
    if case.schema_words:
        assert problems(said) == [f"{case.refused_field}: {case.schema_words}"]
        return
    rules = [_TYPE.sub("Invalid value: ", each) for each in problems(said)]
    assert rules == [f"{case.refused_field}: Invalid value: {case.words}"]


@pytest.mark.parametrize(
    "change", [change for change in CHANGES if not change.is_mutable], ids=lambda change: change.field
)
def test_an_immutable_field_can_be_neither_changed_nor_removed_nor_added(
    crds: LocalCluster, full_job: str, bare_job: str, change: Change
) -> None:
    forbidden = f"spec.{change.field}: Forbidden: {immutable_message(change.field)}"
    assert patched(crds, full_job, {change.field: change.other}) == [forbidden]
    if change.field in ("gpus", "template"):  # required
        return
    assert patched(crds, full_job, {change.field: None}) == [forbidden]
    added = patched(crds, bare_job, {change.field: FULL_JOB[change.field]})
    assert forbidden in added  # a value made for 64 GPUs may break a rule on 8, too


@pytest.mark.parametrize("change", [change for change in CHANGES if change.is_mutable], ids=lambda change: change.field)
def test_a_mutable_field_can_be_changed_removed_and_added(
    crds: LocalCluster, full_job: str, bare_job: str, change: Change
) -> None:
    assert patched(crds, full_job, {change.field: change.other}) == []
    assert patched(crds, full_job, {change.field: None}) == []
    value = {"minGPUs": 4} if change.field == "elastic" else change.other
    assert patched(crds, bare_job, {change.field: value}) == []


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.field)
def test_until_a_job_is_booked_every_field_can_be_changed_removed_and_added(
    crds: LocalCluster, unbooked_jobs: tuple[str, str], change: Change
) -> None:
    full, bare = unbooked_jobs
    assert patched(crds, full, {change.field: change.other}) == []
    if change.field in ("gpus", "template"):  # required
        return
    assert patched(crds, full, {change.field: None}) == []
    added = patched(crds, bare, {change.field: FULL_JOB[change.field]})
    assert not [words for words in added if "Forbidden" in words]  # but a value made for 64 GPUs may break a rule on 8


def test_who_writes_the_spec_cannot_take_the_booking_back(crds: LocalCluster, full_job: str) -> None:
    whole = crds.get("trainingjob", full_job, NAMESPACE)
    replaced = whole | {"spec": whole["spec"] | {"gpus": 128}, "status": {}}
    path = f"/apis/closeknit.dev/v1alpha1/namespaces/{NAMESPACE}/trainingjobs/{full_job}"
    assert problems(crds.writer.send("PUT", path, replaced)) == [f"spec.gpus: Forbidden: {immutable_message('gpus')}"]


@pytest.mark.parametrize(("version", "is_kept"), [("2.28.9", True), ("2.28", False), ("2.28.9.1", False), ("", False)])
def test_the_status_has_room_for_a_version_of_nccl_and_for_nothing_else(
    crds: LocalCluster, bare_job: str, version: str, is_kept: bool
) -> None:
    body = {"status": {"environment": {"ncclVersion": version}}}
    said = crds.writer.patch("trainingjob", bare_job, body, NAMESPACE, subresource="status")
    if is_kept:
        assert said.refusal == ""
        assert crds.get("trainingjob", bare_job, NAMESPACE)["status"]["environment"]["ncclVersion"] == version
        return
    assert [each.partition(":")[0] for each in problems(said)] == ["status.environment.ncclVersion"]


def test_kubectl_says_what_cannot_be_changed(crds: LocalCluster, bare_job: str) -> None:
    said = refusal(crds, "patch", "trainingjob", bare_job, "--type=merge", '--patch={"spec":{"gpus":32}}')
    assert said == f'The TrainingJob "bare" is invalid: spec.gpus: Forbidden: {immutable_message("gpus")}'


def patched(crds: LocalCluster, name: str, spec: Mapping[str, Any]) -> list[str]:
    """What is wrong with a change of these fields; nothing is stored."""
    return problems(crds.writer.patch("trainingjob", name, {"spec": spec}, NAMESPACE, dry_run=True))


METADATA = {"labels": {"team": "a"}}
SWAPS = {
    "metadata for an unknown key": ({"metadata": METADATA, "spec": POD}, {"foo": METADATA, "spec": POD}),
    "metadata for nothing": ({"metadata": METADATA, "spec": POD}, {"spec": POD}),
    "nothing for metadata": ({"spec": POD}, {"metadata": METADATA, "spec": POD}),
    "nothing for an unknown key": ({"spec": POD}, {"foo": METADATA, "spec": POD}),
    "labels for annotations": (
        {"metadata": METADATA, "spec": POD},
        {"metadata": {"annotations": {"team": "a"}}, "spec": POD},
    ),
    "a label for nothing": (
        {"metadata": {"creationTimestamp": None}, "spec": POD},
        {"metadata": METADATA, "spec": POD},
    ),
    "a label for another": ({"metadata": METADATA, "spec": POD}, {"metadata": {"labels": {"crew": "a"}}, "spec": POD}),
    "a field of the Pod for another": (
        {"spec": POD | {"restartPolicy": "Never"}},
        {"spec": POD | {"hostNetwork": True}},
    ),
    "the whole spec": ({"spec": POD}, {"spec": {"hostNetwork": True}}),
    "a key of a container for another": (
        {"spec": {"containers": [{"name": "trainer", "image": "a"}]}},
        {"spec": {"containers": [{"name": "trainer", "command": "a"}]}},
    ),
    "one container for two": ({"spec": POD}, {"spec": {"containers": [*POD["containers"], {"name": "side"}]}}),
    "a value deep inside": (
        {"spec": {"volumes": [{"projected": {"sources": [{"configMap": {"name": "a"}}]}}]}},
        {"spec": {"volumes": [{"projected": {"sources": [{"configMap": {"name": "b"}}]}}]}},
    ),
    "the order of containers": (
        {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
        {"spec": {"containers": [{"name": "b"}, {"name": "a"}]}},
    ),
}


@pytest.mark.parametrize("of", ["template", "parameterServers.template"])
@pytest.mark.parametrize("swap", SWAPS)
def test_a_template_cannot_be_changed_in_any_way(crds: LocalCluster, swap: str, of: str) -> None:
    """CEL sees neither spec nor unknown keys; only the shape of the schema makes == compare them (crd/schema.py)."""
    before, after = SWAPS[swap]
    field = of.split(".", maxsplit=1)[0]
    name = f"swap-{list(SWAPS).index(swap)}-{field.lower()}"[:40]
    specs = [
        {"gpus": 1, "template": template if field == "template" else TEMPLATE}
        | ({} if field == "template" else {"parameterServers": {"replicas": 1, "template": template}})
        for template in (before, after)
    ]
    stored(crds, name, specs[0], BOOKED)

    def replaced(spec: Mapping[str, Any]) -> list[str]:
        whole = [{"op": "replace", "path": "/spec", "value": spec}]
        return problems(crds.writer.patch("trainingjob", name, whole, NAMESPACE, dry_run=True))

    assert replaced(specs[0]) == []
    assert replaced(specs[1]) == [f"spec.{field}: Forbidden: {immutable_message(field)}"]


def test_a_template_has_no_room_for_a_third_key(crds: LocalCluster) -> None:
    template = {"metadata": METADATA, "spec": POD, "foo": {}}
    body = manifest("TrainingJob", "train", {"gpus": 1, "template": template})
    said = crds.writer.create(body, NAMESPACE, dry_run=True)
    assert problems(said) == ["spec.template: Too many: 3: must have at most 2 items"]


def test_a_misspelt_field_is_refused(crds: LocalCluster) -> None:
    spec = {"gpus": 8, "gpu": {"prodcts": ["NVIDIA-H200"]}, "template": TEMPLATE}
    said = refusal(crds, "create", "--filename=-", body=manifest("TrainingJob", "train", spec))
    assert said.endswith('strict decoding error: unknown field "spec.gpu.prodcts"')
