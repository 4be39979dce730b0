"""Facts that one reading lacks for an error, as the reading before has them. Pure."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from closeknit.agent.discovery.readings.readings import Reading

R = TypeVar("R", bound=Reading)


def kept(last: R, new: R, names: Iterable[str], is_silent: bool = False) -> R:
    """`new`, with those of these facts that it lacks for an error as `last` has them; all it lacks, if it is silent."""
    errors: dict[str, str] = getattr(new, "errors", {})
    facts = {
        name: getattr(last, name)
        for name in names
        if getattr(new, name) is None and (is_silent or name in errors) and getattr(last, name) is not None
    }
    return msgspec.structs.replace(new, **facts) if facts else new
