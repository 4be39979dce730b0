"""What one event of a watch, and one answer to a create, cost, told in steps and not in time."""

import json
from typing import NoReturn

import pytest

from closeknit.kube.http import replies


def _fields(count: int) -> dict[str, object]:
    return {".": {}, **{f'k:{{"name":"{number}"}}': {".": {}, "f:value": {}} for number in range(count)}}


def _unwanted(*_: object) -> NoReturn:
    raise AssertionError("not of every event and answer")


def test_the_depth_of_an_object_of_an_api_server_is_told_without_a_look_into_its_strings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Pod that runs has some two hundred brackets, a hundred of them of what its fields' managers have set."""
    containers = [{"name": "trainer", "env": [{"name": f"N{number}", "value": '{["x'} for number in range(16)]}]
    managers = [{"manager": name, "fieldsV1": {"f:spec": {"f:env": _fields(16)}}} for name in ("operator", "kubelet")]
    pod = {"metadata": {"name": "p", "managedFields": managers}, "spec": {"containers": containers}}
    line = json.dumps({"type": "MODIFIED", "object": pod}, separators=(",", ":")).encode()
    assert line.count(b"{") + line.count(b"[") > 100
    monkeypatch.setattr(replies, "shallow", _unwanted)
    (event,), error = replies.events_of([line])
    assert error is None and json.loads(event.document) == pod


def test_of_what_was_made_no_more_is_decoded_than_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}, "spec": {"containers": [{"name": "trainer"}]}}
    monkeypatch.setattr(replies, "shallow", _unwanted)
    monkeypatch.setattr(replies, "_decode_object", _unwanted)
    made = replies.made_of(json.dumps(pod).encode())
    assert (made.name, made.uid, made.resourceVersion) == ("p", "u", "7")
