"""closeknit-sidecar: the command. `barrier` and `watch` are containers of each Pod of a gang; `join` is the barrier of
one that replaces another.

The first start of a Pod is all that a healthy gang ever pays, so that the barrier imports nothing for it.
"""

import os
import sys

_FOLDER = "/run/closeknit-gang"  # closeknit.sidecar.gang.settings has it, too; a test compares them
_MESSAGE = "/dev/termination-log"
_USAGE = "usage: closeknit-sidecar barrier | join | watch, in a Pod that closeknit's operator made"


def main(folder: str = _FOLDER, message: str = _MESSAGE) -> int:
    """Runs one of them. Gives 2 where that cannot begin."""
    match sys.argv[1:]:
        case ["barrier"] if not os.path.exists(f"{folder}/run"):
            return let_new_pod_go(folder, message)
        case ["barrier" | "join" | "watch"]:
            return _in_gang(sys.argv[1], folder, message)
    print(_USAGE, file=sys.stderr)
    return 2


def let_new_pod_go(folder: str, message: str) -> int:
    """A Pod of a new gang has no old run to leave, and waits for nobody."""
    with open(f"{folder}/.run", "w") as beside:
        beside.write("0")
    os.replace(f"{folder}/.run", f"{folder}/run")
    with open(message, "w") as told:
        told.write('{"run":0}')
    return 0


def _in_gang(command: str, folder: str, message: str) -> int:
    from closeknit.sidecar.barrier import Barrier  # noqa: PLC0415 - not for a new Pod
    from closeknit.sidecar.gang.run_folder import RunFolder  # noqa: PLC0415 - likewise
    from closeknit.sidecar.gang.settings import REPLACED_VARIABLE, VARIABLE, Settings  # noqa: PLC0415 - likewise
    from closeknit.sidecar.watch import Watch  # noqa: PLC0415 - likewise

    try:
        settings = Settings.parse(os.environ.get(VARIABLE, ""), os.environ.get(REPLACED_VARIABLE, ""))
    except ValueError as error:
        print(f"closeknit-sidecar: {error}", file=sys.stderr)
        return 2
    runs = RunFolder(folder)
    return Watch(settings, runs).run() if command == "watch" else Barrier(settings, runs, message).run()


if __name__ == "__main__":
    sys.exit(main())
