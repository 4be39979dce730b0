"""What a YAML file may ask of its reader: a few kilobytes of aliases stand for gigabytes, of brackets for hours."""

import re

from closeknit.api.text.nesting import MAX_DEPTH, depth

# A value takes about 100 bytes once it is read: 1,000,000 of them 100 MB. Of what people write no file comes near.
MAX_REPEATED = 1_000_000
TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels"
MAX_FILE_DEPTH = MAX_DEPTH + 2  # a List of objects around each

_ANCHOR = re.compile(r"(?:^|[\s\[{,])&[^\s,\[\]{}]", re.MULTILINE)
_ALIAS = re.compile(r"(?:^|[\s\[{,])\*[^\s,\[\]{}]", re.MULTILINE)


def too_much(content: str) -> str | None:
    """Why a YAML text is not read, None where it may be. Linear, and quick where nothing looks like it."""
    if not (_may_repeat(content) or _may_be_deep(content.encode())):
        return None
    import yaml  # noqa: PLC0415 - hardly any file needs it

    sizes: dict[str, int] = {}  # values below each anchor, with what its own aliases repeat
    begun: list[tuple[str | None, int]] = []  # anchors of the lists and mappings around, and the count at their begin
    values = repeated = 0
    try:
        for event in yaml.parse(content, Loader=yaml.CSafeLoader):
            match event:
                case yaml.AliasEvent():
                    again = sizes.get(str(event.anchor), 1)
                    values += again
                    repeated += again
                    if repeated > MAX_REPEATED:
                        return f"repeats more than {MAX_REPEATED:,} values by YAML aliases"
                case yaml.ScalarEvent():
                    values += 1
                    if event.anchor is not None:
                        sizes[event.anchor] = 1
                case yaml.CollectionStartEvent():
                    begun.append((event.anchor, values))
                    values += 1
                    if len(begun) > MAX_FILE_DEPTH:
                        return TOO_DEEP
                case yaml.CollectionEndEvent():
                    anchor, before = begun.pop()
                    if anchor is not None:
                        sizes[anchor] = values - before
    except yaml.YAMLError:
        pass  # its reader says what is wrong with it
    return None


def _may_repeat(content: str) -> bool:
    return bool(_ANCHOR.search(content) and _ALIAS.search(content))


def _may_be_deep(content: bytes) -> bool:
    """By brackets, in strings or not: indentation costs its reader little, and has an end of its own."""
    return depth(content) > MAX_FILE_DEPTH or depth(content.replace(b'"', b"")) > MAX_FILE_DEPTH
