"""How an answer is written."""

from enum import StrEnum


class AnswerForm(StrEnum):
    """For people a table, with more in it, or for programs."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_for_programs(self) -> bool:
        """Whether it is data."""
        return self in (AnswerForm.JSON, AnswerForm.YAML)
