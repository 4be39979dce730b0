"""Kubernetes objects of a file, as `kubectl get -o yaml` or a person writes them: a List or documents, YAML or JSON.

Files are decoded natively; the line of a mistake is looked up only once there is one to show, by parsing the text again
with PyYAML, which keeps positions.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import ryaml
import yaml

from closeknit.cli.bad_input import BadInput

Step = str | int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file, and the way to it."""

    file: Path
    document: int
    way: tuple[Step, ...]
    """Keys from the top of the document to the object: empty, or ("items", 3) inside a List."""
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.body["kind"])

    @property
    def title(self) -> str:
        """Kind, namespace and name, for people."""
        metadata = self.body["metadata"]
        name = "/".join(str(part) for part in (metadata.get("namespace"), metadata.get("name")) if part)
        return f"{self.kind} {name}"

    def bad(self, field: tuple[Step, ...], message: str) -> BadInput:
        """The refusal of one field of this object, with its line."""
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in field).lstrip(".")
        what = f"{self.title}: {path}" if path else self.title
        return BadInput(self.file, _line(self.file, self.document, (*self.way, *field)), what, message)


def manifests(file: Path) -> list[Manifest]:
    """Every object of a file, in its order. Raises BadInput for what is not a file of Kubernetes objects."""
    found = []
    for number, document in enumerate(_documents(file)):
        if document is None:
            continue
        for way, body in _objects(file, number, document):
            manifest = Manifest(file, number, way, body)
            if not isinstance(body.get("metadata"), dict) or not isinstance(body["metadata"].get("name"), str):
                raise BadInput(
                    file, _line(file, number, way), f"{manifest.kind}: metadata.name", "every object has a name"
                )
            found.append(manifest)
    return found


def _documents(file: Path) -> list[Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(file, None, "", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(file, None, "", f"is not UTF-8 text: byte {error.start}") from None
    try:
        return [msgspec.json.decode(text)] if text.lstrip()[:1] == "{" else ryaml.loads_all(text)
    except msgspec.DecodeError as error:
        offset = re.search(r"byte (\d+)", str(error))
        line = text.encode()[: int(offset[1])].count(b"\n") + 1 if offset else text.count("\n") + 1
        raise BadInput(file, line, "", f"is not valid JSON: {error}") from None
    except ryaml.InvalidYamlError as error:
        place = re.search(r"line (\d+)", str(error))
        raise BadInput(file, int(place[1]) if place else None, "", f"is not valid YAML: {error}") from None


def _objects(file: Path, number: int, document: Any) -> Iterator[tuple[tuple[Step, ...], dict[str, Any]]]:
    """Each object of a document, with the keys that lead to it."""
    entries: list[tuple[tuple[Step, ...], Any]] = [((), document)]
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        entries = [(("items", index), item) for index, item in enumerate(document["items"])]
    for way, body in entries:
        kind = body.get("kind") if isinstance(body, dict) else None
        if not isinstance(kind, str) or not isinstance(body.get("apiVersion"), str):
            raise BadInput(file, _line(file, number, way), "", "expected a Kubernetes object with apiVersion and kind")
        yield way, body


def _line(file: Path, document: int, way: tuple[Step, ...]) -> int | None:
    """Line of a field, or of the nearest thing around it that the file has; None where nothing can be told."""
    try:
        nodes = list(yaml.compose_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
        node: yaml.Node = nodes[document]
    except (yaml.YAMLError, OSError, IndexError):
        return None
    line = node.start_mark.line + 1
    for step in way:
        inner: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            pairs = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            if str(step) in pairs:
                key, inner = pairs[str(step)]
                line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            inner = node.value[step]
            line = inner.start_mark.line + 1
        if inner is None:
            break
        node = inner
    return line
