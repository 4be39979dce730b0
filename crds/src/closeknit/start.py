"""How the programs of this distribution start: at once, without a word where somebody interrupts them, and with the
name of the extra that an installation lacks. Nothing but the standard library is needed until then."""

import _signal  # type: ignore[import-not-found] # signal itself, less its enums: for 10 ms more Ctrl-C would be told
import gc
import os
import sys

INTERRUPTED = 130  # what a shell says of a program that Ctrl-C has ended: 128, and the number of the signal
CANNOT_BEGIN = 2
# Importing makes some 100,000 objects that all stay, and a plan on a small cluster as many again. Python looks through
# them after each 700; even one look is a tenth of what `closeknit plan` takes.
GARBAGE_AFTER_OBJECTS = 500_000


def command() -> None:
    """`closeknit`, and `kubectl closeknit`. Ctrl-C ends it at any time, without a word."""
    _end_when_interrupted()
    gc.set_threshold(GARBAGE_AFTER_OBJECTS)
    try:
        sys.exit(_run("closeknit", "cli", "closeknit.cli.main"))
    finally:
        gc.freeze()  # else the interpreter looks through all of it once more before it ends, for 80 ms


def completion() -> None:
    """`kubectl_complete-closeknit`, by which kubectl completes the words of `kubectl closeknit`."""
    _end_when_interrupted()
    gc.set_threshold(GARBAGE_AFTER_OBJECTS)
    sys.exit(_run("closeknit", "cli", "closeknit.cli.main", "complete_for_kubectl"))


def operator() -> None:
    """`closeknit-operator`, which ends in its own way once it runs."""
    _end_when_interrupted()
    _end_when_terminated()
    sys.exit(_run("closeknit-operator", "operator", "closeknit.controller.main"))


def agent() -> None:
    """`closeknit-agent`."""
    _end_when_interrupted()
    _end_when_terminated()
    sys.exit(_run("closeknit-agent", "agent", "closeknit.agent.main"))


def sidecar() -> None:
    """`closeknit-sidecar`, which needs the standard library alone and is to start soon."""
    from closeknit.sidecar.main import main  # noqa: PLC0415 - only here

    sys.exit(main())


def _end_when_interrupted() -> None:
    """Python's own way, an exception, leaves a traceback wherever nothing expects it: in an import, say."""
    _signal.signal(_signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


def _end_when_terminated() -> None:
    """Until it runs there is nothing to end in order. The kernel drops a signal that the first process of a container
    does not handle: a Pod that is deleted while this imports would wait for its grace period, 30 s."""
    _signal.signal(_signal.SIGTERM, lambda *_: os._exit(0))


def _run(program: str, extra: str, module: str, function: str = "main") -> int | None:
    """What that function of the module gives. Commands import what they need as late as they can, so that it may be
    missed while one runs."""
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # to look for some takes 20 ms, and they would see every object
    from importlib import import_module  # noqa: PLC0415 - only once Ctrl-C is quiet

    try:
        code: int | None = getattr(import_module(module), function)()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in ("", "closeknit"):
            raise
        words = f"needs {name}, which this installation lacks: pip install 'closeknit[{extra}]'"
        print(f"{program}: {words}", file=sys.stderr)
        return CANNOT_BEGIN
    return code
