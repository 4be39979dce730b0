"""Kubernetes objects of a file, as `kubectl get -o yaml` or a person writes them: a List or documents, YAML or JSON.

Files are decoded natively. The line of a mistake is looked up only once there is one to show, by parsing the text again
with PyYAML, which keeps positions.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import ryaml

from closeknit.api.text.nesting import is_deeper
from closeknit.cli.input.bad_input import BadInput
from closeknit.cli.input.bounds import MAX_FILE_DEPTH, TOO_DEEP, too_much
from closeknit.cli.input.given import bytes_of

# As kubectl prints them, 5,000 nodes with their topologies and 20,000 Pods are some 300 MB.
MAX_FILE_BYTES = 1 << 30

Step = str | int
Way = tuple[Step, ...]
"""Keys and indexes that lead to a value."""


@dataclass(frozen=True, slots=True)
class Text:
    """A file as it was read, once: behind the path may be a pipe."""

    file: Path
    content: str

    def bad(self, document: int, way: Way, what: str, message: str) -> BadInput:
        """The refusal of what stands at `way` in a document."""
        return BadInput(self.file, self.line(document, way), what, message)

    def line(self, document: int, way: Way) -> int | None:
        """Line of a value, or of the nearest thing around it that is there; None where nothing can be told."""
        import yaml  # noqa: PLC0415 - only a mistake needs it

        try:
            node: yaml.Node = list(yaml.compose_all(self.content, Loader=yaml.CSafeLoader))[document]
        except (yaml.YAMLError, IndexError):
            return None
        line = node.start_mark.line + 1
        for step in way:
            inner: yaml.Node | None = None
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if isinstance(key, yaml.ScalarNode) and key.value == str(step):
                        line, inner = key.start_mark.line + 1, value
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                inner = node.value[step]
                line = inner.start_mark.line + 1
            if inner is None:
                break
            node = inner
        return line


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file, and the way to it."""

    text: Text
    document: int
    way: Way
    """From the top of the document to the object: empty, or ("items", 3) inside a List."""
    body: dict[str, Any]

    @property
    def api_version(self) -> str:
        """The object's apiVersion."""
        return str(self.body["apiVersion"])

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

    @property
    def line(self) -> int | None:
        """Where the object begins."""
        return self.text.line(self.document, self.way)

    def bad(self, field: Way, message: str) -> BadInput:
        """The refusal of one field of this object, with its line."""
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in field).lstrip(".")
        what = f"{self.title}: {path}" if path else self.title
        return self.text.bad(self.document, (*self.way, *field), what, message)


def manifests(file: Path) -> list[Manifest]:
    """Every object of a file, in its order. Raises BadInput for what is not a file of Kubernetes objects."""
    text = _read(file)
    found = []
    for number, document in enumerate(_documents(text)):
        if document is None:
            continue
        for way, body in _objects(text, number, document):
            manifest = Manifest(text, number, way, body)
            _check_named(manifest)
            found.append(manifest)
    return found


def _read(file: Path) -> Text:
    read = bytes_of(file, MAX_FILE_BYTES)
    if read.lstrip().startswith(b"{") and is_deeper(read, MAX_FILE_DEPTH):
        raise BadInput(file, None, "", TOO_DEEP)
    try:
        return Text(file, read.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadInput(file, None, "", f"is not UTF-8 text (byte {error.start})") from None


def _documents(text: Text) -> list[Any]:
    content = text.content
    broken: msgspec.DecodeError | None = None
    try:
        if content.lstrip().startswith("{"):
            try:
                return [msgspec.json.decode(content)]
            except msgspec.DecodeError as error:
                broken = error  # unless it is YAML, whose flow style begins like JSON
        if words := too_much(content):
            raise BadInput(text.file, None, "", words)
        return ryaml.loads_all(content) or []  # None for a file without a document
    except ValueError as error:
        raise _broken_json(text, broken) if broken else _broken_yaml(text, error) from None


def _broken_json(text: Text, error: msgspec.DecodeError) -> BadInput:
    offset = re.search(r" \(byte (\d+)\)$", str(error))
    before = text.content.encode()[: int(offset[1])].decode(errors="ignore") if offset else text.content.rstrip()
    words = str(error).removeprefix("JSON is malformed: ")
    return BadInput(text.file, before.count("\n") + 1, "", f"is not valid JSON: {words}")


def _broken_yaml(text: Text, error: ValueError) -> BadInput:
    line = re.search(r"line (\d+)", str(error))
    return BadInput(text.file, int(line[1]) if line else None, "", f"is not valid YAML: {error}")


def _objects(text: Text, number: int, document: Any) -> Iterator[tuple[Way, dict[str, Any]]]:
    """Each object of a document, with the keys that lead to it."""
    entries: list[tuple[Way, Any]] = [((), document)]
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        if not str(document.get("kind", "")).endswith("List"):  # kubectl writes it after the items
            raise text.bad(number, (), "", "has items but no kind: List; it seems to be cut off")
        entries = [(("items", index), item) for index, item in enumerate(document["items"])]
    for way, body in entries:
        kind = body.get("kind") if isinstance(body, dict) else None
        if not isinstance(kind, str) or not isinstance(body.get("apiVersion"), str):
            raise text.bad(number, way, "", "expected a Kubernetes object with apiVersion and kind")
        yield way, body


def _check_named(manifest: Manifest) -> None:
    text, number, way = manifest.text, manifest.document, manifest.way
    metadata = manifest.body.get("metadata")
    if not isinstance(metadata, dict):
        raise text.bad(number, (*way, "metadata"), f"{manifest.kind}: metadata", "every object has one, with a name")
    for field in ("name", "namespace"):
        if not isinstance(metadata.get(field), str if field == "name" else str | None):
            what = f"{manifest.kind}: metadata.{field}"
            raise text.bad(
                number, (*way, "metadata", field), what, "must be a string" if field in metadata else "is required"
            )
