"""closeknit-sidecar: the command. `barrier` and `watch` are containers of each Pod of a gang."""

import os
import sys
from pathlib import Path

from closeknit.sidecar.gang.settings import FOLDER, VARIABLE, Settings
from closeknit.sidecar.run_folder import RunFolder

_USAGE = "usage: closeknit-sidecar barrier | watch, in a Pod that closeknit's operator made"


def main() -> int:
    """Runs one of them. Gives 2 where that cannot begin."""
    folder = RunFolder(Path(FOLDER))
    match sys.argv[1:]:
        case ["barrier"]:
            from closeknit.sidecar import barrier  # noqa: PLC0415 - each needs little, and not what the other needs

            return barrier.wait(folder)
        case ["watch"]:
            try:
                settings = Settings.parse(os.environ.get(VARIABLE, ""))
            except ValueError as error:
                print(f"closeknit-sidecar: {error}", file=sys.stderr)
                return 2
            from closeknit.sidecar.watch import Watch  # noqa: PLC0415 - likewise

            return Watch(settings, folder).run()
    print(_USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
