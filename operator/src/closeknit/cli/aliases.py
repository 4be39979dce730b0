"""YAML's aliases: a file of a few kilobytes may stand for gigabytes."""

import re

# A value takes about 100 bytes once it is read: 1,000,000 of them 100 MB. Of what people write no file comes near.
MAX_REPEATED = 1_000_000

_ANCHOR = re.compile(r"(?:^|[\s\[{,])&[^\s,\[\]{}]", re.MULTILINE)
_ALIAS = re.compile(r"(?:^|[\s\[{,])\*[^\s,\[\]{}]", re.MULTILINE)


def are_too_many(content: str) -> bool:
    """Whether a YAML text's aliases repeat more than MAX_REPEATED values. Linear, and quick where there are none."""
    if not (_ANCHOR.search(content) and _ALIAS.search(content)):
        return False
    import yaml  # noqa: PLC0415 - hardly any file has aliases

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
                        return True
                case yaml.ScalarEvent():
                    values += 1
                    if event.anchor is not None:
                        sizes[event.anchor] = 1
                case yaml.CollectionStartEvent():
                    begun.append((event.anchor, values))
                    values += 1
                case yaml.CollectionEndEvent():
                    anchor, before = begun.pop()
                    if anchor is not None:
                        sizes[anchor] = values - before
    except yaml.YAMLError:
        pass  # whoever reads it says what is wrong with it
    return False
