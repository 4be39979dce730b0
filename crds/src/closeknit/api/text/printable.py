"""Text of others (names, messages, taints, products, what a container said last) as it may leave in ours.

Without this its author controls the reader's terminal: a new line begins a log line of its own, an escape code moves
the cursor or colours what follows, a bidirectional override reverses the text beside it. It is done where text leaves,
so that nothing has to be remembered where it comes in: in messages of a status, notes of Events, log lines and what
the commands print.
"""

_MARK = "…"


def printable(text: str, most: int | None = None) -> str:
    r"""The text with every character that does not show as itself written as Python does (`\n`, `\x1b`, `\u202e`), and
    of it `most` characters at most, the last of them a mark where some are missing.

    Those are Unicode's control and format characters, surrogates, private and unassigned ones, and all separators but
    the space. Done twice it changes nothing more.
    """
    text = text if most is None else text[: most + 1]  # each has one character at least
    shown = text if text.isprintable() else "".join(map(_shown, text))
    return shown if most is None or len(shown) <= most else f"{shown[: most - 1]}{_MARK}"


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
