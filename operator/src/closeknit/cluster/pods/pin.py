"""The node of a Pod of ours, as launch writes it: every term of its required affinity names it."""

from closeknit.cluster.objects.meta import WireStruct


class _Field(WireStruct, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(WireStruct, frozen=True):
    match_fields: list[_Field] | None = None


class _Required(WireStruct, frozen=True):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(WireStruct, frozen=True):
    required_during_scheduling_ignored_during_execution: _Required | None = None


class WireAffinity(WireStruct, frozen=True):
    """A Pod's affinity on the wire, as far as a pin is in it."""

    node_affinity: _NodeAffinity | None = None


def pin(affinity: WireAffinity | None) -> str:
    """Name of the node; empty where the affinity leaves the scheduler a choice."""
    nodes = affinity.node_affinity if affinity else None
    required = nodes.required_during_scheduling_ignored_during_execution if nodes else None
    for term in (required.node_selector_terms if required else None) or ():
        for field in term.match_fields or ():
            if (field.key, field.operator) == ("metadata.name", "In") and field.values and len(field.values) == 1:
                return field.values[0]
    return ""
