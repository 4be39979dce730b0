"""Which generated text belongs in which file of the repository."""

from typing import Any

import yaml

from closeknit.api.crd.definitions import custom_resource_definitions
from closeknit.api.crd.reference import reference_page

COMMAND = "make generate"
_HEADER = f"# Generated from the models in crds/src/closeknit/api; do not edit, run: {COMMAND}\n"
_PAGE_HEADER = f"<!-- Generated from the models in crds/src/closeknit/api; do not edit, run: {COMMAND} -->\n\n"


def generated_files() -> dict[str, str]:
    """Path from the root of the repository -> text: the CRDs, the chart's copies of them, their reference pages."""
    files: dict[str, str] = {}
    for name, definition in custom_resource_definitions().items():
        text = _HEADER + _yaml(definition)
        files[f"crds/{name}"] = text
        files[f"helm/closeknit/files/crds/{name}"] = text
        page = definition["spec"]["names"]["singular"]
        files[f"docs/reference/{page}.md"] = _PAGE_HEADER + reference_page(definition)
    return files


class _Readable(yaml.SafeDumper):
    """Indents lists below their key, and writes no anchors for equal parts."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - the library's signature
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's signature
        return True


def _yaml(value: dict[str, Any]) -> str:
    return yaml.dump(value, Dumper=_Readable, sort_keys=False, width=120, allow_unicode=True)
