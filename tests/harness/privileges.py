"""`python -m harness.privileges` asks a real API server what each of six identities may do; docs/security.md has it.

Every verb of every resource that the API server has, asked by SubjectAccessReview; and where admission has the last
word, real attempts as a dry run. tests/chart compares the page with the answers.
"""

import http.client
import json
import ssl
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.chart import AGENT_USER, NAMESPACE, OPERATOR_USER, wait_for_policies
from harness.install import install
from harness.local_cluster import LocalCluster
from harness.privilege_attempts import ATTEMPTS, Attempt

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- what follows is written by make privileges -->", "<!-- the end of it -->"
TEAM = "privileges-team"  # the tenant's namespace
NODE = "privileges-node"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# Verbs that no discovery tells of.
SPECIAL = {
    "serviceaccounts": ("impersonate", "use"),
    "users": ("impersonate",),
    "groups": ("impersonate",),
    "roles": ("bind", "escalate"),
    "clusterroles": ("bind", "escalate"),
    "signers": ("approve", "sign"),
}
PATHS = (
    "/metrics",
    "/healthz",
    "/livez",
    "/readyz",
    "/version",
    "/api",
    "/apis",
    "/openapi/v3",
    "/logs/",
    "/debug/pprof/",
)
ALL_VERBS = frozenset({"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"})


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who knocks."""

    title: str
    user: str
    groups: tuple[str, ...]


def _account(title: str, user: str) -> Identity:
    _, _, namespace, _ = user.split(":")
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return Identity(title, user, groups)


IDENTITIES = {
    "operator": _account("The operator", OPERATOR_USER),
    "agent": _account("An agent", AGENT_USER),
    "test": _account("What `helm test` runs", f"system:serviceaccount:{NAMESPACE}:closeknit-test"),
    "tenant": Identity("A tenant with the role edit in one namespace", "edith", ("system:authenticated",)),
    "scraper": _account("A reader of the metrics", f"system:serviceaccount:{TEAM}:scraper"),
    "stranger": Identity("A stranger without a token", "system:anonymous", ("system:unauthenticated",)),
}


@dataclass(frozen=True, slots=True)
class Question:
    """Whether somebody may do this."""

    group: str
    resource: str  # with its subresource after a slash; a path where it begins with one
    verb: str
    namespaced: bool

    def attributes(self, namespace: str) -> Mapping[str, Any]:
        """The spec of the review, but for who asks."""
        if self.resource.startswith("/"):
            return {"nonResourceAttributes": {"path": self.resource, "verb": self.verb}}
        resource, _, subresource = self.resource.partition("/")
        where = {"namespace": namespace} if self.namespaced else {}
        what = {"group": self.group, "resource": resource, "subresource": subresource, "verb": self.verb}
        return {"resourceAttributes": what | where}

    @property
    def title(self) -> str:
        """The resource as kubectl names it."""
        resource, slash, subresource = self.resource.partition("/")
        return f"{resource}.{self.group}{slash}{subresource}" if self.group else self.resource


class Door:
    """The API server as its admin reaches it, over one connection."""

    def __init__(self, cluster: LocalCluster) -> None:
        tls = ssl.create_default_context(cafile=str(cluster.directory / "ca.crt"))
        tls.load_cert_chain(cluster.directory / "admin.crt", cluster.directory / "admin.key")
        address = urlsplit(cluster.server)
        self._connection = http.client.HTTPSConnection(str(address.hostname), address.port, timeout=30, context=tls)

    def close(self) -> None:
        """Hangs up."""
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The answer's JSON, whatever its status."""
        sent = None if body is None else json.dumps(body)
        kind = {"Content-Type": "application/json", "Accept": "application/json"}
        self._connection.request(method, path, sent, {**kind, **(headers or {})})
        return json.loads(self._connection.getresponse().read())

    def may(self, who: Identity, question: Question, namespace: str) -> bool:
        """Whether RBAC lets him."""
        spec = {"user": who.user, "groups": who.groups, **question.attributes(namespace)}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        answer = self.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {**kind, "spec": spec})
        return bool(answer["status"]["allowed"])


def questions(door: Door) -> Iterator[Question]:
    """Every verb of every resource of the API server, and of the paths beside them."""
    for root in ("/api", "/apis"):
        for group in door.ask("GET", root, headers={"Accept": DISCOVERY})["items"]:
            name = group["metadata"].get("name", "")
            for resource in group["versions"][0].get("resources", []):
                namespaced = resource["scope"] == "Namespaced"
                plural = resource["resource"]
                for verb in sorted({*resource["verbs"], *SPECIAL.get(plural, ())}):
                    yield Question(name, plural, verb, namespaced)
                for sub in resource.get("subresources", []):
                    for verb in sorted(sub["verbs"]):
                        yield Question(name, f"{plural}/{sub['subresource']}", verb, namespaced)
    for name in ("users", "groups"):
        yield Question("", name, "impersonate", namespaced=False)
    for verb in SPECIAL["signers"]:
        yield Question("certificates.k8s.io", "signers", verb, namespaced=False)
    for path in PATHS:
        yield Question("", path, "get", namespaced=False)


def rights(cluster: LocalCluster, who: Identity, asked: Sequence[Question]) -> Mapping[Question, str]:
    """Where he may do what he may do at all."""

    def answered(some: Sequence[Question]) -> list[tuple[Question, str]]:
        with closing(Door(cluster)) as door:
            return [(each, where) for each in some if (where := _where(door, who, each))]

    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(answered, (asked[start::4] for start in range(4)))
    return dict(sorted((pair for part in parts for pair in part), key=lambda pair: (pair[0].title, pair[0].verb)))


def _where(door: Door, who: Identity, question: Question) -> str:
    if not door.may(who, question, TEAM):
        is_ours = who.user.startswith(f"system:serviceaccount:{NAMESPACE}:")
        is_at_home = is_ours and question.namespaced and door.may(who, question, NAMESPACE)
        return "the chart's namespace" if is_at_home else ""
    if not question.namespaced:
        return "cluster"
    return "every namespace" if door.may(who, question, "") else "own namespace"


def rows(found: Mapping[Question, str]) -> list[str]:
    """A table in which resources with equal verbs in equal places share a row."""
    verbs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for question, where in found.items():
        verbs[where, question.title].add(question.verb)
    shared: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (where, title), words in verbs.items():
        shared[where, tuple(sorted(words))].append(title)
    table = ["| where | verbs | resources |", "|---|---|---|"]
    for (where, together), titles in sorted(shared.items()):
        named = "all" if set(together) == ALL_VERBS else ", ".join(together)
        table.append(f"| {where} | {named} | {', '.join(f'`{title}`' for title in sorted(titles))} |")
    return table


def tried(door: Door, attempt: Attempt) -> str:
    """What came of it: the policy that refuses it, or that it is let through."""
    who = IDENTITIES[attempt.who]
    headers = {"Impersonate-User": who.user, "Content-Type": attempt.content_type}
    path = attempt.path.format(team=TEAM, own=NAMESPACE, node=NODE)
    answer = door.ask(attempt.method, f"{path}?dryRun=All", attempt.body, headers)
    message = str(answer.get("message", ""))
    if answer.get("status") != "Failure":
        return "let through"
    _, policy, rest = message.partition("ValidatingAdmissionPolicy '")
    if policy:
        return "refused by `" + rest.partition("'")[0] + "`"
    return "refused by RBAC" if " cannot " in message else f"refused: {message}"


def audit(cluster: LocalCluster) -> str:
    """The tables, as the page has them. The chart is installed in the cluster; what is made here is taken away."""
    here = f"--namespace={TEAM}"
    for kind, name in (("node", NODE), ("clusterrolebinding", TEAM), ("namespace", TEAM)):
        cluster.kubectl("delete", kind, name, "--ignore-not-found", "--wait")  # of an audit before
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(node))
    cluster.kubectl("create", "rolebinding", "edith", "--user=edith", "--clusterrole=edit", here)
    reader = ("--clusterrole=closeknit-metrics-reader", f"--serviceaccount={TEAM}:scraper")
    cluster.kubectl("create", "clusterrolebinding", TEAM, *reader)
    account = ("get", "serviceaccounts", "default", here)
    cluster.wait_for(lambda: cluster.kubectl(*account, check=False) != "", "the default ServiceAccount")
    bank = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bank", "namespace": TEAM}}
    pod = {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"no": "where"}}
    job = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "metadata": bank["metadata"]}
    spec = {"gpus": 1, "ttlSecondsAfterFinished": 60, "template": {"spec": pod}}
    cluster.apply(bank | {"spec": pod}, job | {"spec": spec})
    wait_for_policies(cluster, NODE)
    try:
        with closing(Door(cluster)) as door:
            return "\n".join([*_rights(cluster, door), *_attempts(door)]) + "\n"
    finally:
        cluster.kubectl("delete", "clusterrolebinding", TEAM)
        cluster.kubectl("delete", "node", NODE)
        cluster.kubectl("delete", "namespace", TEAM, "--wait=false")


def _rights(cluster: LocalCluster, door: Door) -> Iterator[str]:
    tenant, scraper = IDENTITIES["tenant"], IDENTITIES["scraper"]
    jobs = Question("closeknit.dev", "trainingjobs", "create", namespaced=True)  # by an aggregated role
    metrics = Question("", "/metrics", "get", namespaced=False)
    cluster.wait_for(lambda: door.may(tenant, jobs, TEAM) and door.may(scraper, metrics, ""), "the roles")
    asked = list(questions(door))
    for who in IDENTITIES.values():
        yield from (f"### {who.title}", "", *rows(rights(cluster, who, asked)), "")


def _attempts(door: Door) -> Iterator[str]:
    yield from ("### Where admission has the last word", "", "| who | tries | and is |", "|---|---|---|")
    yield from (f"| {each.who} | {each.what} | {tried(door, each)} |" for each in ATTEMPTS)


def written() -> str:
    """The tables as they stand in the page."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip("\n") + "\n"


def main() -> int:
    """Writes the tables into the page."""
    with LocalCluster() as cluster:
        install(cluster)
        found = audit(cluster)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{found}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
