"""What became of a text between nvidia-smi and us: colours, browsers, mail, Windows. A line of it stays one line."""

import re

# A terminal's escape sequences; of some, only the escape character itself got lost on the way.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]|\[\d{0,2}(?:;\d{1,3})*m")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff\x00-\x08\x0b\x0c\x0e-\x1f]")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
MAX_LINE_LENGTH = 4096  # 64 GPUs and 64 NICs take some 1,100; what is longer is none of nvidia-smi's
_LINE_ENDS = re.compile(r"\r+\n|\r")


def lines(text: str) -> list[str]:
    """The lines as they were printed; tabs stay, since an empty field shows by them alone. A line
    longer than any that nvidia-smi prints becomes an empty one."""
    plain = _ESCAPES.sub("", text)
    found = _SPACES.sub(" ", _INVISIBLE.sub("", _LINE_ENDS.sub("\n", plain))).split("\n")
    return [line if len(line) <= MAX_LINE_LENGTH else "" for line in found]
