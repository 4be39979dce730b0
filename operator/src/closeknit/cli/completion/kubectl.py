"""`kubectl_complete-closeknit`: what kubectl runs to complete `kubectl closeknit ...`.

It gives the words so far as arguments, the last of which may be empty, and reads a word a line. The last line is a
colon and a number: 4 says that files are no answer (cobra's ShellCompDirectiveNoFileComp).
"""

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO

NO_FILES = ":4"


def complete(app: Callable[..., object], program: str, words: Sequence[str]) -> None:
    """Prints what the last word may become."""
    os.environ[f"_{program.upper()}_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join([program, *words])
    os.environ["COMP_CWORD"] = str(max(1, len(words)))
    found = StringIO()
    with suppress(SystemExit), redirect_stdout(found):
        app(prog_name=program)
    print(*filter(None, found.getvalue().splitlines()), NO_FILES, sep="\n")
