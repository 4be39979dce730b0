"""The frameworks, each with its launch contract."""

from collections.abc import Mapping

from closeknit.api.trainingjob import Framework
from closeknit.launch.frameworks import custom, deepspeed, jax, mpi, pytorch, tensorflow
from closeknit.launch.frameworks.contract import Contract
from closeknit.launch.gang import Gang

CONTRACTS: Mapping[Framework, Contract] = {
    Framework.PYTORCH: pytorch.CONTRACT,
    Framework.DEEPSPEED: deepspeed.CONTRACT,
    Framework.HOROVOD: mpi.CONTRACT,
    Framework.MPI: mpi.CONTRACT,
    Framework.TENSORFLOW: tensorflow.CONTRACT,
    Framework.JAX: jax.CONTRACT,
    Framework.CUSTOM: custom.CONTRACT,
}


def contract(gang: Gang) -> Contract:
    """The contract of a gang's framework."""
    return CONTRACTS[gang.job.spec.framework]
