"""A real Prometheus scrapes two operators and an agent, by the chart's own access rules, with the chart's alerts, while
jobs start, fail and wait. Then every query of every dashboard has an answer.
"""

import math
import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from harness.build import ensure_built
from harness.chart import CHART, NAMESPACE, render
from harness.dashboards import BOARDS
from harness.install import OPERATOR, free_port
from harness.local_cluster import is_running
from harness.machines import AGENT_SERVICE_ACCOUNT, agent_pod_name
from harness.metrics_page import PAGE as METRICS_PAGE
from harness.operator_bed import ON_DRA, ON_PLUGIN, ON_PLUGIN_PROFILE, Bed, status_of, unverified
from harness.prometheus import NoPrometheus, Programs, Prometheus, bring, running
from harness.replicas import OPTIONS

PROGRAMS = Path(sys.executable).parent
SHOWN_WITHIN_S = 40
# Of a gang on two nodes, of the node that has an agent here, or of a sum over ranks.
RANKS = ({str(rank) for rank in range(16)}, {str(rank) for rank in range(8)}, {None})
VARIABLES = {"$__rate_interval": "5m", "$namespace": "{namespace}", "$job": "plugin", "$node": "gpu-1"}


@pytest.fixture(scope="module")
def programs() -> Programs:
    try:
        return bring()
    except NoPrometheus as reason:
        pytest.skip(str(reason))


@pytest.fixture
def ports(bed: Bed) -> Iterator[dict[str, int]]:
    """Two operators instead of the bed's, and an agent, that serve beyond localhost as in Pods."""
    os.kill(bed.pid, signal.SIGTERM)
    bed.cluster.wait_for(lambda: not is_running(bed.pid), "the operator to end")
    found = {name: free_port() for name in ("operator-1", "operator-2", "agent")}
    pids = []
    for name in ("operator-1", "operator-2"):
        kubeconfig = bed.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
        address = f"--metrics-address=:{found[name]}"
        command = (str(PROGRAMS / "closeknit-operator"), f"--kubeconfig={kubeconfig}", address, *OPTIONS)
        pids.append(bed.cluster.start_program(name, *command))
    pod = agent_pod_name("gpu-1")
    kubeconfig = bed.cluster.service_account_kubeconfig(NAMESPACE, AGENT_SERVICE_ACCOUNT, pod=pod)
    source = ("--source=simulated", f"--profile={ON_PLUGIN_PROFILE}", "--node=gpu-1")
    address = f"--metrics-address=:{found['agent']}"
    agent = (str(PROGRAMS / "closeknit-agent"), *source, f"--kubeconfig={kubeconfig}", address)
    pids.append(bed.cluster.start_program("agent-gpu-1", *agent))

    def are_ready() -> bool:
        return all(status_of(port, "/readyz") == 200 for port in found.values())

    try:
        bed.cluster.wait_for(are_ready, "all three to be ready")
        yield found
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        bed.cluster.wait_for(lambda: not any(map(is_running, pids)), "all three to end")
        bed.revive()


@pytest.fixture
def racks(bed: Bed) -> Iterator[None]:
    """Each node in a rack of its own."""
    for name in ("gpu-1", "gpu-2", "gpu-3", "gpu-4"):
        bed.change("node", name, {"metadata": {"labels": {"example.com/rack": name}}}, namespaced=False)
    levels = [{"name": "rack", "nodeLabel": "example.com/rack"}]
    spec = {"levels": levels, "fabric": {"levelBandwidthGBps": {"rack": 50}}}
    kind = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "ClusterTopology"}
    bed.cluster.apply({**kind, "metadata": {"name": "default"}, "spec": spec})
    yield
    bed.cluster.kubectl("delete", "clustertopology", "default")


def token(bed: Bed, name: str, *, may_read: bool) -> str:
    where = f"--namespace={bed.namespace}"
    bed.cluster.kubectl("create", "serviceaccount", name, where)
    if may_read:
        role, account = "--clusterrole=closeknit-metrics-reader", f"--serviceaccount={bed.namespace}:{name}"
        bed.cluster.kubectl("create", "clusterrolebinding", f"{bed.namespace}-{name}", role, account)
    return bed.cluster.kubectl("create", "token", name, where).strip()


def configuration(folder: Path, ports: dict[str, int], exporter: int, scraper: str, stranger: str) -> Path:
    """As the chart's ServiceMonitor comes to, for a Prometheus whose own token is in a file."""
    (folder / "scraper").write_text(scraper)
    (folder / "stranger").write_text(stranger)
    targets = [f"127.0.0.1:{port}" for port in ports.values()]
    rendered = render(ensure_built().helm, "--set=metrics.serviceMonitor.enabled=true")
    monitors = [each["spec"]["endpoints"][0] for each in rendered if each["kind"] == "ServiceMonitor"]
    assert len(monitors) == 2 and monitors[0] == monitors[1]
    endpoint = monitors[0]
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}

    def job(name: str, credentials: str, targets: list[str], scheme: str = endpoint["scheme"]) -> dict[str, object]:
        return {
            "job_name": name,
            "scheme": scheme,
            "honor_labels": endpoint["honorLabels"],
            "tls_config": {"insecure_skip_verify": True},
            "authorization": {"credentials_file": str(folder / credentials)},
            "static_configs": [{"targets": targets}],
        }

    written = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "2s"},
        "rule_files": [str(CHART / "files/rules/*.yaml")],
        "scrape_configs": [
            job("closeknit", "scraper", targets),
            job("stranger", "stranger", targets[:1]),
            job("plain", "scraper", targets[:1], "http"),
            {"job_name": "dcgm-exporter", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]},
        ],
    }
    path = folder / "prometheus.yaml"
    path.write_bytes(msgspec.json.encode(written))
    return path


@contextmanager
def dcgm_exporter(bed: Bed) -> Iterator[int]:
    """The port of what stands for dcgm-exporter: the load of each GPU of the cluster, by its labels for it."""
    lines = ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    for topology in bed.cluster.get("nodetopologies")["items"]:
        node = topology["metadata"]["name"]
        for gpu in topology["spec"]["gpus"]:
            labels = f'gpu="{gpu["index"]}",UUID="{gpu["uuid"]}",device="nvidia{gpu["index"]}",Hostname="{node}"'
            lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 3")
    text = "\n".join((*lines, "")).encode()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def joins() -> list[str]:
    """The queries of docs/reference/metrics.md."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", METRICS_PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in blocks if not language]


def load(bed: Bed) -> None:
    """Two jobs run, one of them after it has failed twice, a third one waits."""
    bed.submit("plugin", restart={"limit": 5}, **ON_PLUGIN)
    bed.submit("large", gpus=512)
    for _ in range(2):
        bed.wait_for_state("Running", "plugin")
        bed.finish(sorted(bed.live_pods())[0], "fail")
        bed.cluster.wait_for(lambda: bed.job("plugin")["status"].get("state") != "Running", "the failure to be seen")
    bed.wait_for_state("Running", "plugin")
    bed.submit("claims", **ON_DRA)
    bed.wait_for_state("Running", "claims")
    bed.wait_for_reason("InsufficientGPUs", "large")


def unanswered(prometheus: Prometheus, namespace: str) -> list[str]:
    """Queries of the dashboards without a number for an answer."""
    found = []
    for board in BOARDS:
        for query in (query for row in board.rows for plot in row.plots for query in plot.queries):
            expression = query.expression
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value.format(namespace=namespace))
            samples = prometheus.query(expression)
            if not any(math.isfinite(float(each["value"][1])) for each in samples):
                found.append(f"{board.name}: {expression}: {samples}")
    return found


def held_gpus(prometheus: Prometheus) -> str:
    (held,) = prometheus.query('sum(closeknit_gpus{state="held"})')
    return str(held["value"][1])


@pytest.mark.usefixtures("racks")
def test_every_query_of_the_dashboards_has_an_answer_and_replicas_count_once(
    bed: Bed, ports: dict[str, int], programs: Programs, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    scraper, stranger = token(bed, "scraper", may_read=True), token(bed, "stranger", may_read=False)
    with (
        dcgm_exporter(bed) as exporter,
        running(programs, configuration(tmp_path, ports, exporter, scraper, stranger)) as prometheus,
    ):
        shown = 'closeknit_placement_domains_count{level="rack"}'  # by the leader, once it knows the racks
        bed.cluster.wait_for(lambda: prometheus.query(shown), "the first gauges", SHOWN_WITHIN_S)
        load(bed)
        deadline = time.monotonic() + SHOWN_WITHIN_S
        while missing := unanswered(prometheus, bed.namespace):
            assert time.monotonic() < deadline, "\n".join(missing)
            time.sleep(1)
        # All queries have an answer by one job already; gauges follow the other one within some seconds.
        bed.cluster.wait_for(lambda: held_gpus(prometheus) == "32", "the GPUs of both jobs", SHOWN_WITHIN_S)
        (leaders,) = prometheus.query("sum(closeknit_leader_status)")
        assert (leaders["value"][1], len(prometheus.query("closeknit_leader_status"))) == ("1", 2)
        ranks = prometheus.query("count by (job, namespace) (closeknit_rank_info)")
        assert {(each["metric"]["namespace"], each["metric"]["job"], each["value"][1]) for each in ranks} == {
            (bed.namespace, "plugin", "16"),
            (bed.namespace, "claims", "16"),
        }
        for query in joins():
            for job in ("plugin", "claims"):  # however they got their GPUs
                ours = query.replace('"team-a"', f'"{bed.namespace}"').replace('"train"', f'"{job}"')
                assert {each["metric"].get("rank") for each in prometheus.query(ours)} in RANKS, ours
        errors = prometheus.get("targets")["activeTargets"]
        assert {(each["labels"]["job"], _code(each["lastError"])) for each in errors} == {
            ("closeknit", ""),
            ("stranger", "403"),
            ("plain", "EOF"),
            ("dcgm-exporter", ""),
        }
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert len(rules) > 20
        assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
        assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
    for name in ("operator-1", "agent"):
        programs.check("check", "metrics", stdin=_exposition(ports[name], scraper))
    record_property("measured", f"{time.monotonic() - began:.0f} s with Prometheus")


def _code(error: str) -> str:
    return str((re.findall(r"40[13]|EOF", error) or [error])[0])


def _exposition(port: int, bearer: str) -> str:
    request = urllib.request.Request(f"https://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {bearer}"})
    with urllib.request.urlopen(request, timeout=10, context=unverified()) as answer:  # noqa: S310 - https
        return str(answer.read().decode())
