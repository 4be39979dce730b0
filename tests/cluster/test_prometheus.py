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
from pathlib import Path

import msgspec
import pytest

from harness.chart import CHART, NAMESPACE
from harness.dashboards import BOARDS
from harness.install import OPERATOR, free_port, start_operator
from harness.local_cluster import is_running
from harness.machines import AGENT_SERVICE_ACCOUNT, agent_pod_name
from harness.operator_bed import ON_DRA, ON_PLUGIN, ON_PLUGIN_PROFILE, Bed, status_of, unverified
from harness.prometheus import NoPrometheus, Programs, Prometheus, bring, running
from harness.replicas import OPTIONS

PROGRAMS = Path(sys.executable).parent
SHOWN_WITHIN_S = 40
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

    bed.cluster.wait_for(are_ready, "all three to be ready")
    yield found
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    bed.cluster.wait_for(lambda: not any(map(is_running, pids)), "all three to end")
    bed.pid = start_operator(bed.cluster, bed.port)


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


def configuration(folder: Path, ports: dict[str, int], scraper: str, stranger: str) -> Path:
    """As the chart's ServiceMonitor comes to."""
    (folder / "scraper").write_text(scraper)
    (folder / "stranger").write_text(stranger)
    targets = [f"127.0.0.1:{port}" for port in ports.values()]

    def job(name: str, scheme: str, credentials: str, targets: list[str]) -> dict[str, object]:
        return {
            "job_name": name,
            "scheme": scheme,
            "honor_labels": True,
            "tls_config": {"insecure_skip_verify": True},
            "authorization": {"credentials_file": str(folder / credentials)},
            "static_configs": [{"targets": targets}],
        }

    written = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "2s"},
        "rule_files": [str(CHART / "files/rules/*.yaml")],
        "scrape_configs": [
            job("closeknit", "https", "scraper", targets),
            job("stranger", "https", "stranger", targets[:1]),
            job("plain", "http", "scraper", targets[:1]),
        ],
    }
    path = folder / "prometheus.yaml"
    path.write_bytes(msgspec.json.encode(written))
    return path


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


@pytest.mark.usefixtures("racks")
def test_every_query_of_the_dashboards_has_an_answer_and_replicas_count_once(
    bed: Bed, ports: dict[str, int], programs: Programs, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    scraper, stranger = token(bed, "scraper", may_read=True), token(bed, "stranger", may_read=False)
    with running(programs, configuration(tmp_path, ports, scraper, stranger)) as prometheus:
        shown = 'closeknit_placement_domains_count{level="rack"}'  # by the leader, once it knows the racks
        bed.cluster.wait_for(lambda: prometheus.query(shown) or None, "the first gauges", SHOWN_WITHIN_S)
        load(bed)
        deadline = time.monotonic() + SHOWN_WITHIN_S
        while missing := unanswered(prometheus, bed.namespace):
            assert time.monotonic() < deadline, "\n".join(missing)
            time.sleep(1)
        (held,) = prometheus.query('sum(closeknit_gpus{state="held"})')
        assert held["value"][1] == "32"
        (leaders,) = prometheus.query("sum(closeknit_leader_status)")
        assert (leaders["value"][1], len(prometheus.query("closeknit_leader_status"))) == ("1", 2)
        ranks = prometheus.query("count by (job, namespace) (closeknit_rank_info)")
        assert {(each["metric"]["namespace"], each["metric"]["job"], each["value"][1]) for each in ranks} == {
            (bed.namespace, "plugin", "16"),
            (bed.namespace, "claims", "16"),
        }
        joined = prometheus.query("closeknit_gpu_power_watts * on (uuid) group_left (job, rank) closeknit_rank_info")
        assert {each["metric"]["rank"] for each in joined} == {str(rank) for rank in range(8)}
        errors = prometheus.get("targets")["activeTargets"]
        assert {(each["labels"]["job"], _code(each["lastError"])) for each in errors} == {
            ("closeknit", ""),
            ("stranger", "403"),
            ("plain", "EOF"),
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
