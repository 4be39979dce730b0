"""Writes objects of an API server, one request each, and gives its answer as it is.

A process of kubectl's takes 0.2 s of CPU time for what costs the API server a few milliseconds, and a run of the tests
writes some thousands of objects.
"""

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from harness.api_reader import TIMEOUT_S, ApiReader

JSON = "application/json"
MERGE_PATCH, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Login:
    """Who writes: the admin, or whoever the admin is taken for; by a token he is nobody else."""

    user: str = ""
    groups: Sequence[str] = ()
    token: str = ""

    def headers(self) -> list[tuple[str, str]]:
        """What a request says of it."""
        said = [("Impersonate-Group", group) for group in self.groups]
        if self.user:
            said.append(("Impersonate-User", self.user))
        if self.token:
            said.append(("Authorization", f"Bearer {self.token}"))
        return said


ADMIN = Login()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server says: the object, or a Status that refuses it."""

    code: int
    text: bytes = field(repr=False)

    @property
    def body(self) -> Mapping[str, Any]:
        """The object; only where somebody wants it, for some are nested deeper than Python reads."""
        found: Mapping[str, Any] = json.loads(self.text)
        return found

    @property
    def refusal(self) -> str:
        """Why not, in the API server's words; empty where it is done."""
        return "" if self.code < http.HTTPStatus.MULTIPLE_CHOICES else str(self.body.get("message", self.code))

    @property
    def causes(self) -> list[str]:
        """What is wrong with which field, as kubectl lists it."""
        causes = (self.body.get("details") or {}).get("causes", [])
        return [f"{each.get('field', '')}: {each['message']}" for each in causes]


class ApiWriter:
    """Finds the paths of kinds by a reader of the same API server."""

    def __init__(self, port: int, tls: ssl.SSLContext, authority: str, reader: ApiReader) -> None:
        self._port = port
        self._tls = tls
        self._authority = authority
        self._reader = reader

    def create(
        self,
        document: Mapping[str, Any],
        namespace: str | None = None,
        *,
        login: Login = ADMIN,
        dry_run: bool = False,
        strict: bool = True,
    ) -> Answer:
        """Makes an object, in the namespace that it names itself or in the one given; strictly: of known fields."""
        resource = self._reader.resource(document["apiVersion"], document["kind"])
        if resource is None:
            return Answer(
                http.HTTPStatus.NOT_FOUND, json.dumps({"message": f"no {document['kind']} is served"}).encode()
            )
        where = document.get("metadata", {}).get("namespace") or namespace or "default"
        query = {"fieldValidation": "Strict" if strict else "Ignore", "fieldManager": "kubectl-create"}
        path = resource.path(None, where)
        return self.send("POST", path, document, query=query, login=login, dry_run=dry_run)

    def patch(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str | None = None,
        *,
        subresource: str = "",
        login: Login = ADMIN,
        dry_run: bool = False,
    ) -> Answer:
        """Changes an object: a mapping is merged into it, a sequence holds the operations of a JSON patch."""
        path = self._path(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        content_type = MERGE_PATCH if isinstance(patch, Mapping) else JSON_PATCH
        query = {"fieldValidation": "Strict", "fieldManager": "kubectl-patch"}
        return self.send("PATCH", path, patch, content_type, query=query, login=login, dry_run=dry_run)

    def delete(self, kind: str, name: str | None = None, namespace: str | None = None) -> Answer:
        """Deletes an object, or all of a kind in a namespace, and waits for nothing."""
        return self.send("DELETE", self._path(kind, name, namespace), {"propagationPolicy": "Background"})

    def send(
        self,
        method: str,
        path: str,
        body: object,
        content_type: str = JSON,
        *,
        query: Mapping[str, str] | None = None,
        login: Login = ADMIN,
        dry_run: bool = False,
    ) -> Answer:
        """The answer to one request, over a connection of its own."""
        tls = ssl.create_default_context(cafile=self._authority) if login.token else self._tls
        asked = {**(query or {}), **({"dryRun": "All"} if dry_run else {})}
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=TIMEOUT_S, context=tls)
        try:
            connection.putrequest(method, f"{path}?{urlencode(asked)}" if asked else path)
            sent = json.dumps(body).encode()
            for header, value in (
                ("Content-Type", content_type),
                ("Content-Length", str(len(sent))),
                ("Accept", JSON),
                *login.headers(),
            ):
                connection.putheader(header, value)
            connection.endheaders(sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())
        finally:
            connection.close()

    def _path(self, kind: str, name: str | None, namespace: str | None) -> str:
        resource = self._reader.by_word(kind)
        if resource is None:
            raise LookupError(f"the API server serves no {kind}")
        return resource.path(name, namespace)
