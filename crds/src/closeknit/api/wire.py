"""What every wire type shares: camelCase on the wire, snake_case in code, frozen values, bounded strings.

Objects read from a cluster are parsed with `parse`, which ignores unknown fields (a newer CRD must not crash an older
program); files that a person wrote are parsed with `parse_strictly`, which refuses them.
"""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic_core import to_json

# An API server bounds object names at 253 characters and label values at 63 (RFC 1123 subdomain and label).
Name = Annotated[str, StringConstraints(max_length=253)]
Label = Annotated[str, StringConstraints(max_length=63)]
Message = Annotated[str, StringConstraints(max_length=4096)]
Uuid = Annotated[str, StringConstraints(max_length=96)]
PciAddress = Annotated[str, StringConstraints(max_length=16, pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
# RFC 3339 in UTC with whole seconds, as Kubernetes writes metav1.Time.
Timestamp = Annotated[str, StringConstraints(max_length=32), Field(json_schema_extra={"format": "date-time"})]


class FieldError(ValueError):
    """A rule between fields that does not hold; `field` is the path below the validated value, as on the wire."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class Wire(BaseModel):
    """A frozen value of the wire; field docstrings are what `kubectl explain` prints."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        alias_generator=to_camel,
        serialize_by_alias=True,
    )

    @classmethod
    def parse(cls, value: Any) -> Self:
        """The value of an object read from a cluster; unknown fields are ignored. Raises pydantic.ValidationError."""
        return cls.model_validate(value, extra="ignore")

    @classmethod
    def parse_strictly(cls, value: Any) -> Self:
        """The value of an object that a person wrote; unknown fields raise pydantic.ValidationError, too.

        Types are as strict as the API server's (`gpus: "8"` is refused), which is what pydantic calls strict JSON.
        """
        return cls.model_validate_json(to_json(value), extra="forbid", strict=True)

    def wire(self) -> dict[str, Any]:
        """The JSON object: camelCase, absent facts left out, in field order."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Condition(Wire):
    """One observation about an object, in the form of metav1.Condition."""

    type: Annotated[str, StringConstraints(max_length=316)]
    """Type of the condition, in CamelCase."""
    status: Annotated[str, StringConstraints(max_length=7, pattern="^(True|False|Unknown)$")]
    """True, False or Unknown."""
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """One CamelCase word that says why the condition has this status."""
    message: Annotated[str, StringConstraints(max_length=32768)] = ""
    """One sentence for a person."""
    last_transition_time: Timestamp
    """When the status last changed; it does not move when only the message does."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The metadata.generation that this condition speaks of."""
