"""What one event of a watch costs, told in steps and not in time."""

import json

import pytest

from closeknit.kube import replies


def _fields(count: int) -> dict[str, object]:
    return {".": {}, **{f'k:{{"name":"{number}"}}': {".": {}, "f:value": {}} for number in range(count)}}


def test_the_depth_of_an_object_of_an_api_server_is_told_without_a_look_into_its_strings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Pod that runs has some two hundred brackets, a hundred of them of what its fields' managers have set."""
    containers = [{"name": "trainer", "env": [{"name": f"N{number}", "value": '{["x'} for number in range(16)]}]
    managers = [{"manager": name, "fieldsV1": {"f:spec": {"f:env": _fields(16)}}} for name in ("operator", "kubelet")]
    pod = {"metadata": {"name": "p", "managedFields": managers}, "spec": {"containers": containers}}
    line = json.dumps({"type": "MODIFIED", "object": pod}, separators=(",", ":")).encode()
    assert line.count(b"{") + line.count(b"[") > 100
    scanned: list[bytes] = []
    monkeypatch.setattr(replies, "shallow", lambda document, _: scanned.append(document) or document)
    (event,), error = replies.events_of([line])
    assert error is None and json.loads(event.document) == pod
    assert scanned == []
