"""A template comes out as it went in, whatever JSON it is, and equal ones are equal however they were written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.api.trainingjob import PackedTemplate, PodTemplate, TrainingJobSpec
from closeknit.cluster.booking.job import job_from_json
from scenarios.manifests import training_job

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None))
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
LABELS = st.dictionaries(st.text(max_size=5), st.text(max_size=63), max_size=3)


@given(st.dictionaries(st.text(), JSON, max_size=5), LABELS)
def test_a_template_comes_out_as_it_went_in(spec: dict[str, Any], labels: dict[str, str]) -> None:
    template = PodTemplate.parse({"metadata": {"labels": labels}, "spec": spec})
    assert PackedTemplate.of(template).read() == template


def test_equal_templates_are_equal_in_whatever_order_they_were_written() -> None:
    one, other = (
        {"containers": [{"name": "a", "image": "x"}], "volumes": []},
        {"volumes": [], "containers": [{"image": "x", "name": "a"}]},
    )
    assert packed(one) == packed(other)
    assert hash(packed(one)) == hash(packed(other))
    assert packed(one) != packed({**one, "volumes": [{"name": "v"}]})


def packed(spec: dict[str, Any]) -> PackedTemplate:
    return PackedTemplate.of(PodTemplate.parse({"spec": spec}))


def test_a_fact_is_found_once() -> None:
    template, asked = packed({"containers": [{"name": "a"}]}), []

    def names(of: PodTemplate) -> tuple[str, ...]:
        asked.append(of)
        return tuple(each["name"] for each in of.spec["containers"])

    assert (template.once(names), template.once(names), len(asked)) == (("a",), ("a",), 1)


def test_a_spec_is_written_as_it_was_read() -> None:
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {}}, "spec": {"containers": [], "hostPID": None}}
    spec = {"gpus": 2, "parameterServers": {"replicas": 1, "template": template}, "template": template}
    read = TrainingJobSpec.parse_strictly(spec)
    assert read.wire()["template"] == read.wire()["parameterServers"]["template"] == template
    assert TrainingJobSpec.parse_strictly(read.wire()) == read


def document(**changes: Any) -> bytes:
    manifest = training_job(**changes)
    return json.dumps(manifest).encode()


@pytest.mark.parametrize("status", [{}, {"state": "Queued"}], ids=["the same", "another status"])
def test_a_job_that_is_read_again_has_the_very_same_template(status: dict[str, Any]) -> None:
    before = job_from_json(document())
    again = job_from_json(document(**status))
    other = job_from_json(json.dumps(training_job("other"), indent=1).encode())
    assert before.spec.template is again.spec.template is other.spec.template  # type: ignore[union-attr]
