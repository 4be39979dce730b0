"""A thousand simulated agents, each with the token of its own Pod, against one real API server."""

import http.client
import json
import os
import re
import signal
import ssl
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from harness.agent_fleet import make_fleet
from harness.audit import AuditEvent
from harness.chart import AGENT_USER, wait_for_policies
from harness.install import install
from harness.local_cluster import LocalCluster

AGENTS = 1000
NODES = [f"soak-{number:04}" for number in range(AGENTS)]
_REQUESTS = re.compile(r'^apiserver_request_total\{(.*?resource="(?:nodes|nodetopologies)".*?)\} (\S+)$', re.MULTILINE)
# Seconds that nothing may happen, and how much faster the agents' clock runs then: the minute is a minute of theirs, in
# which each reads its machine ten times; heartbeats are asked of the hour.
QUIET = [(60, 6), pytest.param(3600, 1, marks=pytest.mark.long)]
LOOKS_OF_MINUTE = (
    0.2  # GETs of each agent in a minute at least; one in 90 s is to be expected, and the first ones later
)
_VERB = re.compile(r'verb="(\w+)"')


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """One of its own: a thousand nodes are in everybody's way."""
    with LocalCluster() as cluster:
        install(cluster)
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "soak-probe"}})
        wait_for_policies(cluster, "soak-probe")
        # Nobody else has a word here: two patches and an Event for each new Node are a fifth of what the start costs.
        for program in ("kube-controller-manager", "kube-scheduler", "kwok"):
            os.kill(cluster.pids[program], signal.SIGKILL)
        yield cluster


def ask(cluster: LocalCluster, path: str) -> str:
    tls = ssl.create_default_context(cafile=str(cluster.directory / "ca.crt"))
    tls.load_cert_chain(cluster.directory / "admin.crt", cluster.directory / "admin.key")
    address = cluster.server.removeprefix("https://")
    with closing(http.client.HTTPSConnection(address, context=tls, timeout=60)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def published(cluster: LocalCluster) -> int:
    """How many NodeTopologies there are."""
    metadata = json.loads(ask(cluster, "/apis/closeknit.dev/v1alpha1/nodetopologies?limit=1"))
    return len(metadata["items"]) + int(metadata["metadata"].get("remainingItemCount", 0))


def gets(cluster: LocalCluster) -> float:
    """GETs of Nodes and NodeTopologies that the API server has answered; nobody else asks for one by name."""
    found = _REQUESTS.findall(ask(cluster, "/metrics"))
    return sum(float(count) for labels, count in found if (verb := _VERB.search(labels)) and verb[1] == "GET")


def writes(cluster: LocalCluster) -> list[AuditEvent]:
    return [event for event in cluster.audit_events() if event.user == AGENT_USER and event.name in NODES]


def cost(pid: int) -> tuple[float, float]:
    """CPU seconds so far, and resident megabytes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def per_second(events: Sequence[AuditEvent]) -> list[int]:
    counted = Counter(int(event.received.timestamp()) for event in events)
    return [counted[second] for second in range(min(counted), max(counted) + 1)]


@pytest.mark.parametrize(("quiet_s", "speed"), QUIET)
def test_a_thousand_agents_start_spread_and_then_say_nothing(cluster: LocalCluster, quiet_s: int, speed: int) -> None:
    fleet = make_fleet(cluster, NODES, "pcie-8")
    began = time.monotonic()
    pid = cluster.start_program(
        f"soak-{quiet_s}",
        *(sys.executable, "-m", "harness.hurried_agents", str(speed), str(fleet)),
        environment={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    log = cluster.directory / "logs" / f"soak-{quiet_s}.log"
    cluster.wait_for(lambda: log.exists() and log.read_text().count("wrote ") >= AGENTS, "all agents to publish", 600)
    started_s, (cpu_s, megabytes) = time.monotonic() - began, cost(pid)
    assert published(cluster) == AGENTS
    start = writes(cluster)
    stored = Counter((event.resource, event.subresource) for event in start if event.code < 300)
    assert stored.keys() == {("nodetopologies", ""), ("nodetopologies", "status"), ("nodes", "")}
    # Nothing twice. On a machine too busy to answer in 30 s a write may still wait there when its agent asks again.
    given_up = log.read_text().count("not published")
    assert max(stored.values()) <= AGENTS + given_up
    assert {event.code for event in start if event.code >= 300} <= {429, 500, 503, 504}
    gets_before, quiet_began = gets(cluster), time.monotonic()
    os.kill(pid, signal.SIGUSR1)

    time.sleep(quiet_s / speed)  # nothing is waited for: this is how long nothing may happen

    # A machine too busy for their hurry gives them longer.
    enough = AGENTS * LOOKS_OF_MINUTE * quiet_s / 60
    cluster.wait_for(lambda: gets(cluster) - gets_before >= enough, "the agents' quiet minute", 600)
    took_s, (cpu_after_s, megabytes_after) = (time.monotonic() - quiet_began) * speed, cost(pid)
    looks = gets(cluster) - gets_before
    beats = writes(cluster)[len(start) :]
    print(
        f"\n{AGENTS} agents of one process: all had published {started_s:.1f} s after its start, "
        f"{cpu_s:.1f} s of CPU, {megabytes:.0f} MB; writes a second {per_second(start)}, "
        f"{given_up} calls without an answer in 30 s\n"
        f"{took_s:.0f} quiet seconds of theirs: {looks / took_s:.1f} GETs a second, {len(beats)} writes, "
        f"{cpu_after_s - cpu_s:.1f} s of CPU, {megabytes_after:.0f} MB"
    )
    # A look in 60 to 120 s and the Node with each heartbeat; where a busy machine kept some waiting at their start they
    # look sooner one after the other, but never twice within 60 s.
    assert looks <= AGENTS * (took_s / 60 + 1) * 1.2
    assert {(event.resource, event.subresource) for event in beats} <= {("nodetopologies", "status")}
    assert len(beats) <= AGENTS * (took_s / speed // 300)
    assert "Traceback" not in log.read_text()
    os.kill(pid, 15)
