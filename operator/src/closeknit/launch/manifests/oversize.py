"""What a very large gang cannot be told: variables and files that name all its Pods, or nodes, have a largest size.

A Pod with a longer variable would be made and never start: its kernel refuses the program (E2BIG).
"""

from collections.abc import Iterator

from closeknit.launch.frameworks.registry import contract
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.pod_manifest import pods

# Of NAME=value: Linux' MAX_ARG_STRLEN, 32 pages, less the zero at its end. Pages of 4 KiB are the smallest there are.
MOST_BYTES_OF_A_VARIABLE = (32 << 12) - 1
MOST_BYTES_OF_FILES = 1 << 20  # of one ConfigMap, whatever the names: MaxSecretSize in Kubernetes' validation
ALWAYS_FIT = 512  # members; with the longest names: 93 KB of a variable, 0.3 MB of files (tests/unit/launch)
_ADVICE = "ask for fewer nodes, or give the job or its namespace a shorter name"


def oversize(gang: Gang) -> str | None:
    """What is too large of the gang's Pods or files, and what to do; None where everything has its size."""
    count = len(gang.members)
    if count <= ALWAYS_FIT:
        return None
    size, name = max(_variables(gang), default=(0, ""))
    if size > MOST_BYTES_OF_A_VARIABLE:
        return (
            f"{name} would have {size:,} bytes in a gang of {count:,} Pods, and Linux starts no program with more than "
            f"{MOST_BYTES_OF_A_VARIABLE:,} in one variable; {_ADVICE}"
        )
    size = sum(len(text.encode()) for text in contract(gang).files(gang).values())
    if size > MOST_BYTES_OF_FILES:
        return (
            f"the files of framework {gang.job.spec.framework} would have {size:,} bytes in a gang of {count:,} Pods, "
            f"and a ConfigMap has {MOST_BYTES_OF_FILES:,} at most; {_ADVICE}"
        )
    return None


def _variables(gang: Gang) -> Iterator[tuple[int, str]]:
    """Bytes and name of each variable, of the last Pod of each role: what names all Pods is the same in them but for
    which of them this is, and that takes the last the most digits."""
    for pod in pods(gang, sorted({len(gang.workers) - 1, len(gang.members) - 1})):
        for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
            for entry in container.get("env") or []:
                yield len(f"{entry['name']}={entry.get('value') or ''}".encode()), entry["name"]
