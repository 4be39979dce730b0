"""The CustomResourceDefinitions, made from the pydantic models. Pure, but for `python -m closeknit.api.crd`.

Invariant: what is committed equals what the models give.
"""

from closeknit.api.crd.definitions import custom_resource_definitions

__all__ = ["custom_resource_definitions"]
