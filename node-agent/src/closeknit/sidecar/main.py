"""closeknit-sidecar: the command. `barrier` and `watch` are containers of each Pod of a gang."""

import os
import sys
from pathlib import Path

from closeknit.sidecar.barrier import Barrier
from closeknit.sidecar.gang.run_folder import RunFolder
from closeknit.sidecar.gang.settings import FOLDER, VARIABLE, Settings
from closeknit.sidecar.watch import Watch

_USAGE = "usage: closeknit-sidecar barrier | watch, in a Pod that closeknit's operator made"


def main() -> int:
    """Runs one of them. Gives 2 where that cannot begin."""
    folder = RunFolder(Path(FOLDER))
    try:
        settings = Settings.parse(os.environ.get(VARIABLE, ""))
    except ValueError as error:
        print(f"closeknit-sidecar: {error}", file=sys.stderr)
        return 2
    match sys.argv[1:]:
        case ["barrier"]:
            return Barrier(settings, folder).run()
        case ["watch"]:
            return Watch(settings, folder).run()
    print(_USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
