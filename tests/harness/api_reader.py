"""Reads objects of an API server: by the words that kubectl takes for their kinds, and what kubectl shows of them."""

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 30
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Resource:
    """Where the objects of one kind are read."""

    prefix: str  # "/api/v1", "/apis/apps/v1"
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """As objects say it: "v1", "apps/v1"."""
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")

    def path(self, name: str | None, namespace: str | None) -> str:
        """Of one object or of all, in one namespace or in all."""
        parts = [self.prefix]
        if self.namespaced and (namespace is not None or name is not None):
            parts += ["namespaces", namespace or "default"]
        parts.append(self.plural)
        return "/".join(parts if name is None else [*parts, name])


class ApiReader:
    """Knows what the API server serves, and asks again where a word is unknown: kinds come while it runs."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self._port = port
        self._tls = tls
        self._served: dict[str, Resource] = {}

    def get(self, word: str, name: str | None, namespace: str | None) -> dict[str, Any] | None:
        """The object, or the List of all; None where the API server does not serve or have it."""
        if (resource := self.by_word(word)) is None:
            return None
        answer = self._read(resource.path(name, namespace))
        if answer is not None and name is None:  # items leave out what their list says
            said = {"apiVersion": resource.api_version, "kind": resource.kind}
            answer["items"] = [{**said, **item} for item in answer["items"]]
        for each in () if answer is None else (answer["items"] if name is None else [answer]):
            each["metadata"].pop("managedFields", None)
        return answer

    def by_word(self, word: str) -> Resource | None:
        """What kubectl takes this word for; None where the API server serves nothing by it."""
        if word not in self._served:
            self._served = self._discover()
        return self._served.get(word)

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """The kind of an object that says this of itself; None where the API server does not serve it."""
        return self.by_word(f"{api_version} {kind}")

    def _discover(self) -> dict[str, Resource]:
        """By every word for it; of groups that share a word the API server's first has it, as with kubectl."""
        found: dict[str, Resource] = {}
        for root in ("/api", "/apis"):
            for group in (self._read(root, DISCOVERY) or {"items": []})["items"]:
                for words, resource in _resources(root, group):
                    for word in words:
                        found.setdefault(word, resource)
        return found

    def _read(self, path: str, accept: str = "application/json") -> dict[str, Any] | None:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=TIMEOUT_S, context=self._tls)
        try:
            connection.request("GET", path, headers={"Accept": accept})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            return None
        found: dict[str, Any] = json.loads(body)
        return found


def _resources(root: str, group: dict[str, Any]) -> Iterator[tuple[list[str], Resource]]:
    name = group["metadata"].get("name", "")
    for version in group["versions"]:
        prefix = "/".join(part for part in (root, name, version["version"]) if part)
        for each in version["resources"]:
            plural, singular = each["resource"], each["singularResource"]
            kind = each["responseKind"]["kind"]
            words = [plural, singular, kind, *each.get("shortNames", ()), f"{plural}.{name}", f"{singular}.{name}"]
            resource = Resource(prefix, plural, kind, each["scope"] == "Namespaced")
            yield [*words, f"{resource.api_version} {kind}"], resource
