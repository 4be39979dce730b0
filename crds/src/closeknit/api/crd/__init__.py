"""The CustomResourceDefinitions, made from the pydantic models. Pure, but for `python -m closeknit.api.crd`.

`schema` turns a model into a structural schema, `rules` holds what a schema cannot say (CEL), `definitions` puts both
into CRDs, `reference` writes the field tables of docs/reference, and `files` knows which text belongs in which file.
"""

from closeknit.api.crd.definitions import custom_resource_definitions

__all__ = ["custom_resource_definitions"]
