"""What may be changed for the next attempt of a job, each only after the error that calls for it."""

from enum import Enum


class Remedy(Enum):
    """A change; the value says what was seen and what is done about it."""

    WITHOUT_NVLS = "NVSwitch multicast could not be set up; NCCL goes without it (NCCL_NVLS_ENABLE=0)"
    ELSEWHERE = "a peer could not be reached over RDMA (error 12); the job goes to other nodes"


# What NCCL says when it ends by it, in all its versions: as a log line, and as the last error of PyTorch's exception.
_SAID = {
    "NVLink SHARP (NVLS) Multicast memory": Remedy.WITHOUT_NVLS,
    "transport/nvls.cc": Remedy.WITHOUT_NVLS,
    "with error 12,": Remedy.ELSEWHERE,
    "with status=12 ": Remedy.ELSEWHERE,
    "IBV_WC_RETRY_EXC_ERR(12)": Remedy.ELSEWHERE,
}


def remedy(said: str) -> Remedy | None:
    """The change that a program's last words call for; None where none would help."""
    return next((found for words, found in _SAID.items() if words in said), None)
