"""The frameworks that are built, each with its launch contract."""

from collections.abc import Mapping

from closeknit.api.trainingjob import Framework
from closeknit.launch import custom, jax, pytorch, tensorflow
from closeknit.launch.contract import Contract
from closeknit.launch.gang import Gang

CONTRACTS: Mapping[Framework, Contract] = {
    Framework.PYTORCH: pytorch.CONTRACT,
    Framework.TENSORFLOW: tensorflow.CONTRACT,
    Framework.JAX: jax.CONTRACT,
    Framework.CUSTOM: custom.CONTRACT,
}
"""A framework that is not here is refused before anything is booked for it (lifecycle)."""

_NOTHING = Contract()


def contract(gang: Gang) -> Contract:
    """The contract of a gang's framework; one that asks for nothing where the framework is not built."""
    return CONTRACTS.get(gang.job.spec.framework, _NOTHING)
