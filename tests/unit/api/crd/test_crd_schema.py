"""What a model says becomes what an API server reads; what has no safe translation is refused."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from closeknit.api.crd import custom_resource_definitions
from closeknit.api.crd.rules import training_job_rules
from closeknit.api.crd.schema import UnsupportedSchemaError, structural_schema
from closeknit.api.trainingjob import PodTemplate
from closeknit.api.wire import Condition, Label, Timestamp, Wire


class Inner(Wire):
    """Something inside."""

    name: Label
    """Its name."""


class Outer(Wire):
    """One line that goes
    on in the next."""

    count: Annotated[int, Field(ge=1, lt=64)]
    """How many."""
    title: Label | None = None
    """A field called title."""
    inner: Inner = Inner(name="a")
    """The field's own words win over the type's."""
    maybe: Inner | None = None
    """Absent or there."""
    many: Annotated[list[Inner], Field(max_length=4)] = []
    """Several."""
    shares: Annotated[dict[str, Annotated[float, Field(ge=0)]], Field(max_length=8)] = {}
    """By name."""
    conditions: Annotated[list[Condition], Field(max_length=16)] = []
    """What was observed."""
    seen: Timestamp
    """When."""


def test_a_model_becomes_a_structural_schema() -> None:
    schema = structural_schema(Outer)
    conditions = schema["properties"].pop("conditions")
    inner = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"description": "Its name.", "type": "string", "maxLength": 63}},
    }
    assert schema == {
        "description": "One line that goes on in the next.",
        "type": "object",
        "required": ["count", "seen"],
        "properties": {
            "count": {"description": "How many.", "type": "integer", "minimum": 1, "maximum": 63},
            "title": {"description": "A field called title.", "type": "string", "maxLength": 63},
            "inner": {"description": "The field's own words win over the type's.", **inner},
            "maybe": {"description": "Absent or there.", **inner},
            "many": {
                "description": "Several.",
                "type": "array",
                "maxItems": 4,
                "items": {"description": "Something inside.", **inner},
                "x-kubernetes-list-type": "atomic",
            },
            "shares": {
                "description": "By name.",
                "type": "object",
                "maxProperties": 8,
                "additionalProperties": {"type": "number", "minimum": 0},
            },
            "seen": {"description": "When.", "type": "string", "format": "date-time", "maxLength": 32},
        },
    }
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_a_pod_template_leaves_its_spec_undeclared_and_has_no_room_for_a_third_key() -> None:
    schema = structural_schema(PodTemplate)
    assert list(schema["properties"]) == ["metadata"]
    assert sorted(schema["properties"]["metadata"]["properties"]) == ["annotations", "creationTimestamp", "labels"]
    assert schema["required"] == ["spec"]
    assert schema["maxProperties"] == 2
    assert schema["x-kubernetes-preserve-unknown-fields"] is True


class UnboundedString(Wire):
    """A model."""

    name: str
    """Its name."""


class UnboundedList(Wire):
    """A model."""

    names: list[Label]
    """Its names."""


class UnboundedMap(Wire):
    """A model."""

    names: dict[str, Label]
    """Its names."""


class Union(Wire):
    """A model."""

    port: Label | int
    """Name or number."""


class Undocumented(Wire):
    """A model."""

    name: Label


class OpenBound(Wire):
    """A model."""

    share: Annotated[float, Field(gt=0)]
    """Its share."""


class Free(Wire):
    """A model."""

    extra: Annotated[dict[str, Any], Field(max_length=8)]
    """Anything."""


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (UnboundedString, "UnboundedString.name: a string needs a max_length or an enum"),
        (UnboundedList, "UnboundedList.names: no structural schema for "),
        (UnboundedMap, "UnboundedMap.names: no structural schema for "),
        (Union, "Union.port: a union of several types"),
        (Undocumented, "Undocumented.name: a field needs a docstring"),
        (OpenBound, "OpenBound.share: no structural schema for ['exclusiveMinimum']"),
        (Free, "Free.extra: no structural schema for "),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_has_no_translation_is_refused(model: type[Wire], words: str) -> None:
    with pytest.raises(UnsupportedSchemaError) as refusal:
        structural_schema(model)
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize("name", custom_resource_definitions())
def test_every_kind_has_a_status_subresource_and_conditions_that_merge_by_type(name: str) -> None:
    version = custom_resource_definitions()[name]["spec"]["versions"][0]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert version["subresources"] == {"status": {}}
    assert status["properties"]["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_a_booking_is_replaced_as_a_whole() -> None:
    schema = custom_resource_definitions()["trainingjobs.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    placement = schema["properties"]["status"]["properties"]["placement"]
    assert placement["properties"]["nodes"]["x-kubernetes-list-type"] == "atomic"


def test_every_rule_of_a_job_says_what_to_do_and_where() -> None:
    rules = [rule for rules in training_job_rules().values() for rule in rules]
    assert all(rule.field_path and rule.message for rule in rules)
    assert len({rule.rule for rule in rules}) == len(rules)
