"""How deeply a JSON document is nested, told from its bytes: a decoder that finds out by itself is too deep already.

What is no JSON counts at least as deep as a decoder gets before it refuses it.
"""

import re
from itertools import accumulate

# An API server takes 10,000 levels (maxNestingDepth of sigs.k8s.io/json, and the same of its CBOR decoder). Decoders
# here give up sooner: msgspec and json at Python's 1,000 frames, pydantic at 200, ryaml at 128. No object needs that:
# the deepest of a running control plane has 15 levels, what it keeps of its fields' managers included.
MAX_DEPTH = 100

_SMALL = 1 << 11  # bytes; anything larger has more than MAX_DEPTH brackets, as a rule, and is not counted first
_PEELS = 16

_QUOTE, _OPENERS = ord('"'), frozenset(b"[{")
_NO_MARKS = bytes(set(range(256)) - set(b'"[]{}'))
_ALIKE = bytes.maketrans(b"{}", b"[]")
_STEPS = bytes.maketrans(b"[]", b"\x01\xff")  # one deeper, one back, as signed bytes
_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]+|[\]}]+', re.DOTALL)


def depth(document: bytes) -> int:
    """Lists and objects inside each other; 0 of a scalar. Linear, 0.2 to 0.5 GB/s on an API server's answers."""
    return _depth(_brackets(document), 0)


def is_deeper(document: bytes, levels: int = MAX_DEPTH) -> bool:
    """Whether the document is nested deeper than so many levels."""
    if len(document) <= _SMALL and document.count(b"[") + document.count(b"{") <= levels:
        return False
    return _depth(_brackets(document), levels) > levels


def is_surely_shallow(document: bytes, levels: int = MAX_DEPTH) -> bool:
    """Whether a JSON document that a decoder has read is nested no deeper than so many levels, told at a fifth of what
    `is_deeper` costs; False: it may be.

    What is open at some place is opened before it and closed after it. So in either half no place is deeper than its
    own side of the document has brackets, those in strings counted in vain and empty pairs as one for all.
    """
    half = len(document) // 2
    return (
        _filled(document, b"{", b"[", 0, half) < levels and _filled(document, b"}", b"]", half, len(document)) < levels
    )


def _filled(document: bytes, brace: bytes, bracket: bytes, begin: int, end: int) -> int:
    """Braces and brackets of one side, but for those of pairs with nothing inside."""
    return (
        document.count(brace, begin, end)
        + document.count(bracket, begin, end)
        - document.count(b"{}", begin, end)
        - document.count(b"[]", begin, end)
    )


def _brackets(document: bytes) -> bytes:
    """All that opens or closes a list or an object, as if it were a list."""
    text = document
    if b"\\" in text:  # pairs first, so that what is left of a run escapes what follows it
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side open and close a string, or close and open one: without them nothing changes sides.
    marks = text.translate(_ALIKE, _NO_MARKS).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2]) if b'"' in marks else marks


def _depth(brackets: bytes, enough: int) -> int:
    """How deep it gets; or a number up to `enough`, where it gets no deeper than that."""
    # Each turn takes the innermost level away, most of the brackets first; what is left of odd ones is counted.
    peeled = 0
    while peeled + brackets.count(b"[") > enough:
        fewer = brackets.replace(b"[]", b"") if peeled < _PEELS else brackets
        if len(fewer) == len(brackets):
            return peeled + max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"), initial=0))
        brackets = fewer
        peeled += 1
    return peeled


def shallow(document: bytes, levels: int = MAX_DEPTH) -> bytes:
    """The document with every list and object below `levels` emptied; those stay to be seen, as one level more."""
    if not is_deeper(document, levels):
        return document
    kept: list[bytes] = []
    begin = level = 0
    for mark in _MARKS.finditer(document):
        at, end = mark.span()
        first = document[at]
        if first == _QUOTE:
            continue
        if first in _OPENERS:
            if level <= levels < level + end - at:
                kept.append(document[begin : at + levels + 1 - level])
            level += end - at
        else:
            if level - (end - at) <= levels < level:
                begin = at + level - levels - 1
            level -= end - at
    if level <= levels:
        kept.append(document[begin:])
    return b"".join(kept)
