"""The models judge the shared table of objects as the API server does (tests/cluster/test_crds.py)."""

import pytest
from pydantic import ValidationError

from closeknit.api.crd.rules import (
    Rules,
    cluster_topology_rules,
    immutable_fields,
    immutable_message,
    training_job_rules,
)
from closeknit.api.objects import ClusterTopology, NodeTopology, TrainingJob
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.api.wire import FieldError, Wire
from harness.crd_cases import CASES, CHANGES, Case

MODELS: dict[str, type[Wire]] = {
    "TrainingJob": TrainingJob,
    "NodeTopology": NodeTopology,
    "ClusterTopology": ClusterTopology,
}


def refusals(case: Case) -> list[tuple[str, str]]:
    """Field and words of each thing that the model finds wrong."""
    body = {name: case.manifest[name] for name in ("metadata", "spec")}
    try:
        MODELS[case.kind].parse_strictly(body)
    except ValidationError as errors:
        found = []
        for error in errors.errors():
            at = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"]).lstrip(".")
            rule = error.get("ctx", {}).get("error")
            if isinstance(rule, FieldError):
                found.append((f"{at}.{rule.field}".lstrip("."), rule.message))
            else:
                found.append((at, error["msg"]))
        return found
    return []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_the_models_agree(case: Case) -> None:
    found = refusals(case)
    assert [field for field, _ in found] == ([case.refused_field] if case.refused_field else [])
    if case.words:
        assert [words for _, words in found] == [case.words]


@pytest.mark.parametrize(
    ("kind", "rules"), [("TrainingJob", training_job_rules()), ("ClusterTopology", cluster_topology_rules())]
)
def test_every_rule_between_fields_has_a_refused_case(kind: str, rules: Rules) -> None:
    about_change = {immutable_message(field) for field in immutable_fields()}
    messages = {rule.message for rules_there in rules.values() for rule in rules_there} - about_change
    assert {case.words for case in CASES if case.kind == kind and case.words} == messages


def test_every_field_of_a_job_has_a_case_of_change() -> None:
    fields = {field.alias or name for name, field in TrainingJobSpec.model_fields.items()}
    assert {change.field for change in CHANGES} == fields
    assert {change.field for change in CHANGES if not change.is_mutable} == set(immutable_fields())
