"""A real Kubernetes control plane as a test tool: stock programs as ordinary processes, without root.

    with LocalCluster() as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        cluster.kubectl("get", "namespaces")

`python -m harness.local_cluster` holds one open for a person. What is real and what is played: tests/harness/README.md.
"""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from harness import programs
from harness.api_reader import ApiReader
from harness.api_writer import ApiWriter
from harness.audit import AuditEvent, AuditLog
from harness.build import Binaries, bring, ensure_built
from harness.certificates import Authority
from harness.kubectl import KubectlError, kubeconfig_text, run_kubectl, write_private
from harness.projects import DNS, kubernetes_version
from harness.supervisor import remove
from harness.toolchain import BuildError

T = TypeVar("T")

SUPERVISOR = Path(__file__).parent / "supervisor.py"
START_TIMEOUT_S = 60  # a start takes 4 s, a namespace one moment; a loaded machine may take ten times that
POLL_INTERVAL_S = 0.05
MOST_BUSY = 6  # 5 was seen where three processes share the tests on two slow cores
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # what a later `kubectl apply` compares with


class ClusterError(Exception):
    """The control plane did not start; the message holds the words of the program that ended."""


class LocalCluster:
    """etcd, API server, controller manager, scheduler and kwok on free ports, in a temporary folder.

    One `with_nodes` has a network for real nodes as well, which `harness.node.local_node` adds; that needs root. One
    with `taint_rules` has an admin who has turned DeviceTaintRules on, which Kubernetes 1.36 has off and 1.37 on.

    Ready when entered, gone when left. Several can run at once. However the owning process ends, a supervisor process
    ends the programs and removes the folder.
    """

    server: str  # https://127.0.0.1:port
    directory: Path  # logs/, certificates, kubeconfigs; removed when the cluster ends
    binaries: Binaries
    authority: Authority  # signs whoever may log in
    writer: ApiWriter  # makes, changes and deletes objects, by one request each
    switch: str  # the path of the nodes' network, where there is one
    pids: Mapping[str, int]  # of the control plane's programs, by name
    kubernetes: tuple[int, int]  # major and minor version
    taint_rule_api: str  # the apiVersion of DeviceTaintRules

    def __init__(self, *, with_nodes: bool = False, taint_rules: bool = False) -> None:
        self._with_nodes = with_nodes
        self.kubernetes = kubernetes_version()
        has_taint_rules = self.kubernetes >= programs.TAINT_RULES_SINCE
        self.taint_rule_api = f"resource.k8s.io/{'v1' if has_taint_rules else 'v1beta2'}"
        can_have_them = programs.NO_TAINT_RULES_BEFORE <= self.kubernetes < programs.TAINT_RULES_SINCE
        self._features = programs.TAINT_RULES if taint_rules and can_have_them else ()

    def __enter__(self) -> Self:
        self.binaries = ensure_built()
        with ExitStack() as stack:
            self.directory = Path(tempfile.mkdtemp(prefix="closeknit-"))
            stack.callback(remove, self.directory)  # for when the supervisor was killed, else it has done it
            self._port = stack.enter_context(_reserved_port())
            self.server = f"https://127.0.0.1:{self._port.getsockname()[1]}"
            # Closes the pipe when the stack unwinds, which tells the supervisor to end everything, and waits for that.
            self._supervisor = stack.enter_context(_supervisor(self.directory))
            self._start_control_plane()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def kubeconfig(self) -> Path:
        """Logs in as an admin (group system:masters)."""
        return self.directory / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        """Every write, one JSON line each; `audit_events` reads it."""
        return self.directory / "audit.log"

    def start_program(self, name: str, *command: str, environment: Mapping[str, str] | None = None) -> int:
        """The process id of a further program (an operator, an agent), which then ends with the cluster at the latest.

        Its working folder is the cluster's, its output goes to `logs/<name>.log` there. The environment is exactly the
        one given: by default this process's.
        """
        request = {
            "name": name,
            "argv": command,
            "environment": dict(os.environ if environment is None else environment),
        }
        return int(ask(self._supervisor, request)["pid"])

    def kubectl(self, *args: str, stdin: str | None = None, kubeconfig: Path | None = None, check: bool = True) -> str:
        """What kubectl prints on standard output, as the admin or as `kubeconfig` says; KubectlError where it fails."""
        return run_kubectl(
            self.binaries.kubectl,
            args,
            kubeconfig=kubeconfig or self.kubeconfig,
            cache=self.directory / "kubectl-cache",
            stdin=stdin,
            check=check,
        )

    def apply(self, *objects: Mapping[str, Any] | str | Path) -> None:
        """Creates or changes objects like `kubectl apply`: mappings, YAML text (of several documents too), files.

        A `status` is taken at creation by the built-in kinds that allow it (a Node's capacity), and else ignored.
        Mappings are made by one request each; what is refused so, for it is there already or is bad, is kubectl's.
        """
        documents: list[str] = []
        for each in objects:
            match each:
                case Path():
                    documents.append(each.read_text())
                case str():
                    documents.append(each)
                case _ if self._is_made(each):
                    continue
                case _:
                    documents.append(json.dumps(each))
        if documents:
            self.kubectl("apply", "--filename=-", stdin="\n---\n".join(documents))

    def _is_made(self, document: Mapping[str, Any]) -> bool:
        """Whether the API server makes this object, marked as kubectl does what it applies."""
        metadata = document["metadata"]
        if "name" not in metadata:
            return False
        marks = {**(metadata.get("annotations") or {}), APPLIED: json.dumps(document)}
        try:
            return not self.writer.create({**document, "metadata": {**metadata, "annotations": marks}}).refusal
        except (OSError, http.client.HTTPException):
            return False

    def patch(
        self, kind: str, name: str, patch: Mapping[str, Any], namespace: str | None = None, subresource: str = ""
    ) -> None:
        """Merges this into an object, or into its status. Raises KubectlError where that is refused."""
        refusal = self.writer.patch(kind, name, patch, namespace, subresource=subresource).refusal
        if refusal:
            raise KubectlError(("patch", kind, name), 1, refusal)

    def delete(self, kind: str, name: str | None = None, namespace: str | None = None) -> None:
        """Deletes an object, or all of a kind in a namespace, and waits for nothing. Raises KubectlError."""
        refusal = self.writer.delete(kind, name, namespace).refusal
        if refusal:
            raise KubectlError(("delete", kind, name or "--all"), 1, refusal)

    def get(self, kind: str, name: str | None = None, namespace: str | None = None) -> dict[str, Any]:
        """One object; without a name the List of them, in one namespace or in all. KubectlError where it is refused.

        Asked of the API server itself: most of what a test does is to look again, and a process of kubectl's takes
        fifty times as long. What is not found so, or is several kinds, kubectl answers, in its words.
        """
        answer = self._reader.get(kind, name, namespace)
        if answer is not None:
            return answer
        what = [kind] if name is None else [kind, name]
        if namespace is not None:
            what.append(f"--namespace={namespace}")
        elif name is None:
            what.append("--all-namespaces")
        found: dict[str, Any] = json.loads(self.kubectl("get", *what, "--output=json"))
        return found

    def wait_for_default_account(self, namespace: str) -> None:
        """Until Pods can be created in the namespace: they need its default ServiceAccount."""
        self.wait_for(
            lambda: self._reader.get("serviceaccount", "default", namespace) is not None,
            f"the default ServiceAccount of namespace {namespace}",
            START_TIMEOUT_S,
        )

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, pod: str | None = None, duration_s: int = 3600
    ) -> Path:
        """A kubeconfig that logs in as this ServiceAccount, with a token as the TokenRequest API gives it to Pods.

        Bound to `pod` where given: the token then carries the Pod's and its node's name and uid, and ends with the Pod.
        """
        spec: dict[str, Any] = {"expirationSeconds": duration_s}
        if pod is not None:
            uid = self.get("pod", pod, namespace)["metadata"]["uid"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        asked = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = self.writer.send("POST", asked, request)
        if answer.refusal:
            raise KubectlError(("create", "token", name), 1, answer.refusal)
        token = str(answer.body["status"]["token"])
        authority = (self.directory / "ca.crt").read_bytes()
        path = self.directory / f"{namespace}.{name}{f'.{pod}' if pod else ''}.kubeconfig"
        return write_private(path, kubeconfig_text(self.server, authority, token))

    def wait_for(self, condition: Callable[[], T | None], what: str, timeout_s: float = 30) -> T:
        """The first answer of `condition` that says something: None, False and empty ones do not. TimeoutError after
        `timeout_s`, and so much later on a busy machine as it is busy."""
        began = time.monotonic()
        while True:
            if answer := condition():
                return answer
            if time.monotonic() > began + timeout_s * busyness():
                raise TimeoutError(f"waited {timeout_s:g} s for {what}\n{self._log_tails()}")
            time.sleep(POLL_INTERVAL_S)

    @contextmanager
    def without_api_server(self) -> Iterator[None]:
        """For as long as it lasts nobody answers; the same port, certificates and data after it. Ready when it ends."""
        os.kill(self.pids["kube-apiserver"], signal.SIGKILL)
        self.wait_for(lambda: not is_running(self.pids["kube-apiserver"]), "the API server to end")
        try:
            yield
        finally:
            self._start_api_server()
            self.wait_for(lambda: self._answers("/readyz"), "the API server to be ready again", START_TIMEOUT_S)

    def audit_events(self) -> list[AuditEvent]:
        """The writes that the API server has answered so far, in the order of their arrival (harness.audit)."""
        return self._audit.events()

    def _start_control_plane(self) -> None:
        (self.directory / "logs").mkdir()
        self.pids = {}
        port = self._port.getsockname()[1]
        self._start("etcd", programs.etcd(self.binaries))
        self.authority = programs.write_files(self.directory, self.server)
        self._audit = AuditLog(self.audit_log)
        self._tls = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        self._tls.load_cert_chain(self.directory / "admin.crt", self.directory / "admin.key")
        self._reader = ApiReader(port, self._tls)
        self.writer = ApiWriter(port, self._tls, str(self.directory / "ca.crt"), self._reader)
        self._start_api_server()
        if self._with_nodes:
            self._start("switch", programs.switch(port))
        self.wait_for(lambda: self._answers("/livez"), "the API server to answer", START_TIMEOUT_S)
        self._start("kube-controller-manager", [*programs.kube_controller_manager(self.binaries), *self._features])
        self._start("kube-scheduler", [*programs.kube_scheduler(self.binaries), *self._features])
        self._start("kwok", programs.kwok(self.binaries))
        self.wait_for(lambda: self._answers("/readyz"), "the API server to be ready", START_TIMEOUT_S)
        self.wait_for_default_account("default")
        if self._with_nodes:
            log = self.directory / "logs" / "switch.log"
            self.switch = self.wait_for(lambda: log.read_text().strip(), "the nodes' switch", START_TIMEOUT_S)
            self._start("coredns", programs.dns(bring((DNS,))["coredns"], self.switch))

    def _start_api_server(self) -> None:
        port = self._port.getsockname()[1]
        command = programs.kube_apiserver(self.binaries, port, with_nodes=self._with_nodes)
        self._start("kube-apiserver", [*command, *self._features, *(programs.SERVED_RULES if self._features else ())])

    def _start(self, name: str, command: list[str]) -> None:
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.directory)}
        self.pids = {**self.pids, name: self.start_program(name, *command, environment=environment)}

    def _answers(self, path: str) -> bool:
        """Whether the API server answers this with 200; ClusterError where a program has ended instead."""
        for name, pid in self.pids.items():
            if not is_running(pid):
                raise ClusterError(f"{name} ended while the cluster was starting\n{self._log_tails(20, name)}")
        connection = http.client.HTTPSConnection("127.0.0.1", self._port.getsockname()[1], timeout=5, context=self._tls)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:  # nobody listens yet
            return False
        finally:
            connection.close()

    def _log_tails(self, lines: int = 3, program: str = "*") -> str:
        tails = []
        for log in sorted((self.directory / "logs").glob(f"{program}.log")):
            tail = log.read_text(errors="replace").splitlines()[-lines:]
            tails += [f"the end of {log}:", *(f"  {line[:300]}" for line in tail)]
        return "\n".join(tails)


def ask(supervisor: "subprocess.Popen[str]", request: Mapping[str, object]) -> dict[str, Any]:
    """What a supervisor answers. Raises ClusterError where it refuses."""
    requests, replies = supervisor.stdin, supervisor.stdout
    assert requests is not None and replies is not None  # both are PIPE
    requests.write(json.dumps(request) + "\n")
    requests.flush()
    reply: dict[str, Any] = json.loads(replies.readline() or '{"error": "the supervisor has ended"}')
    if "error" in reply:
        what = request.get("name", "it")
        raise ClusterError(f"{what} did not start: {reply['error']}")
    return reply


def busyness() -> float:
    """How many programs each core had in the last minute: 1 where there were fewer, and at most MOST_BUSY."""
    return min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), MOST_BUSY)


def is_running(pid: int) -> bool:
    """Whether the program that `start_program` started still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _reserved_port() -> socket.socket:
    """Bound to a free port of 127.0.0.1 but not listening: the port stays ours, and the API server can bind to it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def _supervisor(directory: Path) -> "subprocess.Popen[str]":
    # A session of its own, so that the terminal's Ctrl-C reaches the owner only.
    command = [sys.executable, "-I", "-S", str(SUPERVISOR), str(directory)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def end_on_signals() -> None:
    """Has SIGINT and SIGTERM raise KeyboardInterrupt, SIGINT also in the background of a shell that had it ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def main() -> int:
    """`python -m harness.local_cluster`: holds one open for a person until Ctrl-C."""
    end_on_signals()
    started = time.monotonic()
    try:
        with LocalCluster() as cluster:
            took_s = time.monotonic() - started
            print(
                f"Kubernetes is ready at {cluster.server} after {took_s:.1f} s. In another terminal:\n\n"
                f"  export KUBECONFIG={cluster.kubeconfig} PATH={cluster.binaries.kubectl.parent}:$PATH\n"
                f"  kubectl get nodes\n\n"
                f"Nodes annotated kwok.x-k8s.io/node=fake become Ready and run Pods; there are none yet. End a Pod by\n"
                f"  kubectl annotate pod NAME harness.closeknit.dev/exit=succeed   (or fail)\n"
                f"Logs: {cluster.directory}/logs   Every write: {cluster.audit_log}\n"
                f"Ctrl-C ends it and removes everything.",
                flush=True,
            )
            while True:
                signal.pause()
    except KeyboardInterrupt:
        pass
    except (BuildError, ClusterError, TimeoutError) as error:
        print(error, file=sys.stderr)
        return 1
    print("ended; nothing is left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
