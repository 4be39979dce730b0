"""`closeknit logs`: prints logs of a job's Pods, and with --follow goes on with the Pods that come after them."""

import sys

from closeknit.api.text.printable import printable
from closeknit.cli.live.cluster_connection import NOT_INSTALLED, reached
from closeknit.cli.logs.log_reader import LogsArguments, read_logs


async def logs(asked: LogsArguments) -> None:
    """Prints them. Raises NotThere."""
    async with reached(asked.reach, missing=NOT_INSTALLED) as api:
        await read_logs(api, asked, _put, _say)


async def _put(line: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _say(words: str) -> None:
    print(printable(f"closeknit: {words}"), file=sys.stderr)
